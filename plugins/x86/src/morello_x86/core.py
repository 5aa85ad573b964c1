"""Cores of x86-64: their memory levels, and the layouts that search may use."""

from __future__ import annotations

from collections.abc import Sequence

from morello.ir.dtypes import DType
from morello.ir.layout import Layout, col_major, nchwc, nhwc, row_major, with_strips
from morello.plugins import MemoryLevel

LINE = 64


def levels(registers: int, vectors: Sequence[int], l1_cost: int) -> tuple[MemoryLevel, ...]:
    """Return the four levels of an x86-64 core; the sizes are those of [Kaufman2025]'s implementation."""
    widest = max(vectors)
    return (
        MemoryLevel(name="RF", kind="scalar", capacity=16 * 4, unit=4, destinations=("RF",)),
        MemoryLevel(
            name="VRF",
            kind="vector",
            capacity=registers * widest,
            unit=widest,
            vectors=tuple(vectors),
            destinations=("VRF",),
        ),
        MemoryLevel(
            name="L1", kind="cache", capacity=64 << 10, unit=LINE, hit_cost=l1_cost, destinations=("L1", "RF", "VRF")
        ),
        MemoryLevel(name="GL", kind="memory", capacity=2 << 30, unit=LINE, hit_cost=20, destinations=("GL", "L1")),
    )


def layouts(vectors: Sequence[int]):
    """Return the layouts for buffers: both orders of the last two dimensions, alone or with one inner strip.

    Strips are of 2 values or of a whole vector; odd-even strips are of two vectors. Images, of rank 4, are also laid
    out with channels last, and in strips of as many channels as a vector has values, but in no other strips.
    """

    def offered(dtype: DType, rank: int) -> list[Layout]:
        values = [size // dtype.bytes for size in vectors]
        if rank == 4:
            return [row_major(4), col_major(4), nhwc(4), *(nchwc(4, strip) for strip in values)]
        packs = sorted({2, *values})
        orders = [row_major(rank), col_major(rank)] if rank > 1 else [row_major(rank)]
        return [layout for order in orders for layout in with_strips(order, packs, [2 * size for size in values])]

    return offered
