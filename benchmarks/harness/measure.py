"""Time all runners on a problem, in turn, so that other load affects all of them."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from morello_baselines.native.base import PATIENCE
from morello_baselines.native.problems import Problem

from harness.crew import Worker

#: The shortest time that is measured, in seconds, and how often each runner is measured at least.
_SHORTEST, _ROUNDS = 0.005, 7


@attrs.frozen
class Result:
    """One runner on one problem: seconds of a call, or why there are none."""

    problem: Problem
    runner: str
    group: str
    ours: bool
    packs: bool
    seconds: tuple[float, ...] = ()
    why: str = ""
    note: str = ""
    error: float = 0.0
    facts: dict[str, float] = attrs.field(factory=dict)

    @property
    def best(self) -> float:
        """Return the least seconds of a call."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def as_dict(self) -> dict[str, Any]:
        return {
            "problem": self.problem.name,
            "suite": self.problem.suite,
            "runner": self.runner,
            "class": self.group,
            "ours": self.ours,
            "packs_beforehand": self.packs,
            "why": self.why,
            "note": self.note,
            "seconds": list(self.seconds),
            "flops": self.problem.flops,
            "bytes": self.problem.bytes,
            "error": self.error,
            **self.facts,
        }


def measure(
    problem: Problem, workers: Sequence[Worker], seconds: float, patience: float, report: Callable[[str], None]
) -> list[Result]:
    """Time a problem for about `seconds` in total; a search may take `patience` seconds per program."""
    with tempfile.TemporaryDirectory() as folder:
        expected = str(Path(folder) / "expected.npy")
        np.save(expected, problem.expected())
        answers = {}
        for worker in workers:
            if not worker.missing:
                report(worker.baseline.name)
                allowed = patience if worker.baseline.ours else worker.baseline.patience
                answers[worker] = worker.ask(allowed, prepare=problem.name, expected=expected)
    ready = [worker for worker, answer in answers.items() if "error" in answer]
    report("timing")
    times = _interleaved(ready, seconds)
    return [_result(problem, worker, answer, times.get(worker, ())) for worker, answer in answers.items()]


def _interleaved(workers: Iterable[Worker], budget: float) -> dict[Worker, tuple[float, ...]]:
    """Return the seconds of a call, one value for each round."""
    calls = {worker: _calls(worker) for worker in workers}
    share = budget / max(1, len(calls))
    rounds = {worker: max(_ROUNDS, int(share / ((count + 1) * each))) for worker, (count, each) in calls.items()}
    times: dict[Worker, list[float]] = {worker: [] for worker in calls}
    for turn in range(max(rounds.values(), default=0)):
        for worker, (count, _) in calls.items():
            if turn < rounds[worker]:
                times[worker].append(_seconds(worker, count) / count)
    return {worker: tuple(found) for worker, found in times.items()}


def _calls(worker: Worker) -> tuple[int, float]:
    """Return how many calls are long enough to be measured, and about the seconds of one. Warms up, too."""
    calls = 1
    while (seconds := _seconds(worker, calls)) < _SHORTEST:
        calls *= 2 if seconds > _SHORTEST / 8 else 8
    return calls, seconds / calls


def _seconds(worker: Worker, calls: int) -> float:
    """Return what calls took; endless where the worker failed, so that it is measured no more."""
    return worker.ask(PATIENCE, calls=calls).get("seconds", float("inf"))


def _result(problem: Problem, worker: Worker, answer: dict[str, Any], seconds: tuple[float, ...]) -> Result:
    baseline = worker.baseline
    own = (problem, baseline.name, baseline.group, baseline.ours, baseline.packs)
    if "error" not in answer:
        return Result(*own, why=reason(answer, baseline.ours))
    if any(each == float("inf") for each in seconds):
        return Result(*own, why="failed while it was timed")
    return Result(*own, seconds, "", answer["note"], answer["error"], answer["facts"])


def reason(answer: dict[str, Any], ours: bool) -> str:
    """Return the reason for a missing result, in words."""
    if "late" in answer:
        return f"no program in {answer['late']:g} s" if ours else f"not ready in {answer['late']:g} s"
    for kind in ("wrong", "failed", "missing"):
        if kind in answer:
            return f"{kind}: {answer[kind]}"
    return f"not offered: {answer.get('not_offered', 'unknown')}"
