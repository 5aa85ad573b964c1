"""bufferize: intermediates of a Compose become tensors, its pieces a pipeline ([Kaufman2025] §2.4.4)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import ClassVar, Self

import attrs

from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose, Piece
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.unary import Relu
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import Example, argument, pending_dims
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class Bufferize(BufferedPipelineRewrite[Compose]):
    """`bufferize to L1 as row_major at [1]`: the output of operation 1 of a Compose becomes a tensor.

    Operations count from 0, the one that runs last. Without `at`, all intermediates become tensors. Those whose outputs
    are also outputs of the Compose are always cut, and write these.
    """

    keyword: ClassVar[str] = "bufferize"
    order: ClassVar[int] = 150
    example: ClassVar[Example] = Example(Compose.chain([Relu(), Matmul()], [3, 4]), (1, 2, 4, 3))
    takes: ClassVar[type[Operation]] = Compose
    at: tuple[int, ...] = argument(tuple, keyword="at", default=())

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        op = logical.op
        if not isinstance(op, Compose) or pending_dims(op, target) is not None:
            return
        dtypes = [state.dtype for state in logical.states]
        inner = range(1, len(op.stages))
        some = [_around_kernels(op, target)] if target.cuts_all else [(one,) for one in inner]
        for at in [(), *(one for one in some if 0 < len(one) < len(inner))]:
            cuts = cls(target.levels[-1].name, at=at).cuts(op)
            first = cuts[0] if cuts else 0
            rank = len(op.intermediate_shape(first, logical.shape))
            found = places(target, op.intermediate_dtype(first, dtypes), rank)
            # Without new tensors, all places are alike.
            for place in found if cuts else itertools.islice(found, 1):
                yield cls(*place, at)

    def cuts(self, op: Compose) -> list[int]:
        """Return the operations whose outputs become new tensors: not those of the Compose."""
        return sorted({*(self.at or range(1, len(op.stages)))} - {*op.outputs})

    def pipelines(self, op: Compose, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        dtypes = [state.dtype for state in logical.states]
        cuts = self.cuts(op)[::-1]
        numbers = {~one: len(logical.states) + position for position, one in enumerate(cuts)}
        stages = [
            Stage(piece.op, piece.shape(logical.shape), tuple(numbers.get(arg, arg) for arg in piece.args))
            for piece in _pieces(op, tuple(cuts))
        ]
        shapes = [op.intermediate_shape(one, logical.shape) for one in cuts]
        yield PipelinePlan(
            stages,
            [
                NewTensor(f"intermediate {one}", shape, op.intermediate_dtype(one, dtypes))
                for one, shape in zip(cuts, shapes, strict=True)
            ],
        )


def _around_kernels(op: Compose, target: Target) -> tuple[int, ...]:
    """Return the cuts that leave the largest pieces for which there are kernels, from the output on."""
    cuts, waiting = {*op.outputs}, [0, *op.outputs]
    while waiting:
        mine = next(
            stages
            for stages, piece in op.pieces_at(waiting.pop())
            if len(stages) == 1 or any(kernel.implements(piece) for kernel in target.kernels)
        )
        inputs = {~entry for stage in mine for entry in op.stages[stage].inputs if entry < 0 and ~entry not in mine}
        waiting += sorted(inputs - cuts)
        cuts |= inputs
    return tuple(sorted(cuts))


@cache
def _pieces(op: Compose, cuts: tuple[int, ...]) -> tuple[Piece, ...]:
    # The same for every shape and place of the new tensors.
    return op.cut(cuts)
