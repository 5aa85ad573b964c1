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

import click
from morello_baselines import native

from harness import report
from harness.commands import run
from harness.contest import Contest, contest_options
from harness.suite import PROBLEMS, SUITES


@click.command()
@contest_options(SUITES, PROBLEMS, seconds=4.0)
@click.option("--search-seconds", metavar="S", default=60.0, show_default=True, help="For each program of ours.")
def main(contest: Contest, search_seconds: float) -> None:
    """Time programs and baselines in turn on the same problems."""
    ours = native.morello_runners(contest.targets, contest.db)
    results, limits = contest.run(PROBLEMS, ours, search_seconds)
    for line in report.summary(results):
        contest.console.print(line)
    contest.finish(results, limits, report.plot)


if __name__ == "__main__":
    run(main)
