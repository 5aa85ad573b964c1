"""`morello bench`: timing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from morello.cli.common import (
    cc_option,
    json_option,
    make,
    print_json,
    print_table,
    seed_option,
    tell_compiler,
    threads_option,
    with_goals,
)
from morello.cli.speed import Speed, measure
from morello.db.store import SpecStore
from morello.goals import Goal
from morello.progress import Doing
from morello.runtime.compiled import CompiledKernel
from morello.runtime.timing import duration
from morello.runtime.toolchain import find_compiler


@click.command("bench")
@with_goals
@click.option(
    "--min-time",
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=3600),
    default=0.3,
    help="Measure each Spec for at least this long.  [default: 0.3]",
)
@seed_option
@threads_option
@cc_option
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    min_time: float,
    seed: int,
    threads: int | None,
    cc: str | None,
    as_json: bool,
) -> None:
    """Time the programs of FILE, and numpy on the same in f32.

    Each measurement is of many calls, and the loop around them is C. The table has the least and the median, of the
    CPU time of the calling thread and on the wall. Rates are at best: of the CPU time, which other programs do not
    lengthen, and on several threads on the wall. numpy's time is the least on the wall; it uses as many threads as its
    BLAS likes.
    """
    find_compiler(cc)  # before the search, so that a mistake costs no time
    timed: list[tuple[CompiledKernel, Speed]] = []
    for goal in goals:
        kernel = make(goal, db, cc).kernel
        tell_compiler(kernel)
        with Doing(f"timing {goal.name}"):
            speed = measure(kernel, min_time, seed, threads)
        speed.warn()
        timed.append((kernel, speed))
    if as_json:
        print_json([_as_dict(kernel, speed, seed) for kernel, speed in timed])
    else:
        print_table(_table(timed))


def _as_dict(kernel: CompiledKernel, speed: Speed, seed: int) -> dict[str, Any]:
    return {
        "spec": kernel.program.name,
        "target": kernel.target.name,
        "profile": kernel.target.profile,
        "compiler": str(kernel.compiler),
        "seed": seed,
        **speed.as_dict(),
    }


def _table(timed: Sequence[tuple[CompiledKernel, Speed]]) -> Table:
    table = Table("spec", "target", box=None, pad_edge=False, header_style="bold")
    for heading in ("cpu", "median", "wall", "median", "rate", "numpy (f32)", "against numpy"):
        table.add_column(heading, justify="right")
    for kernel, speed in timed:
        report = speed.report
        times = (report.cpu.best, report.cpu.median, report.wall.best, report.wall.median)
        table.add_row(
            kernel.program.name,
            kernel.target.name,
            *map(duration, times),
            report.rate,
            "–" if speed.numpy is None else duration(speed.numpy),
            speed.times or "–",
        )
    return table
