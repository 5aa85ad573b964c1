"""start: Find the best program of every Spec in FILE, check and time it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler
from morello.cli.common import (
    cc_option,
    make,
    measured_option,
    print_compiler,
    print_sizes,
    seed_option,
    threads_option,
    with_goals,
)
from morello.cli.output import write_file
from morello.cli.speed import Speed, against_option, measure
from morello.db.store import SpecStore
from morello.frontend.specfile import show_spec
from morello.progress import Spinner
from morello.report.tables import print_table
from morello.report.tree import by_level, program_tree, tree_table
from morello.report.words import cost_words, memory
from morello.run.timing import duration
from morello.verify.check import CheckReport
from morello.verify.reference import REFERENCE_NAME as REFERENCE
from morello.verify.reference import reference_target

_MIN_TIME = 0.3


@click.command("run")
@with_goals
@seed_option
@threads_option
@against_option
@measured_option
@cc_option
def command(
    goals: Sequence[Goal], db: SpecStore | None, seed: int, threads: int | None, against: str, cc: str | None
) -> None:
    """Find the best program of every Spec in FILE, verify it and time it.

    The parts that the Spec's schedule leaves open are searched. The program is built with a C compiler, checked against
    numpy and plain C, and its speed is compared with numpy's or that of the library --against, as by `morello bench`.
    If the target has metrics of its own, the program is measured by these.
    """
    # Fail before the search.
    find_compiler(cc)
    reference_target()
    for number, goal in enumerate(goals):
        if number:
            click.echo()
        _run(goal, db, cc, seed, threads, against)


def _run(goal: Goal, db: SpecStore | None, cc: str | None, seed: int, threads: int | None, against: str) -> None:
    click.echo(f"{goal.name} for {goal.target.label}:\n{show_spec(goal.spec, goal.target, goal.plain)}")
    print_sizes(goal)
    click.echo()
    made = make(goal, db, cc)
    kernel = made.kernel
    print_table(*tree_table(program_tree(kernel.impl, goal.target), compact=True))
    cost = cost_words(kernel.cost, goal.target)
    click.echo(f"\ncost     {cost}; memory: {memory(by_level(kernel.peak, goal.target))}")
    click.echo(f"search   {made.story}")
    print_compiler(kernel)
    with Spinner(f"building {goal.name}"):
        source = _save_source(kernel)
    click.echo(f"C        {source}")
    with Spinner(f"verifying {goal.name}"):
        report = kernel.check(seed)
    click.echo(f"correct  {_verdict(report)}")
    with Spinner(f"{'counting' if goal.target.metrics else 'timing'} {goal.name}"):
        counts = kernel.readings(seed)
        speed = None if counts else measure(kernel, against, _MIN_TIME, seed, threads)
    for reading in counts:
        click.echo(f"counted  {reading}")
    if speed:
        click.echo(f"speed    {_speed(speed)}")
    click.echo(f"proof    {made.proof}")
    if speed:
        speed.warn()


def _save_source(kernel: Kernel) -> Path:
    """Write the C next to the library built from it. Return its path."""
    library = kernel.library
    path = library.with_name(f"{kernel.program.name}-{library.stem[:12]}.c")
    write_file(path, kernel.source.encode())
    return path


def _verdict(report: CheckReport) -> str:
    worst = max(report.results, key=lambda result: result.error)
    compared = sum(result.reference is not None for result in report.results)
    largest = f"the largest error is {worst.error:.3f} of its bound ({worst.name})" if worst.error else "all exact"
    parts = f", each on one of {report.slices} slices of the result" if report.slices > 1 else ""
    return f"on {len(report.results)} data sets by numpy{parts}, and on {compared} of them by {REFERENCE}: {largest}"


def _speed(speed: Speed) -> str:
    threads = f" on {speed.report.threads} threads" if speed.report.threads > 1 else ""
    own = f"{duration(speed.report.best)} per call{threads}, {speed.report.rate}"
    return f"{own}; {speed.verdict}" if speed.verdict else own
