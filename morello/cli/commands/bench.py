"""start: Time the programs of FILE, and a library on the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from click.core import ParameterSource

from morello import api
from morello.cli.common import (
    FiniteRange,
    SearchOptions,
    as_group,
    cc_option,
    json_option,
    measured_option,
    print_json,
    runner_option,
    seed_option,
    threads_option,
    with_goals_of_sizes,
    with_steps,
)
from morello.cli.kernels import (
    TimingOptions,
    against_option,
    cold_option,
    make,
    print_compiler,
    searched,
    searches_option,
    warn_if_busy,
)
from morello.report.tables import Column, print_table
from morello.report.words import duration


@click.command("bench")
@with_goals_of_sizes
@with_steps
@click.option(
    "--min-time",
    metavar="SECONDS",
    type=FiniteRange(min=0, max=3600),
    default=0.3,
    help="Measure each Spec for at least this long.  [default: 0.3]",
)
@seed_option
@threads_option
@against_option
@cold_option
@measured_option
@cc_option
@runner_option
@searches_option
@json_option
@as_group(TimingOptions, "timing")
def command(
    goals: Sequence[api.Goal],
    search: SearchOptions,
    timing: TimingOptions,
    min_time: float,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Time the programs of FILE, and a library on the same.

    Each measurement is a C loop of many calls. The table has minimum and median of the CPU time of the calling thread
    and of the wall time. Rates are of the minimum: of CPU time, which other programs do not lengthen, or with several
    threads of wall time.

    The library gets the same types, row-major or column-major layouts and as many threads, and writes into existing
    arrays where it can. Ratios are of minima and of medians, each without the time of an empty call; none is shown
    where the empty call dominates.

    Programs of a target with metrics are measured by these instead of timed, without a library.
    """
    search.check_tools(goals)
    counted: list[tuple[api.Kernel, Sequence[api.Reading]]] = []
    timed: list[tuple[api.Kernel, api.Speed]] = []
    for goal in searched(goals, search, jobs):
        kernel = make(goal, search).kernel
        print_compiler(kernel, search)
        if readings := timing.readings(kernel):
            counted.append((kernel, readings))
            continue
        speed = timing.speed(kernel, min_time)
        warn_if_busy(speed)
        timed.append((kernel, speed))
    if as_json:
        rows = [(kernel, {"metrics": [_reading(one) for one in found]}) for kernel, found in counted]
        rows += [(kernel, speed.as_dict()) for kernel, speed in timed]
        print_json([{**_of(kernel), "seed": timing.seed, **facts} for kernel, facts in rows])
    elif counted:
        _print_counted(counted)
        if click.get_current_context().get_parameter_source("against") is not ParameterSource.DEFAULT:
            click.echo(f"not compared: {timing.against} has none of these metrics", err=True)
    else:
        _print(timed, timing.against)
        _print_reasons(timed)


def _of(kernel: api.Kernel) -> dict[str, Any]:
    """Return the JSON facts of a kernel."""
    return {
        "spec": kernel.program.name,
        "target": kernel.target.full_name,
        "profile": kernel.target.profile,
        "compiler": str(kernel.compiler),
        "runner": str(kernel.runner) if kernel.runner else None,
    }


def _reading(one: api.Reading) -> dict[str, Any]:
    return {"name": one.metric.name, "value": one.value, "unit": one.metric.unit}


def _print_counted(counted: Sequence[tuple[api.Kernel, Sequence[api.Reading]]]) -> None:
    columns = [Column("spec"), Column("target", spare=1), Column("metric"), Column("value", True), Column("unit")]
    rows = [
        (kernel.program.name, kernel.target.full_name, one.metric.name, one.amount, one.metric.unit)
        for kernel, found in counted
        for one in found
    ]
    print_table(columns, rows)


def _print(timed: Sequence[tuple[api.Kernel, api.Speed]], against: str) -> None:
    headings = {"cpu": 0, "median": 2, "wall": 4, "median ": 5, "rate": 0}
    comparison = (
        {} if against == api.NO_LIBRARY else {against: 0, f"median {against}": 3, f"× {against}": 0, "by medians": 1}
    )
    columns = [Column("spec"), Column("target", spare=6)]
    columns += [Column(heading.strip(), True, spare=spare) for heading, spare in {**headings, **comparison}.items()]
    rows = []
    for kernel, speed in timed:
        report, baseline = speed.report, speed.baseline
        found = (report.cpu.best, report.cpu.median, report.wall.best, report.wall.median)
        other = ("–", "–") if baseline is None else (duration(baseline.times.best), duration(baseline.times.median))
        compared = (*other, api.times_text(speed.ratio), api.times_text(speed.median_ratio)) if comparison else ()
        rows.append((kernel.program.name, kernel.target.full_name, *map(duration, found), report.rate, *compared))
    print_table(columns, rows)


def _print_reasons(timed: Sequence[tuple[api.Kernel, api.Speed]]) -> None:
    """Print on stderr why programs have no ratio."""
    for kernel, speed in timed:
        if speed.ratio is None and speed.verdict:
            click.echo(f"{kernel.program.name}: {speed.verdict}", err=True)
