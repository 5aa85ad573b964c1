"""Measure the correlation of costs and times.

    python benchmarks/fidelity.py [--only NAME]... [--target NAME]... [--count 200] [--seed 0] [--db FILE]
                                  [--rescore | --retime] [--samples FOLDER] [--json] [--plot FILE]

For each Spec, complete programs are drawn: the optimum, its neighbours, families that search completes, random ones.
They are compared with numpy, timed in turn on one core, and stored as schedules. `--rescore` compares today's costs
with the stored times; `--retime` times the stored programs again, and today's optimum.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import click
from morello_baselines.native.base import Prepared
from morello_baselines.native.ours import operands, prepared
from morello_baselines.native.problems import Problem, difference
from rich.console import Console
from rich.table import Table

from harness import samples
from harness.commands import run
from harness.draws import Draws, with_program
from harness.samples import Sample, Samples, Score
from harness.suite import PROBLEMS
from morello import api
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.cli.figures import figures
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.plugins.profile_choice import microarchitectures
from morello.run.timing import duration

SPECS = (
    "100³",
    "49×2048×512",
    "128×768×3072",
    "1536³",
    "64×256×3136",
    "1×4096×4096",
    "32×4096×4096",
    "conv 128,128,28,3",
    "conv 512,128,28,1",
    "LayerNorm 4096×768",
    "softmax 1024×1024",
    "attention 128×64",
)
TARGETS = ("x86_avx2", "x86_avx512")
_ROUNDS = 7
#: Seconds of a measurement, at least, and how much slower than the fastest a program may be to be measured again.
_SHORTEST, _TOO_SLOW = 0.001, 20


@click.command()
@click.option("--only", metavar="NAME", multiple=True, type=click.Choice(list(PROBLEMS)), help="Only this problem.")
@click.option("--target", metavar="NAME", multiple=True, help="Only this target; repeatable.")
@click.option("--count", metavar="N", type=click.IntRange(2), default=200, show_default=True)
@click.option("--seed", metavar="N", default=0, show_default=True)
@click.option("--db", metavar="FILE", help="Database for solved Specs.  [default: none]")
@click.option("--rescore", is_flag=True, help="Only recompute the costs of stored programs.")
@click.option("--retime", is_flag=True, help="Time stored programs again in place of drawing some.")
@click.option("--samples", "folder", metavar="FOLDER", type=click.Path(path_type=Path), default=samples.FOLDER)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", metavar="FILE", help="Draw cost and time of every program.")
def main(
    only: tuple[str, ...],
    target: tuple[str, ...],
    count: int,
    seed: int,
    db: str | None,
    rescore: bool,
    retime: bool,
    folder: Path,
    as_json: bool,
    plot: str | None,
) -> None:
    """Judge costs by the times of many programs."""
    if rescore and retime:
        raise click.UsageError("--rescore and --retime exclude each other")
    console = Console(stderr=True)
    store = SpecStore(db) if db else None
    all_samples: list[tuple[Samples, int]] = []
    for name in target or TARGETS:
        for problem in (PROBLEMS[chosen] for chosen in only or SPECS):
            with console.status(f"{problem.name} on {name}"):
                kept = samples.load(problem, name, folder) if rescore or retime else None
                if kept is None and (rescore or retime):
                    continue
                if kept is None or retime:
                    programs = _kept(kept, store) if kept else _drawn(problem, name, count, seed, store)
                    kept = Samples(problem, name, microarchitectures()[0], tuple(_timed(problem, programs, console)))
                    samples.save(kept, folder)
            all_samples.append(kept.rescored() if rescore else (kept, 0))
    all_samples = [(kept, lost) for kept, lost in all_samples if kept.programs]
    scores = [(kept, lost, samples.score(kept.programs)) for kept, lost in all_samples]
    if as_json:
        heads = [{"problem": kept.problem.name, "target": kept.target, "lost": lost} for kept, lost, _ in scores]
        rows = [{**head, **attrs.asdict(row)} for head, (_, _, row) in zip(heads, scores, strict=True)]
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    else:
        Console(width=120).print(_table(scores))
    if plot:
        _plot([kept for kept, _ in all_samples], plot)


def _drawn(problem: Problem, target: str, count: int, seed: int, store: SpecStore | None) -> list[tuple[str, Goal]]:
    """Return different programs, and how each was drawn."""
    goal = samples.goal(problem, target, "")
    draws = Draws(goal, random.Random(f"{seed} {target} {problem.name}"), store)
    different: dict[str, tuple[str, Goal]] = {}
    for origin, impl in draws.programs(2 * count):
        made = with_program(goal, impl)
        different.setdefault(made.schedule, (origin, made))
        if len(different) == count:
            break
    return [*different.values()]


def _kept(kept: Samples, store: SpecStore | None) -> list[tuple[str, Goal]]:
    """Return programs that were kept, and today's optimum."""
    best = samples.goal(kept.problem, kept.target, "").synthesize(store or False)
    by_schedule = {best.schedule: ("optimum", best)}
    for sample in kept.programs:
        try:
            goal = kept.goal(sample)
        except MorelloError:
            continue
        origin = "former optimum" if sample.origin == "optimum" else sample.origin
        by_schedule.setdefault(goal.schedule, (origin, goal))
    return [*by_schedule.values()]


def _timed(problem: Problem, programs: Sequence[tuple[str, Goal]], console: Console) -> list[Sample]:
    """Build, verify and time programs in turn; report and skip those that fail."""
    kernels = [api.compile(goal, db=False) for _, goal in programs]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        faults = [*pool.map(_fault_of_building, kernels)]
    os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
    arrays = operands(kernels[0], problem.inputs())
    expected = problem.expected()
    ready: dict[int, Prepared] = {}
    for index, (kernel, fault) in enumerate(zip(kernels, faults, strict=True)):
        if not fault:
            one = prepared(kernel, arrays, 1)
            one.run(1)
            fault = "" if difference(one.output(), expected) <= one.tolerance else "a wrong result"
            ready[index] = one
        if fault:
            ready.pop(index, None)
            console.print(f"{problem.name}: left out, {fault}: {programs[index][1].schedule!r}")
    seconds = _seconds(ready)
    made = [(index, *programs[index]) for index in ready]
    return [Sample(origin, _flush(goal.schedule), seconds[index], kernels[index].cost) for index, origin, goal in made]


def _flush(schedule: str) -> str:
    """Return a schedule without indentation, which takes a third less room."""
    return "\n".join(line.strip() for line in schedule.splitlines())


def _fault_of_building(kernel: Kernel) -> str:
    try:
        kernel.function.load()
    except MorelloError as error:
        return error.message.splitlines()[0]
    return ""


def _seconds(ready: dict[int, Prepared]) -> dict[int, float]:
    """Return the least seconds of a call of each, measured in turn."""
    calls, best = dict.fromkeys(ready, 1), dict.fromkeys(ready, math.inf)
    for _ in range(_ROUNDS):
        limit = _TOO_SLOW * min(best.values(), default=0)
        for index, one in ready.items():
            if best[index] < math.inf and best[index] > limit:
                continue
            taken = one.run(calls[index])
            while taken < _SHORTEST:
                calls[index] *= 2
                taken = one.run(calls[index])
            best[index] = min(best[index], taken / calls[index])
    return best


def _table(scores: Sequence[tuple[Samples, int, Score]]) -> Table:
    table = Table("Spec", "target", box=None, pad_edge=False, header_style="bold")
    for heading in ("programs", "lost", "fastest", "all", "faster half", "rank of cheapest", "over fastest"):
        table.add_column(heading, justify="right", no_wrap=True)
    for kept, lost, row in scores:
        table.add_row(
            kept.problem.name,
            kept.target,
            str(row.count),
            str(lost),
            duration(min(each.seconds for each in kept.programs)),
            f"{row.overall:.2f}",
            f"{row.faster_half:.2f}",
            str(row.rank),
            f"{row.slower:.2f}",
        )
    return table


def _plot(every: Sequence[Samples], path: str) -> None:
    """Draw a panel for each Spec and target, both axes logarithmic. Raises MorelloError."""
    columns = min(4, max(1, len(every)))
    rows = max(1, math.ceil(len(every) / columns))
    figure = figures().Figure(figsize=(3.5 * columns, 3 * rows), layout="constrained")
    for place, one in enumerate(every):
        panel = figure.add_subplot(rows, columns, place + 1)
        for origin in dict.fromkeys(each.origin for each in one.programs):
            own = [each for each in one.programs if each.origin == origin]
            # Lines without length, with round ends: files are half as large as with markers.
            places = [place for each in own for place in ((each.cost, each.seconds),) * 2 + ((math.nan, math.nan),)]
            panel.loglog(*zip(*places, strict=True), label=origin, alpha=0.6, linewidth=3, solid_capstyle="round")
        panel.set_title(f"{one.problem.name}, {one.target}", fontsize=8)
        panel.tick_params(labelsize=6)
        panel.minorticks_off()
    figure.supxlabel("cost")
    figure.supylabel("seconds")
    if every:
        figure.axes[0].legend(fontsize=6)
    figure.savefig(path)


if __name__ == "__main__":
    run(main)
