"""Tables of results: rates, ratios to the best baseline of a class, and misses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs
from morello_baselines.native.problems import Problem
from rich.table import Table

from harness.limits import FOOTPRINTS, VECTORS, multiply_adds, reading
from harness.measure import Result
from morello.cli.figures import figures

#: Below this, ours is a miss.
MISS = 0.9
#: From here on, the baseline has no kernel of its own for the problem, and the mean excludes it.
EMULATED = 10


@attrs.frozen
class Comparison:
    """A result of ours and of the best baseline of its class."""

    ours: Result
    baseline: Result

    @property
    def ratio(self) -> float:
        """Return how many times as fast as the baseline ours is, by least times."""
        return self.baseline.best / self.ours.best


def by_problem(results: Iterable[Result]) -> dict[Problem, list[Result]]:
    grouped: dict[Problem, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.problem, []).append(result)
    return grouped


def competes(baseline: Result, ours: Result) -> bool:
    """Return if the baseline is of our class and computed the problem."""
    return not baseline.ours and bool(baseline.seconds) and ours.group in ("any", baseline.group)


def ahead(baseline: Result) -> bool:
    """Return if the baseline packs weights before the clock starts, which the problem does not allow ours to do."""
    return baseline.packs and not baseline.problem.packed


def comparisons(results: Iterable[Result], packs: bool = False) -> list[Comparison]:
    """Return what can be compared, in the order of the results.

    Baselines that pack weights beforehand only count with `packs`, and then only problems with one of them.
    """
    compared = []
    for each in by_problem(results).values():
        for ours in (one for one in each if one.ours and one.seconds):
            baselines = [one for one in each if competes(one, ours) and (packs or not ahead(one))]
            if any(map(ahead, baselines)) if packs else baselines:
                compared.append(Comparison(ours, min(baselines, key=lambda one: one.best)))
    return compared


def mean_ratio(compared: Sequence[Comparison]) -> float:
    """Return the geometric mean of ratios."""
    return math.exp(sum(math.log(one.ratio) for one in compared) / len(compared))


def misses(compared: Iterable[Comparison]) -> list[Comparison]:
    """Return the comparisons below the aim, worst first."""
    return sorted((one for one in compared if one.ratio < MISS), key=lambda one: one.ratio)


def least_seconds(problem: Problem, group: str, limits: Mapping[str, float], threads: int) -> float | None:
    """Return the time below which no program of a class comes: all its multiply-adds, or reading all operands once."""
    vectors = [each for each in VECTORS if each == "avx2" or group != "avx2"]
    # Without instructions for them, bf16 are converted, and bytes summed in 16 bits.
    kinds = {"bf16": ("f32", "bf16"), "u8": ("bytes", "vnni")}.get(problem.types[0], ("f32",))
    fastest = [limits.get(multiply_adds(kind, each), 0) for each in vectors for kind in kinds]
    footprint = next((each for each in FOOTPRINTS if problem.bytes <= 2 * each), FOOTPRINTS[-1])
    widest = [limits.get(reading(footprint, each), 0) for each in vectors]
    if not max(fastest) or not max(widest):
        return None
    return max(problem.flops / max(fastest), problem.bytes / max(widest)) / 1e9 / threads


def rate(result: Result, seconds: float) -> float:
    """Return 10^9 operations a second; bytes where there are none."""
    return (result.problem.flops or result.problem.bytes) / seconds / 1e9


def duration(seconds: float) -> str:
    return f"{seconds * 1e6:,.3g} µs" if seconds < 1e-3 else f"{seconds * 1e3:,.3g} ms"


def table(problem: Problem, results: Sequence[Result], limits: Mapping[str, float], threads: int) -> Table:
    """Return the times of one problem, the least first: each one over those of ours, too, where they compete.

    Ratios of baselines that pack weights beforehand are in parentheses.
    """
    shown = Table(problem.name, "class", box=None, pad_edge=False, header_style="bold")
    against = [one for one in results if one.ours and one.seconds]
    ratios = [f"over {one.runner}" for one in against]
    for heading in ("least", "median", "GFLOP/s" if problem.flops else "GB/s", "limit", *ratios, "search"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("remarks", overflow="ellipsis", no_wrap=True)
    for result in sorted((one for one in results if one.seconds), key=lambda one: one.best):
        least = least_seconds(problem, result.group, limits, threads)
        shown.add_row(
            result.runner,
            result.group,
            duration(result.best),
            duration(result.median),
            f"{rate(result, result.best):,.1f}",
            f"{least / result.best:.0%}" if least else "–",
            *(_over(result, ours) for ours in against),
            f"{result.facts['search_seconds']:.1f} s" if "search_seconds" in result.facts else "–",
            result.note,
        )
    return shown


def _over(result: Result, ours: Result) -> str:
    if not competes(result, ours):
        return "–"
    shown = f"{result.best / ours.best:.2f}"
    return f"({shown})" if ahead(result) else shown


def absent(results: Iterable[Result]) -> list[str]:
    """Return a line for each reason that runners have for taking no part in a problem."""
    runners: dict[str, list[str]] = {}
    for result in results:
        if not result.seconds:
            runners.setdefault(result.why, []).append(result.runner)
    return [f"{why}: {', '.join(names)}" for why, names in runners.items()]


def summary(results: Sequence[Result]) -> list[str]:
    """Return a line for each program of ours, and one for each miss."""
    lines = []
    found, packing = comparisons(results), comparisons(results, packs=True)
    for runner in dict.fromkeys(one.runner for one in results if one.ours):
        own = [one for one in found if one.ours.runner == runner]
        none = [one for one in results if one.runner == runner and not one.seconds]
        counted = [one for one in own if one.ratio < EMULATED]
        if counted:
            mean = f"{mean_ratio(counted):.2f} of the best baseline"
            lines.append(f"{runner}: {mean} (geometric mean of {len(counted)} problems)")
        if harder := [one for one in packing if one.ours.runner == runner and one.ratio < EMULATED]:
            mean = f"{mean_ratio(harder):.2f} of the best baseline that may pack weights beforehand"
            lines.append(f"{runner}: {mean} (geometric mean of {len(harder)} problems)")
        without = [one for one in own if one.ratio >= EMULATED]
        lines += [
            f"  {one.ours.problem.name} {one.ratio:.0f} of {one.baseline.runner}, not in the mean" for one in without
        ]
        short = misses(own)
        lines.append(f"{runner}: {len(short)} below {MISS:g}, {len(none)} without a program")
        lines += [f"  {one.ours.problem.name} {one.ratio:.2f} of {one.baseline.runner}" for one in short]
        lines += [f"  {one.problem.name}: {one.why}" for one in none]
    return lines


def limit_lines(limits: Mapping[str, float]) -> list[str]:
    """Return a line for each limit of the core, with its unit."""
    units = {name: "GB/s" if name.startswith("read") else "GFLOP/s" for name in limits}
    return [f"{name}: {limit:,.1f} {units[name]}" for name, limit in limits.items()]


def plot(results: Sequence[Result], limits: Mapping[str, float], threads: int, path: str) -> None:
    """Draw the share of the core's limit of ours and the best baseline, by problem. Raises MorelloError."""
    groups = by_problem(results)
    ours = [*dict.fromkeys(one.runner for one in results if one.ours)]
    figure = figures().Figure(figsize=(max(8, 0.2 * len(groups)), 3 * max(1, len(ours))), layout="constrained")
    panels = figure.subplots(max(1, len(ours)), sharex=True, squeeze=False)[:, 0]
    names, every = [problem.name for problem in groups], comparisons(results)
    for runner, panel in zip(ours, panels, strict=False):
        compared = {one.ours.problem: one for one in every if one.ours.runner == runner}
        of_ours = [compared[each].ours if each in compared else None for each in groups]
        of_baselines = [compared[each].baseline if each in compared else None for each in groups]
        for label, own, style in ((runner, of_ours, "o"), ("best baseline", of_baselines, "_")):
            panel.plot(names, [percent(one, limits, threads) for one in own], style, label=label, mew=1.5)
        panel.set(ylabel="percent of the limit", ylim=(0, None))
        panel.grid(axis="y", linewidth=0.3)
        panel.legend(fontsize=7, ncols=2)
    panels[-1].tick_params(axis="x", rotation=90, labelsize=6)
    figure.savefig(path)


def percent(result: Result | None, limits: Mapping[str, float], threads: int) -> float:
    """Return the percent of the limit that a result reaches, NaN without one."""
    least = least_seconds(result.problem, result.group, limits, threads) if result else None
    return 100 * least / result.best if result and least else math.nan
