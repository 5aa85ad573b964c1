"""Measure the speed of the programs that search finds, compared with libraries.

    python benchmarks/kernels.py [--suite NAME]... [--only NAME]... [--target NAME]... [--baseline NAME]...
                                 [--threads N] [--seconds S] [--search-seconds S] [--db FILE] [--json] [--plot FILE]

Each runner is a persistent process; on each problem they run in turn until the time is up. All are pinned to one core
and timed by the CPU time of their thread; with several threads, by wall-clock time. Every result is compared with numpy
in float64 first. Baselines come from `pip install -r benchmarks/requirements.txt`, libxsmm and BLIS from Debian
(`apt install libxsmm-dev libblis-dev`); a missing one is reported in a line. TVM tunes for minutes and runs only by
name: `--baseline TVM`, or `--baseline ''` for all baselines.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence

import click
from morello_baselines import native
from morello_baselines.native.base import Baseline
from morello_baselines.native.problems import Problem
from rich.console import Console

from harness import report
from harness.commands import run
from harness.crew import Worker
from harness.measure import Result, measure
from harness.suite import PROBLEMS, SUITES
from morello.host import missing_features
from morello.plugins.registry import installed

_TARGETS = ("x86_avx2", "x86_avx512")
#: Asked before and after each problem, as clocks come and go.
_LIMITS = Baseline("limits", "limits", "any")


@click.command()
@click.option("--suite", metavar="NAME", multiple=True, type=click.Choice(SUITES), help="Only this suite; repeatable.")
@click.option("--only", metavar="NAME", multiple=True, type=click.Choice(list(PROBLEMS)), help="Only this problem.")
@click.option("--target", metavar="NAME", multiple=True, help="Only this target of ours; repeatable.")
@click.option(
    "--baseline",
    metavar="NAME",
    multiple=True,
    help="Only baselines with this prefix; TVM takes part only by name.",
)
@click.option("--threads", metavar="N", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", metavar="S", type=click.FloatRange(0), default=4.0, show_default=True, help="A problem.")
@click.option("--search-seconds", metavar="S", default=60.0, show_default=True, help="For each program of ours.")
@click.option("--db", metavar="FILE", default="", help="Database for solved Specs.  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--plot", metavar="FILE", help="Draw the percent of the limit.")
def main(
    suite: tuple[str, ...],
    only: tuple[str, ...],
    target: tuple[str, ...],
    baseline: tuple[str, ...],
    threads: int,
    seconds: float,
    search_seconds: float,
    db: str,
    as_json: bool,
    plot: str | None,
) -> None:
    """Time programs and baselines in turn on the same problems."""
    console = Console(stderr=as_json, width=160)
    cpus = _cpus(threads)
    workers = [
        Worker(one, cpus, threads) for one in (*native.morello_runners(_targets(target), db), *native.chosen(baseline))
    ]
    limiter = Worker(_LIMITS, cpus[:1], 1)
    results: list[Result] = []
    limits: dict[str, float] = {}
    try:
        for problem in _problems(suite, only):
            limiter.ask(60.0)
            with console.status("") as status:
                found = measure(
                    problem,
                    workers,
                    seconds,
                    search_seconds,
                    lambda doing, name=problem.name: status.update(f"{name}: {doing}"),
                )
            results += found
            limits = limiter.ask(60.0).get("limits", {})
            console.print(report.table(problem, found, limits, threads), *report.absent(found), "", sep="\n")
    finally:
        for worker in (*workers, limiter):
            worker.stop()
    for line in (*_limit_lines(limits), *report.summary(results), *_missing_lines(workers)):
        console.print(line)
    if as_json:
        print(json.dumps({"limits": limits, "threads": threads, "results": [one.as_dict() for one in results]}))
    if plot:
        report.plot(results, limits, threads, plot)


def _limit_lines(limits: Mapping[str, float]) -> list[str]:
    units = {name: "GB/s" if name.startswith("read") else "GFLOP/s" for name in limits}
    return [f"{name}: {limit:,.1f} {units[name]}" for name, limit in limits.items()]


def _missing_lines(workers: Sequence[Worker]) -> list[str]:
    return [f"{one.baseline.name}: {one.missing}" for one in workers if one.missing]


def _problems(suites: tuple[str, ...], names: tuple[str, ...]) -> list[Problem]:
    wanted = [one for one in PROBLEMS.values() if one.suite in suites or one.name in names]
    return wanted or list(PROBLEMS.values())


def _targets(asked: tuple[str, ...]) -> list[str]:
    """Return the targets that this machine can run. Raises MorelloError for one asked for that does not exist."""
    return [name for name in asked or _TARGETS if not missing_features(installed().target(name).info.cpu_features)]


def _cpus(threads: int) -> list[int]:
    """Return the CPUs to run on, the last ones first: the first one does the system's work."""
    free = sorted(os.sched_getaffinity(0), reverse=True)
    if threads > len(free):
        raise click.BadParameter(f"there are {len(free)} CPUs", param_hint="--threads")
    return free[:threads]


if __name__ == "__main__":
    run(main)
