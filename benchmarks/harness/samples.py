"""Timed programs, stored as schedules, so that every cost model is evaluated on the same ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from morello_baselines.native.problems import Problem

from harness.suite import PROBLEMS
from morello import api
from morello.api.goals import Goal
from morello.errors import MorelloError
from morello.ir.impl import cost_and_peak, leaves

FOLDER = Path(__file__).resolve().parents[1] / "samples"


@attrs.frozen
class Sample:
    """A program of a Spec: how it was drawn, its schedule, least seconds of a call, cost when it was timed."""

    origin: str
    schedule: str
    seconds: float
    cost: int


@attrs.frozen
class Samples:
    """The programs of one problem and target, and the machine that they were timed on."""

    problem: Problem
    target: str
    machine: str
    programs: tuple[Sample, ...]

    def goal(self, sample: Sample) -> Goal:
        """Return a program as a goal. Raises MorelloError where the language or the target has changed too much."""
        return goal(self.problem, self.target, sample.schedule)

    def rescored(self) -> tuple[Samples, int]:
        """Return the samples with costs of today's model, and how many are no programs any more."""
        kept = []
        for sample in self.programs:
            try:
                found = self.goal(sample).impl
                if next(leaves(found), None) is None:
                    kept.append(attrs.evolve(sample, cost=cost_and_peak(found).cost))
            except MorelloError:
                continue
        return attrs.evolve(self, programs=tuple(kept)), len(self.programs) - len(kept)


def goal(problem: Problem, target: str, schedule: str) -> Goal:
    """Return a problem's first Spec with a schedule. Raises MorelloError for one that does not apply."""
    body = f"schedule problem {{\n{schedule}\n}}\n" if schedule else ""
    return api.parse(problem.texts(target, 1)[0] + body, cpu="native")["problem"]


def path_of(problem: Problem, target: str, folder: Path) -> Path:
    name = "".join(each if each.isalnum() else "_" for each in problem.name)
    return folder / f"{target}-{name}.jsonl"


def save(samples: Samples, folder: Path) -> None:
    """Write a line about the samples, and one for each."""
    head: dict[str, Any] = {"problem": samples.problem.name, "target": samples.target, "machine": samples.machine}
    rows = [head, *(attrs.asdict(sample) for sample in samples.programs)]
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path_of(samples.problem, samples.target, folder).write_text(text, encoding="utf-8")


def load(problem: Problem, target: str, folder: Path) -> Samples | None:
    """Return what was kept of a problem, None if nothing was. Raises MorelloError for a file of another problem."""
    file = path_of(problem, target, folder)
    if not file.exists():
        return None
    head, *rows = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    if head["problem"] not in PROBLEMS or head["target"] != target:
        raise MorelloError(f"{file} is about {head['problem']} on {head['target']}", "draw its programs again")
    return Samples(problem, target, head["machine"], tuple(Sample(**row) for row in rows))


@attrs.frozen
class Score:
    """The worth of a model: rank correlations of cost and time, and the program that it calls cheapest.

    `rank` is that program's place by time, from 1 on; `slower` its time over the fastest's. The slowest
    counts among programs of equal cost. Correlations are NaN where all costs are equal.
    """

    count: int
    overall: float
    faster_half: float
    rank: int
    slower: float


def score(programs: Sequence[Sample]) -> Score:
    """Judge costs by times. There is at least one program."""
    costs = np.array([each.cost for each in programs], dtype=float)
    seconds = np.array([each.seconds for each in programs])
    half = np.argsort(seconds, kind="stable")[: (len(programs) + 1) // 2]
    cheapest = float(seconds[costs == costs.min()].max())
    return Score(
        len(programs),
        spearman(costs, seconds),
        spearman(costs[half], seconds[half]),
        1 + int((seconds < cheapest).sum()),
        cheapest / float(seconds.min()),
    )


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation of two series; NaN if one of them is constant."""
    first, second = (_ranks(each) - (len(a) + 1) / 2 for each in (a, b))
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale else float("nan")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 1 on; equal values share the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]
