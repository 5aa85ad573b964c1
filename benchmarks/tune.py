"""Tunes Specs, and compares the gains with the numbers of [Hong2025].

    python benchmarks/tune.py [--only NAME]... [--target NAME]... [--proposer NAME] [--samples N] [--seeds N]
                              [--reuse | --ablations] [--search-effort N] [--start MAPPER] [--traces DIR] [--json]

The table has a row for each Spec and target: time before and after, the speedup when both are timed in turns, with its
confidence interval, samples, seconds, and the items of the menu that paid. If nothing is faster by more than noise, the
noise bounds the possible gain. All runs of a Spec and target begin with the same program, which search finds with an
effort that does not depend on the machine; `--start random` begins with tiles that a mapper proposes, which leaves more
to gain.

`--ablations` tunes a product and a convolution without menu, without dropout, without feedback, with one proposer
alone, and in full with three seeds, and prints the speedups with those of Table 6 there. These are of another machine,
another baseline and language models, and not comparable. `--reuse` tunes the Specs of Table 2 with and without the
items that paid for the first of each row, with 100 and 200 samples. With `--traces DIR`, finished runs are
not repeated.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import click
from morello_bounds.mappers import mappers_for
from morello_tune import TuningOptions, tune
from morello_tune.tuner import TuningResult
from rich.console import Console
from rich.table import Table

from harness.goals import goal_of
from morello.api import DEFAULT_EXPANSIONS
from morello.api.goals import Goal
from morello.db.store import SpecStore
from morello.errors import Inapplicable, MorelloError, NoImplementation, Undecided
from morello.host import missing_features
from morello.plugins.registry import installed
from morello.schedule import Schedule, schedule_of
from morello.search.budget import SearchBudget

#: The tuned Specs, by their names in the harness, or as text.
GOALS = {
    "matmul 512³": "512³",
    "matmul 197×768×768": "197×768×768",
    "bf16 1×2048×16384": "bf16 1×2048×16384",
    "conv2_x": "ResNet18-2 64,64,56,3",
    "softmax 1024²": "softmax 1024×1024",
    "mlp": "example mlp",
    "attention": "example attention",
}
TARGETS = ("x86_avx2", "x86_avx512")
PRODUCT = "Matmul(1×{}×{}×{}, (f32, GL), (f32, GL), (f32, GL), serial)"
#: Table 2 there: for each row sizes m, k, n; the first is tuned before the others.
REUSED = {
    "square": ((1024, 1024, 1024), (512, 512, 512), (256, 256, 256)),
    "column": ((12544, 256, 64), (6272, 256, 64), (12544, 128, 64)),
    "row": ((128, 1024, 1024), (64, 1024, 1024), (32, 1024, 1024)),
}
#: The samples for each of the others, and the speedups over its library that the paper reports.
SAMPLES = (100, 200)
REPORTED = {(100, "reuse"): 4.6, (100, "none"): 3.7, (200, "reuse"): 5.0, (200, "none"): 4.2}
#: Table 6 there: speedup over Gemmini's library, of a product and of a convolution.
PAPER = {
    "start": (1.67, 0.91),
    "no menu": (2.34, 0.97),
    "no dropout": (4.72, 2.30),
    "single proposer": (4.67, 2.08),
    "no feedback": (4.91, 2.61),
    "full": (5.53, 2.72),
}
_CONV = "Conv[padding=1](4×256×256×14×14×3×3, (f32, GL), (f32, GL), (f32, GL), serial)"
ABLATED = {"product 12544×64×256": PRODUCT.format(12544, 64, 256), "conv 4×14×14×3×3, 256 of 256": _CONV}


@cache
def start_of(name: str, target: str, effort: int, mapper: str | None = None) -> Goal:
    """Return the goal of a Spec with the schedule of the program that search finds within `effort` expansions.

    With a mapper, search completes its first proposal that has a program. Raises MorelloError if none has.
    """
    goal = goal_of(name, target)
    starts: Iterable[Schedule] = ((),)
    if mapper:
        starts = mappers_for(target)[mapper].propose(goal.spec, goal.target, 0)
    for schedule in starts:
        try:
            found = goal.apply(schedule).synthesize(db=False, progress=False, budget=SearchBudget(expansions=effort))
        except (Inapplicable, NoImplementation, Undecided):
            continue
        return goal.apply(schedule_of(found.impl))
    raise MorelloError(f"{name} has no program to begin with", "raise --search-effort, or leave out --start")


@attrs.frozen
class Setting:
    """The target, proposer, samples, effort and mapper of starts, and folder of traces of all runs."""

    target: str
    proposer: str
    samples: int
    effort: int
    start: str | None
    traces: Path | None

    def row(self, name: str, spec: str, seed: int = 0, db: SpecStore | None = None, **more: Any) -> dict[str, Any]:
        """Tune a Spec within the samples, and return its row; a finished run is read from its trace."""
        options = TuningOptions(**{"proposer": self.proposer, "samples": self.samples, "seed": seed, **more})
        run = {"spec": spec, "options": options.sizes, "proposer": options.proposer, "effort": self.effort}
        run["start"] = self.start
        done = None
        if self.traces:
            self.traces.mkdir(parents=True, exist_ok=True)
            stem = f"{name}-{self.target}-{seed}".replace(" ", "_").replace("/", "_")
            trace, done = (self.traces / f"{stem}.{suffix}" for suffix in ("jsonl", "json"))
            options = attrs.evolve(options, trace=trace)
            if done.exists() and (kept := json.loads(done.read_text()))["run"] == run:
                return kept["row"]
        row = row_of(name, tune(start_of(spec, self.target, self.effort, self.start), options, db=db or False))
        click.echo(f"{name}, {self.target}, seed {seed}: {row['gain']:.3f} in {row['seconds']:.0f} s", err=True)
        if done:
            done.write_text(json.dumps({"run": run, "row": row}, ensure_ascii=False))
        return row

    def store(self, row: str, stack: ExitStack) -> SpecStore:
        """Return a database for the items that pay for a row, in the folder of traces or until a stack is left."""
        folder = self.traces or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        return SpecStore(folder / f"{row}-{self.target}.db")


def row_of(name: str, done: TuningResult) -> dict[str, Any]:
    """Return the row of a tuned Spec."""
    return {
        "name": name,
        "target": done.goal.target.name,
        "before": done.start.value,
        "after": done.best.value,
        "percent": [one.candidate.feedback and one.candidate.feedback.percent for one in (done.start, done.best)],
        "gain": done.gain,
        "interval": [done.final.low, done.final.high],
        "improved": done.improved,
        "noise": done.noise,
        "samples": len(done.samples),
        "seconds": done.seconds,
        "verdicts": done.verdicts,
        "paid": [{"item": one.item, "accepted": one.accepted, "gain": one.gain} for one in done.items if one.accepted],
        "way": [list(step) for step in done.best.way],
        "schedule": done.schedule.splitlines(),
    }


def mean(gains: Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean(map(math.log, gains)))


def ablations(setting: Setting, seeds: int, only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the speedups over the start without one part of the search at a time, and in full for some seeds."""
    both = "ensemble:offline,evolution"
    variants: dict[str, Mapping[str, Any]] = {
        "no menu": {"without_menu": True},
        "no dropout": {"dropout": 0.0},
        "no feedback": {"without_feedback": True},
        "single proposer": {"proposer": "offline"},
        "full": {},
    }
    for name, spec in ABLATED.items():
        if only and name not in only:
            continue
        for variant, more in variants.items():
            for seed in range(seeds if variant == "full" else 1):
                row = setting.row(f"{name} {variant}", spec, seed, **{"proposer": both, **more})
                yield {**row, "name": name, "variant": variant, "seed": seed}


def reused(setting: Setting, only: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the gains of the Specs of Table 2 with and without the items that paid for the first of a row."""
    for row, (first, *others) in REUSED.items():
        if only and row not in only:
            continue
        with ExitStack() as stack:
            store = setting.store(row, stack)
            setting.row(f"{row} first", PRODUCT.format(*first), db=store)
            for shape in others:
                for samples in SAMPLES:
                    for how, reuse in (("reuse", store), ("none", False)):
                        name = f"{row} {'×'.join(map(str, shape))} {how} {samples}"
                        made = setting.row(name, PRODUCT.format(*shape), samples=samples, reuse=reuse)
                        yield {**made, "samples asked": samples, "how": how}


def _console() -> Console:
    """Return the console for tables: wide enough for all columns unless it is a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=200)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs"


def print_goals(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table of Specs."""
    names = ("before", "after", "of peak", "gain", "interval", "noise", "samples", "seconds", "what paid")
    table = Table("Spec", "target", *names)
    for one in rows:
        low, high = one["interval"]
        items = ", ".join(f"{item} {gain:.3f}" for item, gain in one["way"]) or "nothing beyond noise"
        table.add_row(
            one["name"],
            one["target"],
            _time(one["before"]),
            _time(one["after"]),
            " → ".join("-" if percent is None else f"{percent:.0f} %" for percent in one["percent"]),
            f"{one['gain']:.3f}",
            f"{low:.3f}-{high:.3f}" if one["improved"] else "-",
            f"{one['noise']:.1%}",
            str(one["samples"]),
            f"{one['seconds']:.0f}",
            items,
        )
    _console().print(table)


def print_ablations(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print speedups over our start, and those of Table 6 over its start."""
    table = Table("variant", *ABLATED, "paper: GEMM", "paper: conv", title="speedup over the start")
    for variant in dict.fromkeys(one["variant"] for one in rows):
        cells: list[str] = []
        for name in ABLATED:
            gains = [one["gain"] for one in rows if (one["variant"], one["name"]) == (variant, name)]
            spread = f" ± {statistics.stdev(gains):.2f}" if len(gains) > 1 else ""
            cells.append(f"{statistics.fmean(gains):.3f}{spread}" if gains else "-")
        paper = [f"{own / start:.2f}" for own, start in zip(PAPER[variant], PAPER["start"], strict=True)]
        table.add_row(variant, *cells, *paper)
    _console().print(table)


def print_reused(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print geometric means with and without reuse, and those of the paper over its library."""
    table = Table("samples", "how", "gain, geometric mean", "paper: over its library")
    for key in dict.fromkeys((one["samples asked"], one["how"]) for one in rows):
        gains = [one["gain"] for one in rows if (one["samples asked"], one["how"]) == key]
        table.add_row(str(key[0]), key[1], f"{mean(gains):.3f}", f"{REPORTED.get(key, '-')}")
    _console().print(table)


@click.command()
@click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    help=f"Only these: {', '.join(GOALS)}, or a Spec as text; or rows of a table.",
)
@click.option(
    "--target", "targets", metavar="NAME", multiple=True, default=TARGETS, help="Only this target; repeatable."
)
@click.option("--proposer", "name", metavar="NAME", default="offline", show_default=True)
@click.option("--samples", metavar="N", type=click.IntRange(1), default=200, show_default=True)
@click.option("--seeds", metavar="N", type=click.IntRange(1), default=3, show_default=True, help="Of the full variant.")
@click.option(
    "--search-effort",
    metavar="N",
    type=click.IntRange(1),
    default=DEFAULT_EXPANSIONS,
    show_default=True,
    help="Expansions of the searches for starts.",
)
@click.option("--start", metavar="MAPPER", help="Begin with a proposal of this mapper, not with search.")
@click.option("--traces", metavar="DIR", type=Path, help="Keep traces here; finished runs are not repeated.")
@click.option("--ablations", "ablated", is_flag=True, help="Leave out one part of the search at a time.")
@click.option("--reuse", is_flag=True, help="Reuse the items that paid, for the Specs of Table 2.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    only: tuple[str, ...],
    targets: tuple[str, ...],
    name: str,
    samples: int,
    seeds: int,
    search_effort: int,
    start: str | None,
    traces: Path | None,
    ablated: bool,
    reuse: bool,
    as_json: bool,
) -> None:
    """Tune Specs and print the gains."""
    rows = list[dict[str, Any]]()
    for target in targets:
        if missing := missing_features(installed().target(target).info.cpu_features):
            click.echo(f"{target} is left out: this machine lacks {', '.join(missing)}", err=True)
            continue
        setting = Setting(target, name, samples, search_effort, start, traces)
        if ablated:
            rows += ablations(setting, seeds, only)
        elif reuse:
            rows += reused(setting, only)
        else:
            rows += [setting.row(one, GOALS.get(one, one)) for one in only or GOALS]
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        (print_ablations if ablated else print_reused if reuse else print_goals)(rows)


if __name__ == "__main__":
    main()
