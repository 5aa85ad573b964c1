"""Runs workers on problems in turn, on CPUs and targets that this machine has."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import attrs
import click
from morello_baselines import native
from morello_baselines.native.base import Baseline
from morello_baselines.native.problems import Problem
from rich.console import Console

from harness import report
from harness.crew import Worker
from harness.measure import Result, measure
from morello.cli.common import Command, as_group, with_options
from morello.host import missing_features
from morello.plugins.registry import installed

_TARGETS = ("x86_avx2", "x86_avx512")
#: Asked before and after each problem, as clocks come and go.
_LIMITS = Baseline("limits", "limits", "any")

#: Draws results, with the limits of the core and the number of threads, to a file.
Draw = Callable[[Sequence[Result], Mapping[str, float], int, str], None]


@attrs.frozen
class Contest:
    """The options of a contest."""

    suite: tuple[str, ...]
    only: tuple[str, ...]
    target: tuple[str, ...]
    baseline: tuple[str, ...]
    threads: int
    seconds: float
    db: str
    as_json: bool
    plot: str | None

    @cached_property
    def console(self) -> Console:
        return Console(stderr=self.as_json, width=160)

    @property
    def targets(self) -> list[str]:
        """Return the targets that this machine can run. Raises MorelloError for one asked for that does not exist."""
        names = self.target or _TARGETS
        return [name for name in names if not missing_features(installed().target(name).info.cpu_features)]

    def run(
        self,
        problems: Mapping[str, Problem],
        ours: Sequence[Baseline],
        patience: float,
        takes_part: Callable[[Baseline, Problem], bool] = lambda baseline, problem: True,
    ) -> tuple[list[Result], dict[str, float]]:
        """Time our runners and baselines on the problems chosen, and print a table of each.

        Return the results and the limits of the core.
        """
        cpus = _free_cpus(self.threads)
        workers = [Worker(one, cpus, self.threads) for one in (*ours, *native.chosen(self.baseline))]
        chosen = [one for one in problems.values() if one.suite in self.suite or one.name in self.only]
        results: list[Result] = []
        limits: dict[str, float] = {}
        for problem, found, limits in self._measured(chosen or problems.values(), workers, patience, takes_part):
            results += found
            shown = report.table(problem, found, limits, self.threads)
            self.console.print(shown, *report.absent(found), "", sep="\n")
        missing = (f"{one.baseline.name}: {one.missing}" for one in workers if one.missing)
        for line in (*report.limit_lines(limits), *missing):
            self.console.print(line)
        return results, limits

    def _measured(
        self,
        problems: Iterable[Problem],
        workers: Sequence[Worker],
        patience: float,
        takes_part: Callable[[Baseline, Problem], bool],
    ) -> Iterator[tuple[Problem, list[Result], dict[str, float]]]:
        """Yield each problem with its results and the limits of the core so far. The workers end with the last one."""
        limiter = Worker(_LIMITS, _free_cpus(1), 1)
        try:
            for problem in problems:
                limiter.ask(60.0)
                own = [one for one in workers if takes_part(one.baseline, problem)]
                with self.console.status("") as status:

                    def show(doing: str, name: str = problem.name) -> None:
                        status.update(f"{name}: {doing}")

                    found = measure(problem, own, self.seconds, patience, show)
                yield problem, found, limiter.ask(60.0).get("limits", {})
        finally:
            for worker in (*workers, limiter):
                worker.stop()

    def finish(self, results: Sequence[Result], limits: Mapping[str, float], draw: Draw) -> None:
        """Print JSON and draw the results, if that is asked for."""
        if self.as_json:
            found = {"limits": limits, "threads": self.threads, "results": [one.as_dict() for one in results]}
            print(json.dumps(found))
        if self.plot:
            draw(results, limits, self.threads, self.plot)


def contest_options(suites: Sequence[str], problems: Iterable[str], seconds: float) -> Callable[[Command], Command]:
    """Return the decorator that adds the options of a Contest to a command, which is called with `contest`.

    By default, a problem takes `seconds`.
    """
    return with_options(
        click.option("--suite", metavar="NAME", multiple=True, type=click.Choice(suites), help="Only this suite."),
        click.option(
            "--only", metavar="NAME", multiple=True, type=click.Choice([*problems]), help="Only this problem."
        ),
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
        as_group(Contest, "contest"),
    )


def _free_cpus(threads: int) -> list[int]:
    """Return the CPUs to run on, the last ones first: the first one does the system's work."""
    free = sorted(os.sched_getaffinity(0), reverse=True)
    if threads > len(free):
        raise click.BadParameter(f"there are {len(free)} CPUs", param_hint="--threads")
    return free[:threads]
