"""materialize and rematerialize: a product whose left-hand side is random as its numbers, and a product with these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import F32
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.rand_matmul import RandMatmul, Random
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import wrong_operation
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, places


@attrs.frozen(cache_hash=True)
class _Generated(BufferedPipelineRewrite):
    """A Random into a new tensor, and a Matmul with it."""

    #: Whether the new tensor is in registers.
    in_registers: ClassVar[bool]

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        if isinstance(logical.op, RandMatmul):
            for level, layout, vector in places(target, F32, 3):
                if target.level(level).is_register == cls.in_registers:
                    yield cls(level, layout, vector)

    def plans(self, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        op = logical.op
        if not isinstance(op, RandMatmul):
            raise wrong_operation(self, "RandMatmul", op)
        if target.level(self.level).is_register != self.in_registers:
            other = Materialize.keyword if self.in_registers else Rematerialize.keyword
            raise Inapplicable(f"`{self}` is for {self._levels()}, and {self.level} is none", f"write `{other}`")
        generate, multiply = Random(seed=op.seed), Matmul(accumulate=op.accumulate)
        stages = [Stage(generate, logical.shape[:3], (0, 1, 4)), Stage(multiply, logical.shape, (4, 2, 3))]
        yield PipelinePlan(stages, [NewTensor("lhs", logical.shape[:3], F32)])

    def _levels(self) -> str:
        return "registers" if self.in_registers else "memory"


@attrs.frozen(cache_hash=True)
class Materialize(_Generated):
    """`materialize to L1`: the random numbers of a RandMatmul go to memory, from where a Matmul takes them."""

    keyword: ClassVar[str] = "materialize"
    in_registers: ClassVar[bool] = False


@attrs.frozen(cache_hash=True)
class Rematerialize(_Generated):
    """`rematerialize to VRF as row_major v8`: the same in registers, so that they are worked out where they are used.

    Tiles along n of a RandMatmul work them out anew each time.
    """

    keyword: ClassVar[str] = "rematerialize"
    in_registers: ClassVar[bool] = True
