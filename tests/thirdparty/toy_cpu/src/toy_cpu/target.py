"""The memory levels, layouts and weights of the toy CPU."""

from __future__ import annotations

from morello.plugins import DType, Layout, MemoryLevel, TargetInfo, Weights, col_major, row_major

NAME = "toy_cpu"
LINE = 32
#: The CPU's aligned accesses want addresses that are multiples of this.
ALIGNMENT = 16

LEVELS = (
    MemoryLevel(name="R", kind="scalar", capacity=8 * 4, unit=4),
    MemoryLevel(
        name="C",
        kind="cache",
        capacity=8 << 10,
        unit=LINE,
        hit_cost=3,
        destinations=("C", "R"),
        alignment=ALIGNMENT,
    ),
    MemoryLevel(
        name="MEM",
        kind="memory",
        capacity=64 << 20,
        unit=LINE,
        hit_cost=30,
        miss_cost=20,
        destinations=("C",),
        alignment=ALIGNMENT,
    ),
)


def layouts(dtype: DType, rank: int) -> list[Layout]:
    """New buffers are row-major or column-major; a vector is the same in both."""
    return [row_major(rank), col_major(rank)] if rank > 1 else [row_major(rank)]


INFO = TargetInfo(name=NAME, description="a small CPU without vectors", layouts=layouts)
WEIGHTS = Weights(threads=2, sync=5_000)
