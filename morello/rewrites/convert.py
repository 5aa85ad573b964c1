"""convert: an operation on one data type instead of several, or on f32 instead of a smaller float."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.dtypes import I8, I32, U8, DType
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add
from morello.ir.ops.compose import Compose
from morello.ir.ops.constants import Constants
from morello.ir.ops.gather import Gather
from morello.ir.ops.move import Move
from morello.ir.ops.quantize import ToBytes
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import (
    BufferedPipelineRewrite,
    NewTensor,
    PipelinePlan,
    Stage,
    TensorPlace,
    row_major_places,
)


@attrs.frozen(cache_hash=True)
class Convert(BufferedPipelineRewrite[Operation]):
    """`convert to L1`: a reduction to bf16 or f16 runs in f32, in a new tensor, and is rounded at the end.

    For an elementwise operation on several integer types, operands of other types than the result's are converted to
    that type first, into new tensors.
    """

    keyword: ClassVar[str] = "convert"
    order: ClassVar[int] = 140
    example: ClassVar[Example] = Example(Add(), (2, 8), (U8, I8, I32))
    subject: ClassVar[str] = "reductions to floats smaller than f32 and for integers of several types"

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return bool(_converted(logical))

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        return row_major_places(target, next(iter(_converted(logical).values())), len(logical.shape))

    def pipelines(self, op: Operation, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        converted, declared = _converted(logical), op.operands(len(logical.shape))
        shapes = [one.shape(logical.shape) for one in declared]
        numbers = {operand: len(declared) + at for at, operand in enumerate(converted)}
        tensors = [NewTensor(declared[operand].name, shapes[operand], dtype) for operand, dtype in converted.items()]
        moves = [
            Stage(Move(), shapes[own], (new, own) if declared[own].writes else (own, new))
            for own, new in numbers.items()
        ]
        main = Stage(op, logical.shape, tuple(numbers.get(own, own) for own in range(len(declared))))
        yield PipelinePlan([main, *moves] if declared[min(numbers)].writes else [*moves, main], tensors)


def _converted(logical: LogicalSpec) -> dict[int, DType]:
    """Return the new type of each converted operand: results of a reduction, or inputs of other types."""
    op, rank = logical.op, len(logical.shape)
    declared = op.operands(rank)
    types = [state.dtype for state in logical.states]
    reads = [at for at, one in enumerate(declared) if not one.writes]
    writes = [at for at, one in enumerate(declared) if one.writes]
    if isinstance(op, (Compose, Constants, Gather, ToBytes)) or any(declared[at].reads for at in writes):
        return {}
    if op.reductions(rank):
        return {at: types[at].wide for at in writes if types[at].is_bits}
    if len(reads) > 1 and len(writes) == 1 and not (types[writes[0]].is_float or types[writes[0]].is_bool):
        return {at: types[writes[0]] for at in reads if not types[at].is_bool and types[at] != types[writes[0]]}
    return {}
