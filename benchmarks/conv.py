"""Measure the speed of convolutions, compared with libraries.

    python benchmarks/conv.py [--suite NAME]... [--only NAME]... [--target NAME]... [--baseline NAME]... [--ttile]
                              [--threads N] [--seconds S] [--expansions N] [--db FILE] [--json] [--plot FILE]

Layers of networks: `yolo` and `resnet18` are those of [Tollenaere2021]. Each has plain operands, row major as
frameworks have them, and constant filters that all may pack beforehand, with images channels last. Libraries are those
of kernels.py, and XNNPACK; with plain operands, only those that pack nothing. ONNX Runtime's images are row major.
With constant filters, only those that pack them, and torch. `products` of 8 to 50 rows are Fig. 3 of [Tollenaere2021].
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from morello_baselines import native
from morello_baselines.native.base import Baseline
from morello_baselines.native.problems import Problem
from rich.table import Table

from harness import report
from harness.commands import run
from harness.contest import Contest, contest_options
from harness.layers import LAYERS, PRODUCTS, SUITES
from harness.measure import Result
from morello.cli.figures import figures

#: Seconds after which a search within a number of expansions is ended.
_PATIENCE = 600.0


@click.command()
@contest_options(SUITES, LAYERS, seconds=1.5)
@click.option("--ttile", is_flag=True, help="Measure programs of the mapper `ttile`, too, which find images padded.")
@click.option("--expansions", metavar="N", default=1_200_000, show_default=True, help="For each program of ours.")
def main(contest: Contest, ttile: bool, expansions: int) -> None:
    """Time programs and baselines in turn on the same layers."""
    targets = contest.targets
    ours = native.morello_runners(targets, contest.db, expansions) + (native.ttile_runners(targets) if ttile else [])
    results, limits = contest.run(LAYERS, ours, _PATIENCE, takes_part)
    for table in (*tables(results, limits, contest.threads), *rates(results, limits, contest.threads)):
        contest.console.print("", table)
    contest.finish(results, limits, draw)


def takes_part(baseline: Baseline, problem: Problem) -> bool:
    """Return True if a runner is one to compare with on a problem."""
    if baseline.runner.endswith(":TTile"):
        return problem.packed
    if baseline.ours:
        return True
    return baseline.packs or baseline.name.startswith("torch") if problem.packed else not baseline.packs


def tables(results: Sequence[Result], limits: Mapping[str, float], threads: int) -> Iterable[Table]:
    """Yield a table of convolutions for each program of ours and kind of operands, the least ratios first."""
    compared = [one for one in report.comparisons(results) if one.ours.problem.suite != PRODUCTS]
    for runner in dict.fromkeys(one.ours.runner for one in compared):
        for packed in (False, True):
            own = [one for one in compared if (one.ours.runner, one.ours.problem.packed) == (runner, packed)]
            if not own:
                continue
            kind = "constant filters, against libraries that pack" if packed else "plain operands"
            table = Table("layer", title=f"{runner}, {kind}", box=None, pad_edge=False, title_justify="left")
            for heading in ("time", "limit", "best baseline", "time of it", "ratio", "gap", "search"):
                table.add_column(heading, justify="right")
            for one in sorted(own, key=lambda one: one.ratio):
                facts = one.ours.facts
                table.add_row(
                    one.ours.problem.name,
                    report.duration(one.ours.best),
                    f"{report.percent(one.ours, limits, threads):.0f} %",
                    one.baseline.runner,
                    report.duration(one.baseline.best),
                    f"{one.ratio:.2f}",
                    f"{facts['gap']:.1%}" if "gap" in facts else "–",
                    f"{facts['search_seconds']:.1f} s",
                )
            for suite in dict.fromkeys(one.ours.problem.suite for one in own):
                part = [one for one in own if one.ours.problem.suite == suite]
                table.add_row(f"{suite}, geometric mean of {len(part)}", *[""] * 4, f"{report.mean_ratio(part):.2f}")
            table.add_row(f"geometric mean of {len(own)}", *[""] * 4, f"{report.mean_ratio(own):.2f}")
            yield table


def rates(results: Iterable[Result], limits: Mapping[str, float], threads: int) -> Iterable[Table]:
    """Yield the table of products: mean, least and deviation of the percent of the limit of each runner."""
    own = [one for one in results if one.problem.suite == PRODUCTS and one.seconds]
    if not own:
        return
    table = Table("runner", title="products, percent of the limit", box=None, pad_edge=False, title_justify="left")
    for heading in ("mean", "least", "σ", "worst rows"):
        table.add_column(heading, justify="right")
    for runner in dict.fromkeys(one.runner for one in own):
        rates = percents(own, runner, limits, threads)
        mean, least, deviation = spread([*rates.values()])
        worst = ", ".join(sorted(rates, key=lambda name: rates[name])[:5]).replace("rows ", "")
        table.add_row(runner, f"{mean:.1f}", f"{least:.1f}", f"{deviation:.1f}", worst)
    yield table


def percents(own: Iterable[Result], runner: str, limits: Mapping[str, float], threads: int) -> dict[str, float]:
    """Return the percent of the limit that a runner reaches, by problem."""
    return {one.problem.name: report.percent(one, limits, threads) for one in own if one.runner == runner}


def spread(rates: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean, the least and the standard deviation."""
    return statistics.mean(rates), min(rates), statistics.pstdev(rates)


def draw(results: Sequence[Result], limits: Mapping[str, float], threads: int, path: str) -> None:
    """Draw two panels for each suite and kind of operands: percents of the limit, and the searches of our programs.

    Bars are layers, lines products; above the seconds of a search stands its gap in percent.
    """
    rows: dict[str, list[Result]] = {}
    for one in results:
        if one.seconds:
            kind = ", constant filters" if one.problem.packed else ""
            rows.setdefault(one.problem.suite + kind, []).append(one)
    figure = figures().Figure(figsize=(20, 3.2 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots(max(1, len(rows)), 2, squeeze=False, width_ratios=(3, 2))
    for (title, own), (speeds, searches) in zip(rows.items(), axes, strict=False):
        names, runners = [*dict.fromkeys(one.problem.name for one in own)], [*dict.fromkeys(one.runner for one in own)]
        lines = own[0].problem.suite == PRODUCTS
        rates = {runner: percents(own, runner, limits, threads) for runner in runners}
        _draw_values(speeds, names, rates, lines)
        speeds.set(title=title, ylabel="percent of the limit", ylim=(0, None))
        searched = [one for one in own if "search_seconds" in one.facts]
        seconds = {one.runner: dict[str, float]() for one in searched}
        for one in searched:
            seconds[one.runner][one.problem.name] = one.facts["search_seconds"]
        _draw_values(searches, names, seconds, lines)
        searches.set(title="search, gap in percent", ylabel="seconds of CPU", ylim=(0, None))
        for one in searched:
            if one.facts.get("gap") and not lines:
                place = _place(names, one.problem.name, [*seconds].index(one.runner), len(seconds))
                text = f" {100 * one.facts['gap']:.1f}"
                searches.text(place, one.facts["search_seconds"], text, rotation=90, fontsize=5, va="bottom")
    figure.savefig(path)


def _draw_values(panel: Any, names: list[str], values: Mapping[str, Mapping[str, float]], lines: bool) -> None:
    """Draw the values of each runner by problem, as lines or as bars beside one another."""
    for number, (runner, own) in enumerate(values.items()):
        if lines:
            panel.plot(list(own), list(own.values()), label=runner)
        else:
            places = [_place(names, name, number, len(values)) for name in own]
            panel.bar(places, list(own.values()), 0.8 / len(values), align="edge", label=runner)
    panel.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    panel.grid(axis="y", linewidth=0.3)
    if values:
        panel.legend(fontsize=7, ncols=4)


def _place(names: list[str], name: str, number: int, runners: int) -> float:
    """Return where the bar of a runner begins."""
    return names.index(name) + (number - runners / 2) * 0.8 / runners


if __name__ == "__main__":
    run(main)
