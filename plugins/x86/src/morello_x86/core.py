"""Cores of x86-64: their memory levels, and the layouts that search may use. Costs are in tenths of a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from morello.ir.dtypes import F32, DType
from morello.ir.layout import Layout, Packed, col_major, nchwc, nhwc, row_major, with_strips
from morello.plugins import MemoryLevel

LINE = 64
#: The unit of costs.
COST_UNIT, UNITS_PER_CYCLE = "tenths of a cycle", 10


def levels(registers: int, vectors: Sequence[int]) -> tuple[MemoryLevel, ...]:
    """Return the five levels of an x86-64 core.

    The L2 of this model is half of the real one: what streams by takes the other half. Bounds know nothing of its
    limit, which would cost search up to ten times the memory and loosens no bound that was seen. L1 is the least that
    these cores have; profiles know of more.
    """
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
            name="L1", kind="cache", capacity=32 << 10, unit=LINE, hit_cost=2, destinations=("L1", "RF", "VRF")
        ),
        MemoryLevel(
            name="L2",
            kind="cache",
            capacity=512 << 10,
            unit=LINE,
            hit_cost=15,
            miss_cost=5,
            destinations=("L2", "L1"),
            tracked=False,
        ),
        MemoryLevel(
            name="GL",
            kind="memory",
            capacity=2 << 30,
            unit=LINE,
            hit_cost=70,
            miss_cost=40,
            destinations=("GL", "L2", "L1"),
        ),
    )


def layouts(vectors: Sequence[int], f32_strips: Sequence[int]):
    """Return the layouts for buffers: both orders of the last two dimensions, alone or with one inner strip.

    Strips of f32 are `f32_strips` values long, as kernels ask for them; others are of 2 values or of a whole vector,
    and odd-even ones of two vectors. Bytes and values of 16 bits also lie in strips of so many rows as fill 4 bytes, by
    rows or by strips of columns. Images, of rank 4, are also laid out with channels last, and in strips of as many
    channels as a vector has values, but in no other strips.
    """

    def offered(dtype: DType, rank: int) -> list[Layout]:
        values = [size // dtype.bytes for size in vectors]
        if rank == 4:
            return [row_major(4), col_major(4), nhwc(4), *(nchwc(4, strip) for strip in values)]
        orders = [row_major(rank), col_major(rank)] if rank > 1 else [row_major(rank)]
        if dtype == F32:
            # Strips of columns are what register tiles read; no kernel asks for strips of rows.
            strips = with_strips(col_major(rank), f32_strips, [])[1:] if rank > 1 else ()
            # Sums of odd-even factors are odd-even, too.
            odd_even = (layout for order in orders for layout in with_strips(order, [], [2 * max(values)])[1:])
            return [*orders, *strips, *odd_even]
        packs = sorted({2, *values})
        found = [layout for order in orders for layout in with_strips(order, packs, [2 * size for size in values])]
        if rank > 1 and dtype.bytes < 4:
            found += _in_words(rank, 4 // dtype.bytes, f32_strips)
        return found

    return offered


def _in_words(rank: int, taken: int, strips: Sequence[int]) -> Iterator[Layout]:
    """Yield layouts in strips of so many rows, which multiply-adds take at once: by rows, and by strips of columns."""
    row, column = rank - 2, rank - 1
    if taken != 2:
        yield Layout((*row_major(rank).dims, Packed(row, taken)))
    for strip in strips:
        yield Layout((*col_major(rank).dims, Packed(column, strip), Packed(row, taken)))
