"""convert: an operation on one data type instead of several, or on f32 instead of bf16."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.dtypes import BF16, F32, DType
from morello.ir.ops.compose import Compose
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class Convert(BufferedPipelineRewrite):
    """`convert to L1`: bf16 results of a reduction are worked out as f32, in a new tensor, and rounded at the end.

    Of an operation on several integers, one value of each for every result, those of other types than the result are
    converted to its type first, into new tensors.
    """

    keyword: ClassVar[str] = "convert"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if converted := _converted(logical):
            for level, layout, vector in places(target, next(iter(converted.values())), len(logical.shape)):
                if layout == "row_major":
                    yield cls(level, layout, vector)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        converted = _converted(logical)
        if not converted:
            raise wrong_operation(self, "reductions to bf16 and for integers of several types", logical.op)
        declared = logical.op.operands(len(logical.shape))
        numbers = {operand: len(declared) + at for at, operand in enumerate(converted)}
        wanted = [
            NewTensor(declared[operand].name, declared[operand].shape(logical.shape), dtype)
            for operand, dtype in converted.items()
        ]
        moves = [
            Stage(Move(), declared[own].shape(logical.shape), (new, own) if declared[own].writes else (own, new))
            for own, new in numbers.items()
        ]
        main = Stage(logical.op, logical.shape, tuple(numbers.get(own, own) for own in range(len(declared))))
        yield PipelinePlan([main, *moves] if declared[min(numbers)].writes else [*moves, main], wanted)


def _converted(logical: LogicalSpec) -> dict[int, DType]:
    """Return the operands that are converted, and to which type: results of a reduction, or inputs beside others."""
    op, rank = logical.op, len(logical.shape)
    declared = op.operands(rank)
    types = [state.dtype for state in logical.states]
    reads = [at for at, one in enumerate(declared) if not one.writes]
    writes = [at for at, one in enumerate(declared) if one.writes]
    if isinstance(op, Compose) or any(declared[at].reads for at in writes):
        return {}
    if op.reductions(rank):
        return {at: F32 for at in writes if types[at] == BF16}
    if len(reads) > 1 and len(writes) == 1 and not types[writes[0]].is_float:
        return {at: types[writes[0]] for at in reads if types[at] != types[writes[0]]}
    return {}
