"""materialize and rematerialize: a RandMatmul as its random numbers, in memory or registers, and a Matmul."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import attrs

from morello.errors import Inapplicable
from morello.ir.dtypes import F32
from morello.ir.ops.base import Operation
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.rand_matmul import RandMatmul, Random
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.rewrites.base import Example
from morello.rewrites.pipeline import BufferedPipelineRewrite, NewTensor, PipelinePlan, Stage, TensorPlace, places


@attrs.frozen(cache_hash=True)
class _Generated(BufferedPipelineRewrite[RandMatmul]):
    """A Random into a new tensor, and a Matmul with it."""

    #: Whether the new tensor is in registers.
    in_registers: ClassVar[bool]
    takes: ClassVar[type[Operation]] = RandMatmul
    example: ClassVar[Example] = Example(RandMatmul(seed=1), (1, 2, 4, 8))

    @classmethod
    def places(cls, logical: LogicalSpec, target: Machine) -> Iterator[TensorPlace]:
        return (one for one in places(target, F32, 3) if target.level(one[0]).is_register == cls.in_registers)

    def pipelines(self, op: RandMatmul, logical: LogicalSpec, target: Machine) -> Iterator[PipelinePlan]:
        if target.level(self.level).is_register != self.in_registers:
            other = Materialize.keyword if self.in_registers else Rematerialize.keyword
            kind = "registers" if self.in_registers else "memory"
            raise Inapplicable(f"`{self}` is for {kind}, not for {self.level}", f"write `{other}`")
        generate, multiply = Random(seed=op.seed), Matmul(accumulate=op.accumulate)
        stages = [Stage(generate, logical.shape[:3], (0, 1, 4)), Stage(multiply, logical.shape, (4, 2, 3))]
        yield PipelinePlan(stages, [NewTensor("lhs", logical.shape[:3], F32)])


@attrs.frozen(cache_hash=True)
class Materialize(_Generated):
    """`materialize to L1`: the random numbers of a RandMatmul go to memory, where a Matmul reads them."""

    keyword: ClassVar[str] = "materialize"
    order: ClassVar[int] = 120
    in_registers: ClassVar[bool] = False


@attrs.frozen(cache_hash=True)
class Rematerialize(_Generated):
    """`rematerialize to VRF as row_major v8`: the same in registers, so that each use computes the numbers again.

    Every tile along n of a RandMatmul recomputes them.
    """

    keyword: ClassVar[str] = "rematerialize"
    order: ClassVar[int] = 130
    in_registers: ClassVar[bool] = True
