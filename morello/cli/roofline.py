"""Roofline plots of programs under the target's cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from morello.cli.figures import figures, save
from morello.errors import MorelloError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, cost_and_peak, walk
from morello.kernels.target import Target
from morello.report.balance import slowest


@attrs.frozen
class Point:
    """A part of a program.

    `intensity` is in FLOPs per byte of its operands in `level`, the slowest level of them, `rate` in FLOPs per cost.
    """

    name: str
    level: str
    intensity: float
    rate: float
    is_kernel: bool


def points(impl: Impl, target: Target) -> list[Point]:
    """Return the points of the whole program and of its moves and kernels with arithmetic, without duplicates."""
    return list(dict.fromkeys(_points(impl, target)))


def _points(impl: Impl, target: Target) -> Iterator[Point]:
    for place, node in enumerate(walk(impl)):
        assert not isinstance(node, Leaf)
        expansion, logical = node.expansion, node.spec.logical
        is_kernel = isinstance(expansion, KernelCall)
        if logical.flops and (place == 0 or is_kernel or isinstance(expansion, Alloc)):
            level = slowest([state.level for state in logical.states], target)
            touched = sum(int(one.bytes) for one in logical.operands if one.state.level == level)
            name = "program" if place == 0 else expansion.kernel if is_kernel else str(expansion.step)
            rate = logical.flops / cost_and_peak(node).cost
            yield Point(name, level, logical.flops / touched, rate, is_kernel)


def rates(target: Target) -> tuple[float, str]:
    """Return the factor from FLOPs per unit of cost to the displayed unit, and that unit."""
    if target.unit_seconds:
        return 1e-9 / target.unit_seconds, "GFLOP/s"
    if target.info.units_per_cycle:
        return target.info.units_per_cycle, "FLOP per cycle"
    return 1, "FLOP per unit of cost"


def draw(impl: Impl, target: Target, title: str, path: str) -> None:
    """Write a roofline of a finished program. Raises MorelloError without matplotlib, or without arithmetic."""
    made, found = figures(), points(impl, target)
    if not found:
        raise MorelloError(f"{impl.spec.logical.op} has no arithmetic to plot", "leave --plot out")
    figure = made.Figure(figsize=(10, 6), layout="constrained")
    plane = figure.add_subplot()
    _roofs(plane, found, target)
    scale, unit = rates(target)
    for number, one in enumerate(found, 1):
        place = (one.intensity, scale * one.rate)
        colour, shape = _colours(target)[one.level], "o" if one.is_kernel else "s"
        plane.plot(*place, shape, color=colour, label=f"{number} {one.name} ({one.level})")
        # Points often nearly coincide.
        plane.annotate(str(number), place, (5 + 9 * (number % 4), 5), textcoords="offset points", fontsize="x-small")
    plane.set(xscale="log", yscale="log", ylabel=unit, title=title)
    plane.set_xlabel("FLOP per byte of operands in the slowest level that a part touches")
    figure.legend(loc="outside right upper", fontsize="small")
    save(figure, path)


def _roofs(plane: Any, found: Sequence[Point], target: Target) -> None:
    """Draw the bandwidth of each level, up to the fastest kernel: the model has no peak of its own."""
    scale, _ = rates(target)
    peak = max(found, key=lambda one: (one.is_kernel, one.rate))
    slopes = {level.name: level.unit / level.hit_cost for level in target.levels if level.hit_cost}
    ridges = [peak.rate / slope for slope in slopes.values()]
    low = min([one.intensity for one in found] + ridges) / 4
    high = max([one.intensity for one in found] + ridges) * 4
    for level, slope in slopes.items():
        ends = [low, peak.rate / slope]
        plane.plot(ends, [scale * slope * end for end in ends], color=_colours(target)[level], label=level)
    plane.plot([low, high], [scale * peak.rate] * 2, color="gray", label=f"fastest kernel: {peak.name}")


def _colours(target: Target) -> dict[str, str]:
    return {level.name: f"C{place}" for place, level in enumerate(target.levels)}
