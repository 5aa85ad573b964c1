"""Graphs whose first operation adds up products, and whose others are functions of each value of the sums."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Generic, TypeVar

import attrs

from morello.ir.dtypes import F32
from morello.ir.numbers import Mask, Num
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add, Maximum, Minimum, Mul, Sub
from morello.ir.ops.common import Accumulating
from morello.ir.ops.compose import Compose, arranged
from morello.ir.ops.functions import Clip, Function
from morello.ir.ops.unary import Relu, Scale, Shift, Sigmoid, Silu
from morello.ir.ops.wiring import ComposeStage
from morello.ir.spec import LogicalSpec
from morello.kernels.site import KernelSite
from morello_vectors.elementwise import expression, function_of
from morello_vectors.vector_math import cycles

#: Functions of each value that may follow, besides those of two tensors.
_FUNCTIONS = (Relu, Clip, Scale, Shift, Sigmoid, Silu)
_BINARIES = (Add, Sub, Mul, Maximum, Minimum)
#: Those that are calls of several instructions.
_CALLED = (Sigmoid, Silu, Function)

First = TypeVar("First", bound=Accumulating)


@attrs.frozen
class ValueGraph(Generic[First]):
    """An operation, its two inputs, and the stages that follow, last one first; inputs are numbered as a Compose's."""

    first: First
    lhs: int
    rhs: int
    stages: tuple[ComposeStage, ...] = ()

    @property
    def others(self) -> list[int]:
        """Return the inputs of other stages."""
        return sorted({entry for stage in self.stages for entry in stage.inputs if entry >= 0})

    def others_fit(self, spec: LogicalSpec, dim: int, size: Num) -> Mask:
        """Return the condition that lanes along a dimension have values of their own, or all of them the only one."""
        valid: Mask = True
        for other in map(spec.operand, self.others):
            valid = valid & ((other.shape[dim] == size) | (other.volume == 1))
        return valid

    def instructions(self, values: int) -> int:
        """Return the instructions of the stages for a vector of this number of values."""
        return sum(cycles(function_of(one.op), values) if isinstance(one.op, _CALLED) else 1 for one in self.stages)

    def lines(self, site: KernelSite, values: int, made: MutableMapping[int, str]) -> Iterator[str]:
        """Yield lines that compute the stages in vectors of f32.

        `made` has the C of inputs by number, and of sums by ~ the number of stages; that of the result is added as ~0.
        """
        for number, stage in reversed([*enumerate(self.stages)]):
            name = site.fresh("value")
            given = (made[entry] for entry in stage.inputs)
            yield f"const {site.vector_type(F32, values)} {name} = {expression(stage.op, site, F32, values, *given)};"
            made[~number] = name


def value_graph(op: Operation, kind: type[First]) -> ValueGraph[First] | None:
    """Return the graph of an operation whose first one is of a kind and starts sums at 0; None for others."""
    if isinstance(op, kind):
        return None if op.accumulate else ValueGraph(op, 0, 1)
    if not isinstance(op, Compose) or op.outputs:
        return None
    *stages, last = op.stages
    if not isinstance(last.op, kind) or last.op.accumulate:
        return None
    lhs, rhs = last.inputs
    own = {~number for number in range(len(op.stages))}
    after = all(isinstance(one.op, (*_FUNCTIONS, *_BINARIES)) or one.op == Function("HardSwish") for one in stages)
    if not after or not {lhs, rhs}.isdisjoint(own):
        return None
    found = ValueGraph(last.op, lhs, rhs, tuple(stages))
    return None if {lhs, rhs} & {*found.others} else found


def first_shape(spec: LogicalSpec) -> Sequence[Num]:
    """Return the iteration shape of the first operation."""
    op = spec.op
    return op.stage_shape(len(op.stages) - 1, spec.shape) if isinstance(op, Compose) else tuple(spec.shape)


def example(first: Operation, rank: int, inputs: int) -> Compose:
    """Return a graph with this number of inputs: more than two add a bias, and more than three another tensor.

    `rank` is that of the operation; its outputs have their channels in the second dimension of images, else the last.
    """
    out = len(first.operands(rank)[-1].dims)
    channels = out - 1 if out == 3 else 1
    bias = Add(over=tuple(dim for dim in range(out) if dim != channels))
    after = (Relu(), bias, Add())[: inputs - 1]
    stages = [ComposeStage(op, out, (~(at + 1), at)[: 1 + (at > 0)]) for at, op in enumerate(after)]
    return arranged([*stages, ComposeStage(first, rank, (0, len(after)))]).compose
