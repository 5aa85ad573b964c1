"""pack: a constant operand is packed before calls, into a layout of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Impl, Node
from morello.ir.layout import Layout
from morello.ir.numbers import CellIndices
from morello.ir.ops.base import Operation
from morello.ir.ops.constants import Constants
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.machine import Machine, NewBuffer
from morello.kernels.target import Target
from morello.rewrites.base import Example, Word, argument, layout_name
from morello.rewrites.move import MoveStep
from morello.rewrites.pipeline import NewTensor, PipelinePlan, PipelineRewrite, Stage


@attrs.frozen(cache_hash=True)
class Pack(PipelineRewrite[Constants]):
    """`pack 1 as layout[0, 2, 1, 2p16]`: calls get operand 1, a constant, in this layout."""

    keyword: ClassVar[str] = "pack"
    order: ClassVar[int] = 177
    example: ClassVar[Example] = Example(Constants(Matmul(), (1,)), (1, 2, 4, 16))
    takes: ClassVar[type[Operation]] = Constants
    subject: ClassVar[str] = "Specs with constant operands"
    operand: int = argument(int)
    layout: Layout | str = argument(Layout, Word, keyword="as")

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None:
        return () if op.constants else None

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        op = logical.op
        if not isinstance(op, Constants):
            return
        first = op.constants[0]
        one, dtype, more = logical.declared[first], logical.states[first].dtype, target.info.constants
        rank = len(one.dims)
        offered = target.layouts_of(NewBuffer(op.of, one, False), dtype)
        for layout in dict.fromkeys((*offered, *(more(dtype, rank) if more else ()))):
            yield cls(first, layout_name(layout, rank) or layout)

    def without_buffers(self) -> Self:
        return attrs.evolve(self, layout="row_major")

    def pipelines(self, op: Constants, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if self.operand not in op.constants:
            names = ", ".join(f"{each} is {logical.declared[each].name}" for each in op.constants)
            raise Inapplicable(f"`{self}`: operand {self.operand} is not constant", f"of the constants, {names}")
        left = tuple(each for each in op.constants if each != self.operand)
        count, one = len(logical.states), logical.declared[self.operand]
        args = tuple(count if each == self.operand else each for each in range(count))
        new = NewTensor(one.name, one.shape(logical.shape), logical.states[self.operand].dtype)
        stage = Stage(attrs.evolve(op, numbers=left) if left else op.of, logical.shape, args)
        yield PipelinePlan([stage], [new], free=True)

    def new_states(
        self, tensors: Sequence[NewTensor], target: Machine
    ) -> Iterator[tuple[tuple[OperandState, ...], CellIndices]]:
        (new,) = tensors
        level = constant_level(target)
        tensor = TensorSpec(new.shape, OperandState(new.dtype, level, None))
        for state, cells in MoveStep(0, level, self.layout).fresh(new.name, tensor, target):
            yield (state,), cells


def constant_level(target: Machine) -> str:
    """Return the level of constants: the main memory."""
    return target.operand_levels[-1].name


def packed(impl: Impl) -> Impl:
    """Return the part of a program that calls run: that after the constants are packed."""
    while isinstance(impl, Node) and isinstance(impl.expansion.step, Pack):
        (impl,) = impl.children
    return impl
