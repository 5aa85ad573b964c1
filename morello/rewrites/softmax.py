"""The softmax families: offline (passes for maximum, denominator and result), online (statistics in one pass)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import Num
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
from morello.rewrites.base import wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, PipelineRewrite, Stage, places


@attrs.frozen(cache_hash=True)
class _OfSoftmax(BufferedPipelineRewrite):
    """A rewrite of one operation of the family whose new tensors have a value per row."""

    takes: ClassVar[type[SoftmaxLike]]

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, cls.takes):
            for level, layout, vector in places(target, F32, len(logical.shape)):
                # Of the orders of a tensor with one value per row, the first does as well as any other.
                if layout == "row_major":
                    yield cls(level, layout, vector)

    def _op(self, logical: LogicalSpec) -> SoftmaxLike:
        if not isinstance(logical.op, self.takes):
            raise wrong_operation(self, self.takes.__name__, logical.op)
        return logical.op


def _per_row(op: SoftmaxLike, logical: LogicalSpec, name: str) -> NewTensor:
    """Return a new f32 tensor with one value per row."""
    return NewTensor(name, row_shape(op, logical), F32)


def row_shape(op: SoftmaxLike, logical: LogicalSpec) -> tuple[Num, ...]:
    """Return the shape with size 1 along the operation's dimension."""
    axis = op.axis(len(logical.shape))
    return tuple(1 if dim == axis else size for dim, size in enumerate(logical.shape))


@attrs.frozen(cache_hash=True)
class ToSoftmaxParts(_OfSoftmax):
    """`to_softmax_parts to L1`: e^(x − max) goes to the output, its sums to a new tensor by which it is divided."""

    keyword: ClassVar[str] = "to_softmax_parts"
    takes: ClassVar[type[SoftmaxLike]] = Softmax

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = self._op(logical)
        stages = [
            Stage(SoftmaxDenominatorAndUnscaled(dim=op.dim), logical.shape, (0, 2, 1)),
            Stage(DivideVecScalar(dim=op.dim), logical.shape, (2, 1)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, "denom")])


@attrs.frozen(cache_hash=True)
class ToSoftmaxPartsRecompute(_OfSoftmax):
    """`to_softmax_parts_recompute to L1`: maxima and denominators first, then every e^(x − max) again."""

    keyword: ClassVar[str] = "to_softmax_parts_recompute"
    takes: ClassVar[type[SoftmaxLike]] = Softmax

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = self._op(logical)
        stages = [
            Stage(SoftmaxDenominatorAndMax(dim=op.dim), logical.shape, (0, 2, 3)),
            Stage(SoftmaxComplete(dim=op.dim), logical.shape, (0, 2, 3, 1)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, name) for name in ("max", "denom")])


@attrs.frozen(cache_hash=True)
class ToMaxAndUnscaled(_OfSoftmax):
    """`to_max_and_unscaled to L1`: maxima first, then e^(x − max) and their sums."""

    keyword: ClassVar[str] = "to_max_and_unscaled"
    takes: ClassVar[type[SoftmaxLike]] = SoftmaxDenominatorAndUnscaled

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = self._op(logical)
        stages = [
            Stage(Max(dim=op.dim), logical.shape, (0, 3)),
            Stage(SoftmaxDenominatorAndUnscaledFromMax(dim=op.dim), logical.shape, (0, 3, 1, 2)),
        ]
        yield PipelinePlan(stages, [_per_row(op, logical, "max")])


@attrs.frozen(cache_hash=True)
class ToMaxAndDenominator(PipelineRewrite):
    """`to_max_and_denominator`: maxima in a pass of their own, then denominators."""

    keyword: ClassVar[str] = "to_max_and_denominator"

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, SoftmaxDenominatorAndMax) and not logical.op.accumulate:
            yield cls()

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, SoftmaxDenominatorAndMax) or op.accumulate:
            raise wrong_operation(self, "SoftmaxDenominatorAndMax", op)
        stages = [
            Stage(Max(dim=op.dim), logical.shape, (0, 1)),
            Stage(SoftmaxDenominator(dim=op.dim), logical.shape, (0, 1, 2)),
        ]
        yield PipelinePlan(stages)
