"""bufferize: intermediates of a Compose become tensors, its pieces a pipeline ([Kaufman2025] §2.4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.ops.compose import Compose, Piece
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import argument
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class Bufferize(BufferedPipelineRewrite):
    """`bufferize to L1 as row_major at [1]`: what operation 1 of a Compose makes becomes a tensor.

    The operations are counted from 0, the one that runs last. Without `at`, all intermediates become tensors.
    """

    keyword: ClassVar[str] = "bufferize"
    at: tuple[int, ...] = argument(tuple, keyword="at", default=())

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        op = logical.op
        if not isinstance(op, Compose):
            return
        dtypes = [state.dtype for state in logical.states]
        intermediates = range(1, len(op.stages))
        chosen = [(), *(((one,) for one in intermediates) if len(intermediates) > 1 else ())]
        for at in chosen:
            first = at[0] if at else 1
            rank = len(op.intermediate_shape(first, logical.shape))
            for level, layout, vector in places(target, op.intermediate_dtype(first, dtypes), rank):
                yield cls(level, layout, vector, at)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, Compose):
            raise Inapplicable(f"{op} has no intermediates", "`bufferize` is for a Compose")
        dtypes = [state.dtype for state in logical.states]
        cuts = sorted(set(self.at) or range(1, len(op.stages)), reverse=True)
        wanted = [
            NewTensor(
                f"intermediate {one}", op.intermediate_shape(one, logical.shape), op.intermediate_dtype(one, dtypes)
            )
            for one in cuts
        ]
        numbers = {~one: len(logical.states) + position for position, one in enumerate(cuts)}
        stages = [
            Stage(piece.op, piece.shape(logical.shape), tuple(numbers.get(arg, arg) for arg in piece.args))
            for piece in _pieces(op, tuple(cuts))
        ]
        yield PipelinePlan(stages, wanted)


@cache
def _pieces(op: Compose, cuts: tuple[int, ...]) -> tuple[Piece, ...]:
    # The same for every shape and place of the new tensors.
    return op.cut(cuts)
