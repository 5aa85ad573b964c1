"""Rooflines of programs under the target's cost model."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from morello.errors import MorelloError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, cost_and_peak, walk
from morello.kernels.target import Target
from morello.report.balance import slowest


@attrs.frozen
class RooflinePoint:
    """A part of a program.

    `intensity` is in FLOPs per byte of its operands in `level`, the slowest level of them, `rate` in FLOPs per cost.
    """

    name: str
    level: str
    intensity: float
    rate: float
    is_kernel: bool


@attrs.frozen
class Roofline:
    """The whole program, and its moves and kernels with arithmetic, without duplicates.

    `levels` are those of the target. `scale` converts rates to `unit`. `slopes` are bytes per cost of
    each level with a cost of hits.
    """

    points: tuple[RooflinePoint, ...]
    levels: tuple[str, ...]
    slopes: dict[str, float]
    scale: float
    unit: str


def roofline(impl: Impl, target: Target) -> Roofline:
    """Return the roofline of a finished program. Raises MorelloError without arithmetic."""
    points = tuple(dict.fromkeys(_points(impl, target)))
    if not points:
        raise MorelloError(f"{impl.spec.logical.op} has no arithmetic to plot", "leave --plot out")
    slopes = {level.name: level.unit / level.hit_cost for level in target.levels if level.hit_cost}
    return Roofline(points, tuple(level.name for level in target.levels), slopes, *_scale(target))


def _points(impl: Impl, target: Target) -> Iterator[RooflinePoint]:
    for place, node in enumerate(walk(impl)):
        assert not isinstance(node, Leaf)
        expansion, logical = node.expansion, node.spec.logical
        is_kernel = isinstance(expansion, KernelCall)
        if logical.flops and (place == 0 or is_kernel or isinstance(expansion, Alloc)):
            level = slowest([state.level for state in logical.states], target)
            touched = sum(int(one.bytes) for one in logical.operands if one.state.level == level)
            name = "program" if place == 0 else expansion.kernel if is_kernel else str(expansion.step)
            rate = logical.flops / cost_and_peak(node).cost
            yield RooflinePoint(name, level, logical.flops / touched, rate, is_kernel)


def _scale(target: Target) -> tuple[float, str]:
    """Return the factor from FLOPs per unit of cost to the displayed unit, and that unit."""
    if target.unit_seconds:
        return 1e-9 / target.unit_seconds, "GFLOP/s"
    if target.info.units_per_cycle:
        return target.info.units_per_cycle, "FLOP per cycle"
    return 1, "FLOP per unit of cost"
