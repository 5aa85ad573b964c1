"""The softmax families: offline (passes for maximum, denominator and result), online (statistics in one pass)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.ir.dtypes import widest
from morello.ir.ops.base import Operation
from morello.ir.ops.divide import DivideVecScalar
from morello.ir.ops.max import Max
from morello.ir.ops.softmax import Softmax, SoftmaxComplete, SoftmaxLike
from morello.ir.ops.softmax_parts import (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndUnscaled,
    SoftmaxDenominatorAndUnscaledFromMax,
)
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, PipelineRewrite, Stage


def _per_row(op: SoftmaxLike, logical: LogicalSpec, name: str) -> NewTensor:
    """Return a new tensor with one value per row, of f32 or f64."""
    axis = op.axis(len(logical.shape))
    shape = tuple(1 if dim == axis else size for dim, size in enumerate(logical.shape))
    return NewTensor(name, shape, widest(state.dtype for state in logical.states))


@attrs.frozen(cache_hash=True)
class ToSoftmaxParts(BufferedPipelineRewrite[Softmax]):
    """`to_softmax_parts to L1`: e^(x − max) goes to the output, its row sums to a new tensor that divides it."""

    keyword: ClassVar[str] = "to_softmax_parts"
    order: ClassVar[int] = 50
    example: ClassVar[Example] = Example(Softmax(dim=1), (4, 8))
    takes: ClassVar[type[Operation]] = Softmax

    def pipelines(self, op: Softmax, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        stages = [
            Stage(SoftmaxDenominatorAndUnscaled(dim=op.dim), logical.shape, (0, 2, 1)),
            Stage(DivideVecScalar(dim=op.dim), logical.shape, (2, 1)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, "denom")])


@attrs.frozen(cache_hash=True)
class ToSoftmaxPartsRecompute(BufferedPipelineRewrite[Softmax]):
    """`to_softmax_parts_recompute to L1`: maxima and denominators first, then every e^(x − max) again."""

    keyword: ClassVar[str] = "to_softmax_parts_recompute"
    order: ClassVar[int] = 60
    example: ClassVar[Example] = Example(Softmax(dim=1), (3, 8))
    takes: ClassVar[type[Operation]] = Softmax

    def pipelines(self, op: Softmax, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        stages = [
            Stage(SoftmaxDenominatorAndMax(dim=op.dim), logical.shape, (0, 2, 3)),
            Stage(SoftmaxComplete(dim=op.dim), logical.shape, (0, 2, 3, 1)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, name) for name in ("max", "denom")])


@attrs.frozen(cache_hash=True)
class ToMaxAndUnscaled(BufferedPipelineRewrite[SoftmaxDenominatorAndUnscaled]):
    """`to_max_and_unscaled to L1`: maxima first, then e^(x − max) and their sums."""

    keyword: ClassVar[str] = "to_max_and_unscaled"
    order: ClassVar[int] = 70
    example: ClassVar[Example] = Example(SoftmaxDenominatorAndUnscaled(dim=1), (3, 8))
    takes: ClassVar[type[Operation]] = SoftmaxDenominatorAndUnscaled

    def pipelines(
        self, op: SoftmaxDenominatorAndUnscaled, logical: LogicalSpec, target: Machine
    ) -> Iterator[PipelinePlan]:
        stages = [
            Stage(Max(dim=op.dim), logical.shape, (0, 3)),
            Stage(SoftmaxDenominatorAndUnscaledFromMax(dim=op.dim), logical.shape, (0, 3, 1, 2)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, "max")])


@attrs.frozen(cache_hash=True)
class ToMaxAndDenominator(PipelineRewrite[SoftmaxDenominatorAndMax]):
    """`to_max_and_denominator`: maxima in a pass of their own, then denominators."""

    keyword: ClassVar[str] = "to_max_and_denominator"
    order: ClassVar[int] = 80
    example: ClassVar[Example] = Example(SoftmaxDenominatorAndMax(dim=1), (4, 8))
    takes: ClassVar[type[Operation]] = SoftmaxDenominatorAndMax

    @classmethod
    def accepts(cls, logical: LogicalSpec) -> bool:
        return isinstance(logical.op, SoftmaxDenominatorAndMax) and not logical.op.accumulate

    def pipelines(self, op: SoftmaxDenominatorAndMax, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        stages = [
            Stage(Max(dim=op.dim), logical.shape, (0, 1)),
            Stage(SoftmaxDenominator(dim=op.dim), logical.shape, (0, 1, 2)),
        ]
        yield PipelinePlan(stages)
