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

import click
from morello_baselines import native
from morello_baselines.native.problems import Problem
from rich.console import Console

from harness import report
from harness.commands import run
from harness.contest import available, contest, contest_options, free_cpus, missing_lines
from harness.crew import Worker
from harness.measure import Result
from harness.suite import PROBLEMS, SUITES


@click.command()
@contest_options(SUITES, PROBLEMS, seconds=4.0)
@click.option("--search-seconds", metavar="S", default=60.0, show_default=True, help="For each program of ours.")
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
    cpus = free_cpus(threads)
    workers = [
        Worker(one, cpus, threads) for one in (*native.morello_runners(available(target), db), *native.chosen(baseline))
    ]
    results: list[Result] = []
    limits: dict[str, float] = {}
    for problem, found, limits in contest(_problems(suite, only), workers, seconds, search_seconds, console):
        results += found
        console.print(report.table(problem, found, limits, threads), *report.absent(found), "", sep="\n")
    for line in (*report.limit_lines(limits), *report.summary(results), *missing_lines(workers)):
        console.print(line)
    if as_json:
        print(json.dumps({"limits": limits, "threads": threads, "results": [one.as_dict() for one in results]}))
    if plot:
        report.plot(results, limits, threads, plot)


def _problems(suites: tuple[str, ...], names: tuple[str, ...]) -> list[Problem]:
    wanted = [one for one in PROBLEMS.values() if one.suite in suites or one.name in names]
    return wanted or list(PROBLEMS.values())


if __name__ == "__main__":
    run(main)
