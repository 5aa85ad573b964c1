"""Smaller spaces to look for a first program in: few tile sizes, few layouts, fewer levels.

Each program there is one of the target's own, at the same cost, so that the cheapest of them bounds all that search has
to look at. That there is none, or what they cost at least, says nothing.
"""

from __future__ import annotations

import math

import attrs

from morello.ir.dtypes import DType
from morello.ir.layout import Layout
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import tried_sizes

#: Tile sizes are 1, 8, 64 and so on, besides those that kernels ask for.
_SIZE_BITS = 3


def narrowed(target: Target) -> list[Target]:
    """Return the target as search sees it in smaller spaces, each of which has all that is in the one before."""
    bypassed, small = _bypassed(target), _small(target, plain=3)
    return [*([attrs.evolve(_small(target, plain=2), bypassed=bypassed)] if bypassed else []), small]


def _small(target: Target, plain: int) -> Target:
    """Return the target with few tile sizes and so many layouts without strips, besides those that kernels ask for."""

    def layouts(dtype: DType, rank: int) -> list[Layout]:
        offered = target.layouts(dtype, rank)
        found = [layout for layout in offered if not layout.has_strips]
        asked = (layout for layout in offered if _asked_for(layout, dtype, target))
        return [*found[:1], *found[1:][1 - plain :], *asked]

    return attrs.evolve(target, size_bits=_SIZE_BITS, info=attrs.evolve(target.info, layouts=layouts))


def _asked_for(layout: Layout, dtype: DType, target: Target) -> bool:
    """Return True for strips that a kernel asks for by name; it does not name dimensions that are always 1."""
    return any(
        wanted.has_strips
        and wanted.dims == tuple(one for one in layout.dims if one.dim in {each.dim for each in wanted.dims})
        for kernel in target.kernels
        for pattern in kernel.operands
        for wanted in pattern.layouts
        if dtype.name in pattern.dtypes
    )


def _bypassed(target: Target) -> frozenset[str]:
    """Return the levels that moves can do without: whatever leads there leads on as well."""
    before = {
        level.name: [other for other in target.levels if level.name in other.destinations and other is not level]
        for level in target.levels
    }
    return frozenset(
        level.name
        for level in target.levels
        if not level.is_register
        and before[level.name]
        and all({*level.destinations} <= {*other.destinations} for other in before[level.name])
    )


def shapes_below(logical: LogicalSpec, target: Target) -> int:
    """Return about how many shapes tiles of a Spec have, by which tables and bounds take long to make."""
    return math.prod(1 + len(tried_sizes(size, target)) for size in logical.shape)
