"""Smaller spaces to look for a first program in: few tile sizes, few layouts.

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

#: Tile sizes are powers of two of so many bits, besides those that kernels ask for: 1 and 4096, to 1, 4, 16 and so on.
_SIZE_BITS = (12, 4, 3, 2)
#: Layouts without strips, besides those that kernels ask for.
_PLAIN = 3


def narrowed(target: Target) -> list[Target]:
    """Return the target as search sees it in smaller spaces, coarse to fine: in parts of its own, if it is one."""

    def layouts(dtype: DType, rank: int) -> list[Layout]:
        offered = target.layouts(dtype, rank)
        found = [layout for layout in offered if not layout.has_strips]
        asked = (layout for layout in offered if _asked_for(layout, dtype, target))
        return [*found[:1], *found[1:][1 - _PLAIN :], *asked]

    few = attrs.evolve(target, info=attrs.evolve(target.info, layouts=layouts))
    # Powers of 8 are no powers of 4.
    parts = (bits for bits in _SIZE_BITS if bits > target.size_bits and bits % target.size_bits == 0)
    return [attrs.evolve(few, size_bits=bits) for bits in parts]


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


def shapes_below(logical: LogicalSpec, target: Target) -> int:
    """Return about how many shapes tiles of a Spec have, by which tables and bounds take long to make."""
    return math.prod(1 + len(tried_sizes(size, target)) for size in logical.shape)
