"""Runs workers on problems in turn, on CPUs and targets that this machine has."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import click
from morello_baselines.native.base import Baseline
from morello_baselines.native.problems import Problem
from rich.console import Console

from harness.crew import Worker
from harness.measure import Result, measure
from morello.host import missing_features
from morello.plugins.registry import installed

_TARGETS = ("x86_avx2", "x86_avx512")
#: Asked before and after each problem, as clocks come and go.
_LIMITS = Baseline("limits", "limits", "any")

Command = TypeVar("Command", bound=Callable[..., object])


def contest_options(suites: Sequence[str], problems: Iterable[str], seconds: float) -> Callable[[Command], Command]:
    """Return the decorator that gives a command the options of all contests; by default, a problem takes `seconds`."""
    names = [*problems]
    shared = (
        click.option("--suite", metavar="NAME", multiple=True, type=click.Choice(suites), help="Only this suite."),
        click.option("--only", metavar="NAME", multiple=True, type=click.Choice(names), help="Only this problem."),
        click.option("--target", metavar="NAME", multiple=True, help="Only this target of ours; repeatable."),
        click.option(
            "--baseline",
            metavar="NAME",
            multiple=True,
            help="Only baselines with this prefix; TVM takes part only by name.",
        ),
        click.option("--threads", metavar="N", type=click.IntRange(1), default=1, show_default=True),
        click.option(
            "--seconds", metavar="S", type=click.FloatRange(0), default=seconds, show_default=True, help="A problem."
        ),
        click.option("--db", metavar="FILE", default="", help="Database for solved Specs.  [default: none]"),
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--plot", metavar="FILE", help="Draw the percent of the limit."),
    )

    def decorated(command: Command) -> Command:
        for option in reversed(shared):
            command = option(command)
        return command

    return decorated


def contest(
    problems: Iterable[Problem],
    workers: Sequence[Worker],
    seconds: float,
    patience: float,
    console: Console,
    takes_part: Callable[[Baseline, Problem], bool] = lambda baseline, problem: True,
) -> Iterator[tuple[Problem, list[Result], dict[str, float]]]:
    """Yield each problem with its results and the limits of the core so far. The workers end with the last one."""
    limiter = Worker(_LIMITS, free_cpus(1), 1)
    try:
        for problem in problems:
            limiter.ask(60.0)
            own = [one for one in workers if takes_part(one.baseline, problem)]
            with console.status("") as status:

                def show(doing: str, name: str = problem.name) -> None:
                    status.update(f"{name}: {doing}")

                found = measure(problem, own, seconds, patience, show)
            yield problem, found, limiter.ask(60.0).get("limits", {})
    finally:
        for worker in (*workers, limiter):
            worker.stop()


def missing_lines(workers: Iterable[Worker]) -> list[str]:
    """Return a line for each runner that is not installed, with the reason."""
    return [f"{one.baseline.name}: {one.missing}" for one in workers if one.missing]


def available(asked: Sequence[str]) -> list[str]:
    """Return the targets that this machine can run. Raises MorelloError for one asked for that does not exist."""
    return [name for name in asked or _TARGETS if not missing_features(installed().target(name).info.cpu_features)]


def free_cpus(threads: int) -> list[int]:
    """Return the CPUs to run on, the last ones first: the first one does the system's work."""
    free = sorted(os.sched_getaffinity(0), reverse=True)
    if threads > len(free):
        raise click.BadParameter(f"there are {len(free)} CPUs", param_hint="--threads")
    return free[:threads]
