"""Cores of x86-64: their memory levels, and the layouts that search may use. Costs are in tenths of a cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations

from morello.ir.dtypes import F32, DType
from morello.ir.layout import Dynamic, Layout, Packed, chwn, col_major, nchwc, nhwc, row_major, with_strips
from morello.ir.ops.matmul import Matmul
from morello.plugins import MemoryLevel, NewBuffer

LINE = 64
#: The unit of costs.
COST_UNIT, UNITS_PER_CYCLE = "tenths of a cycle", 10
#: Filters of groups with the groups side by side, as depthwise kernels read them.
_GROUPS_LAST = Layout(tuple(map(Dynamic, (1, 2, 3, 4, 0))))


def levels(registers: int, vectors: Sequence[int]) -> tuple[MemoryLevel, ...]:
    """Return the six levels of an x86-64 core.

    L3 is a core's share, for goals whose operands are there when they are called. No operand moves from memory to L3:
    programs that did were no faster, and search took 1.4 times as long. L1 and L2 are two thirds and half of those of
    recent cores: what streams by takes the rest. Bounds do not track the limits of L2 and L3, which would cost search
    up to ten times the memory and loosened no bound in measurements. The costs of memory lie between those measured on
    Zen 5 (58, 110) and Zen 4 (107, 211).
    """
    widest = max(vectors)
    cache = partial(MemoryLevel, kind="cache", unit=LINE)
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
        cache(name="L1", capacity=32 << 10, hit_cost=2, destinations=("L1", "RF", "VRF"), conflicts=True),
        cache(
            name="L2",
            capacity=512 << 10,
            hit_cost=15,
            miss_cost=5,
            destinations=("L2", "L1"),
            tracked=False,
            conflicts=True,
        ),
        cache(
            name="L3",
            capacity=16 << 20,
            hit_cost=25,
            miss_cost=5,
            start_cost=100,
            destinations=("L3", "L2", "L1"),
            tracked=False,
            divisions=4,
        ),
        MemoryLevel(
            name="GL",
            kind="memory",
            capacity=2 << 30,
            unit=LINE,
            hit_cost=80,
            miss_cost=150,
            start_cost=3000,
            destinations=("GL", "L2", "L1"),
        ),
    )


def layouts(vectors: Sequence[int], strips: Sequence[int]):
    """Return the layouts for buffers: the orders of up to three dimensions, and the strips that kernels read.

    These are `strips` of columns for register tiles; for bytes and values of 16 bits also strips of as many rows as a
    multiply-add takes, by rows or by strips of columns; and odd-even strips of f32 as long as two vectors, for dot
    products with interleaved bf16. Images, of rank 4, also have layouts with channels last and in strips as long as a
    vector; filters lie side by side, also in words of channels. With more dimensions, the last two are in both orders;
    filters of groups, of rank 5, also have the groups last.
    """

    def offered(dtype: DType, rank: int) -> list[Layout]:
        values = [size // dtype.bytes for size in vectors]
        if rank == 4:
            filters = [Layout((*map(Dynamic, (2, 3, 1, 0)), Packed(1, taken))) for taken in _taken(dtype)]
            return [row_major(4), col_major(4), nhwc(4), chwn(4), nchwc(4, max(values)), *filters]
        orders = [row_major(rank), col_major(rank)] if rank > 1 else [row_major(rank)]
        found = [*orders, *with_strips(col_major(rank), strips, [])[1:]] if rank > 1 else orders
        if dtype == F32:
            found += [one for order in orders for one in with_strips(order, [], [2 * max(values)])[1:]]
        else:
            words = _taken(dtype) if rank > 1 else []
            found += [layout for taken in words for layout in _in_words(rank, taken, strips)]
        more = map(Layout, permutations(row_major(rank).dims)) if rank == 3 else [_GROUPS_LAST] if rank == 5 else ()
        return [*dict.fromkeys((*found, *more))]

    return offered


def constants(strips: Sequence[int]):
    """Return the layouts for constants alone: filters in `strips`, position by position, as products read them.

    Those of groups, of rank 5, lie in such strips group by group, or have groups last.
    """

    def offered(dtype: DType, rank: int) -> list[Layout]:
        if rank not in (4, 5):
            return []
        group, filters = range(rank - 4), rank - 4
        order = (*group, filters, filters + 2, filters + 3, filters + 1)
        found = [Layout((*map(Dynamic, order), Packed(filters, strip))) for strip in strips]
        # Offered here, too, for restricted spaces, which have few of the others.
        return found if rank == 4 else [*found, _GROUPS_LAST]

    return offered


def offers(layout: Layout, buffer: NewBuffer) -> bool:
    """Return True for layouts without strips, and for strips where kernels read them.

    Products take one matrix of a batch at a time, in either order. Casts of what lies in order make odd-even strips;
    products read the others. Images are written in strips, too. Only filters have their groups last.
    """
    if not layout.has_strips:
        if layout == _GROUPS_LAST:
            return buffer.operand.name.startswith("filters")
        return not isinstance(buffer.op, Matmul) or layout.dims[0].dim == 0
    if any(one.odd_even for one in layout.dims):
        return buffer.cast
    if len(buffer.operand.dims) == 4:
        return layout.dims[-2].dim != 0 or buffer.operand.name == "filters"
    return not (buffer.operand.writes or buffer.op.moves_data)


def _taken(dtype: DType) -> list[int]:
    """Return how many values multiply-adds take at once: words of 4 bytes, and pairs."""
    return [taken for taken in (2, 4) if taken * dtype.bytes <= 4]


def _in_words(rank: int, taken: int, strips: Sequence[int]) -> Iterator[Layout]:
    """Yield layouts in strips of `taken` rows, which multiply-adds take at once: by rows, and by strips of columns."""
    row, column = rank - 2, rank - 1
    yield Layout((*row_major(rank).dims, Packed(row, taken)))
    for strip in strips:
        yield Layout((*col_major(rank).dims, Packed(column, strip), Packed(row, taken)))
