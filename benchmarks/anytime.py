"""Measure how soon a search has a program, and its proven distance from the optimum.

    python benchmarks/anytime.py [--only NAME]... [--suite NAME]... [--target NAME]... [--seconds 60]
                                 [--json] [--plot FILE]

Each Spec is searched in its own process, one at a time, without a database. Seconds are CPU time from the start of the
process. Specs that miss the aim come first: a program within 10 s that costs at most 5 % more than the optimum. Ctrl-C
prints the measurements so far.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import click
from rich.console import Console
from rich.table import Table

from harness import courses
from harness.commands import run
from harness.courses import SOON, Course
from harness.specs import SPECS, SUITES
from morello.cli.figures import figures

TARGETS = ("x86_avx2", "x86_avx512")
#: What gaps are drawn between.
_LEAST, _MOST = 1e-4, 10.0


@click.command()
@click.option("--only", metavar="NAME", multiple=True, type=click.Choice(list(SPECS)), help="Only this Spec.")
@click.option("--suite", metavar="NAME", multiple=True, type=click.Choice(SUITES), help="Only this suite.")
@click.option("--target", metavar="NAME", multiple=True, help="Only this target; repeatable.")
@click.option("--seconds", metavar="N", type=click.FloatRange(1), default=60.0, show_default=True)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a line of JSON for each as soon as it is measured, with every moment at which something changed.",
)
@click.option("--plot", metavar="FILE", help="Draw gaps over time.")
@click.option("--search", "searched", nargs=3, hidden=True)
def main(
    only: tuple[str, ...],
    suite: tuple[str, ...],
    target: tuple[str, ...],
    seconds: float,
    as_json: bool,
    plot: str | None,
    searched: tuple[str, str, str] | None,
) -> None:
    """Measure how searches go that may end at any time."""
    if searched:
        courses.search(searched[0], searched[1], float(searched[2]))
        return
    console = Console(stderr=True, highlight=False)
    chosen = [one for one in SPECS.values() if (not only or one.name in only) and (not suite or one.suite in suite)]
    pairs = [(one, name) for name in target or TARGETS for one in chosen]
    measured: list[Course] = []
    try:
        for number, (one, name) in enumerate(pairs):
            with console.status(f"{number} of {len(pairs)} done: {one.name} on {name}"):
                measured.append(courses.measure(one, name, seconds))
            if as_json:
                print(json.dumps(measured[-1].as_dict(), ensure_ascii=False), flush=True)
    except KeyboardInterrupt:
        console.print(f"ended after {len(measured)} of {len(pairs)}")
    if not as_json:
        Console(width=140, highlight=False).print(_table(measured), *courses.summary(measured), sep="\n")
    if plot:
        _plot(measured, plot)


def _table(measured: Sequence[Course]) -> Table:
    """Return a row for each search, misses first, and of these the worst first."""
    table = Table("Spec", "target", box=None, pad_edge=False, header_style="bold")
    for heading in ("set-up", "program", f"gap at {SOON:g} s", "gap", "proof", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("")
    for course in sorted(measured, key=lambda course: (not course.miss, -course.after(SOON).gap if course.miss else 0)):
        table.add_row(
            course.name,
            course.target,
            _seconds(course.setup),
            _seconds(course.first),
            _percent(course.after(SOON).gap),
            _percent(course.after(math.inf).gap),
            _seconds(course.proof),
            f"{course.memory / 2**20:,.0f} MiB",
            "infeasible" if course.end == "none" else course.miss,
        )
    return table


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _percent(gap: float) -> str:
    return "–" if gap == math.inf else f"{gap:.1%}"


def _plot(measured: Sequence[Course], path: str) -> None:
    """Draw a panel for each target: a step of each search where its gap changed. Raises MorelloError."""
    targets = [*dict.fromkeys(course.target for course in measured)]
    figure = figures().Figure(figsize=(5 * max(1, len(targets)), 4), layout="constrained")
    for place, target in enumerate(targets):
        panel = figure.add_subplot(1, len(targets), place + 1)
        for course in (each for each in measured if each.target == target and each.end != "none"):
            shown = [
                (each.seconds, min(max(each.gap, _LEAST), _MOST)) for each in course.moments if each.high < math.inf
            ]
            shown += [(course.seconds, shown[-1][1])] if shown else []
            panel.step(*zip(*shown, strict=True) if shown else ([], []), where="post", linewidth=0.8, alpha=0.6)
        panel.axvline(SOON, color="black", linewidth=0.5)
        panel.axhline(courses.CLOSE, color="black", linewidth=0.5)
        panel.set(xscale="log", yscale="log", title=target, ylim=(_LEAST / 2, 2 * _MOST))
    figure.supxlabel("processor seconds")
    figure.supylabel(f"gap ({_LEAST:g}: {_LEAST:.2%} or less)")
    figure.savefig(path)


if __name__ == "__main__":
    run(main)
