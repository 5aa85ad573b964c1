"""start: Find the best program of every Spec in FILE, check and time it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from morello import api
from morello.atomic_write import write_file
from morello.cli.common import (
    SearchOptions,
    as_group,
    cc_option,
    measured_option,
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
    print_sizes,
    warn_if_busy,
)
from morello.progress import Spinner
from morello.report.tables import print_table
from morello.report.tree import by_level, program_tree, tree_table
from morello.report.words import cost_words, duration, memory


@click.command("run")
@with_goals_of_sizes
@with_steps
@seed_option
@threads_option
@against_option
@cold_option
@measured_option
@cc_option
@runner_option
@as_group(TimingOptions, "timing")
def command(goals: Sequence[api.Goal], search: SearchOptions, timing: TimingOptions) -> None:
    """Find the best program of every Spec in FILE, verify it and time it.

    The parts that the Spec's schedule leaves open are searched. The program is built with a C compiler, checked against
    numpy and plain C, and its speed is compared with numpy's or that of the library --against, as by `morello bench`.
    If the target has metrics of its own, the program is measured by these.
    """
    search.check_tools(goals)
    for number, goal in enumerate(goals):
        if number:
            click.echo()
        _run(goal, search, timing)


def _run(goal: api.Goal, search: SearchOptions, timing: TimingOptions) -> None:
    click.echo(f"{goal.name} for {goal.target.label}:\n{goal.spec_lines}")
    print_sizes(goal)
    click.echo()
    made = make(goal, search)
    kernel = made.kernel
    print_table(*tree_table(program_tree(kernel.impl, goal.target), compact=True))
    cost = cost_words(kernel.cost, goal.target)
    click.echo(f"\ncost     {cost}; memory: {memory(by_level(kernel.peak, goal.target))}")
    click.echo(f"search   {made.story}")
    print_compiler(kernel, search)
    with Spinner(f"building {goal.name}"):
        source = _save_source(kernel)
    click.echo(f"C        {source}")
    if kernel.runner:
        click.echo(f"runner   {kernel.runner}")
    with Spinner(f"verifying {goal.name}"):
        report = kernel.check(timing.seed)
    click.echo(f"correct  {_verdict(report)}")
    counts = timing.readings(kernel)
    speed = None if counts else timing.speed(kernel)
    for reading in counts:
        click.echo(f"counted  {reading}")
    if speed:
        click.echo(f"speed    {_speed(speed)}")
    click.echo(f"proof    {made.proof}")
    if speed:
        warn_if_busy(speed)


def _save_source(kernel: api.Kernel) -> Path:
    """Write the C next to the library built from it. Return its path."""
    library = kernel.library
    path = library.with_name(f"{kernel.program.name}-{library.stem[:12]}.c")
    write_file(path, kernel.source.encode())
    return path


def _verdict(report: api.CheckReport) -> str:
    worst = max(report.results, key=lambda result: result.error)
    compared = sum(result.reference is not None for result in report.results)
    largest = f"the largest error is {worst.error:.3f} of its bound ({worst.name})" if worst.error else "all exact"
    parts = f", each on one of {report.slices} slices of the result" if report.slices > 1 else ""
    reference = f"on {compared} of them by {api.REFERENCE_NAME}"
    return f"on {len(report.results)} data sets by numpy{parts}, and {reference}: {largest}"


def _speed(speed: api.Speed) -> str:
    threads = f" on {speed.report.threads} threads" if speed.report.threads > 1 else ""
    own = f"{duration(speed.report.best)} per call{threads}, {speed.report.rate}"
    return f"{own}; {speed.verdict}" if speed.verdict else own
