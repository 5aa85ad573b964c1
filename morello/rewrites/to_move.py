"""to_move: operations that copy parts of tensors are Moves between views of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from morello.ir.numbers import Num, partition
from morello.ir.ops.base import Operation
from morello.ir.ops.move import Move, OnePrefix
from morello.ir.ops.views import Concat, Slice, Transpose, ViewedCopy
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import DimMap, Every, Only
from morello.kernels.machine import Machine
from morello.rewrites.base import Example, select_cells
from morello.rewrites.pipeline import PipelinePlan, PipelineRewrite, Stage


@attrs.frozen(cache_hash=True)
class ToMove(PipelineRewrite[Operation]):
    """`to_move`: OnePrefix, Transpose and Slice as a Move, Concat as a Move for each input, between views."""

    keyword: ClassVar[str] = "to_move"
    order: ClassVar[int] = 30
    example: ClassVar[Example] = Example(OnePrefix(), (4, 8))
    subject: ClassVar[str] = "OnePrefix, Transpose, Slice and Concat"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, (OnePrefix, ViewedCopy))

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        # Tiles of the Moves are the same.
        return () if isinstance(op, ViewedCopy) else None

    def pipelines(self, op: Operation, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        same = tuple(range(len(logical.shape)))
        if isinstance(op, Slice):
            # One value along a dimension has another view than several.
            for singles, cells in partition([(size == 1) * 1 for size in logical.shape]):
                source = tuple(map(part_of, same, singles, *op.lists(len(same))))
                yield PipelinePlan([_move(select_cells(logical, cells).shape, (0, 1), source, same)], cells=cells)
        elif isinstance(op, Concat):
            yield PipelinePlan([*_pieces(op, logical.shape)])
        elif isinstance(op, Transpose):
            yield PipelinePlan([_move(logical.shape, (0, 1), op.order_of(len(same)), same)])
        else:
            yield PipelinePlan([_move(logical.shape, (0, 1), same, tuple(dim + 1 for dim in same))])


def _move(shape: Sequence[Num], args: tuple[int, int], source: DimMap, out: DimMap) -> Stage:
    return Stage(Move(), tuple(shape), args, (source, out))


def part_of(dim: int, single: int, start: int, step: int, rest: int) -> int | Every | Only:
    """Return some values of a dimension as one of a view: a `single` one, or several, with `rest` values after them."""
    if single:
        return Only(dim, start) if start or rest else dim
    return Every(dim, step, start) if start or rest or step > 1 else dim


def _pieces(op: Concat, shape: Sequence[Num]) -> Iterator[Stage]:
    """Yield the Move of each input to its part of the output."""
    rank, axis = len(shape), op.axis(len(shape))
    same = tuple(range(rank))
    for number, (size, start) in enumerate(zip(op.sizes, op.starts, strict=True)):
        rest = sum(op.sizes) - start - size
        part = part_of(axis, int(size == 1), start, 1, rest)
        out = (*same[:axis], part, *same[axis + 1 :])
        yield _move((*shape[:axis], size, *shape[axis + 1 :]), (number, len(op.sizes)), same, out)
