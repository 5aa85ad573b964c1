"""to_accum: set the output to its initial value, then accumulate into it ([Kaufman2025] §2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Part, Sequential
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine
from morello.kernels.target import Target
from morello.rewrites.base import LEAVE_OUT, Example, Rewrite, RewriteCase, pending_dims


@attrs.frozen(cache_hash=True)
class ToAccum(Rewrite):
    """`to_accum`: a Fill, then the accumulating operation."""

    keyword: ClassVar[str] = "to_accum"
    order: ClassVar[int] = 20
    example: ClassVar[Example] = Example(Matmul(), (1, 2, 4, 8))
    structural: ClassVar[bool] = True

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if logical.op.accumulating() is not None and pending_dims(logical.op, target) is None:
            yield cls()

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        accumulating = logical.op.accumulating()
        if accumulating is None:
            raise Inapplicable(f"{logical.op} has no accumulating variant to turn into", LEAVE_OUT)
        nothing = target.nothing()
        written = [index for index, one in enumerate(logical.op.operands(len(logical.shape))) if one.writes]
        fills = [
            Part(
                logical=LogicalSpec(initial, logical.operand(index).shape, (logical.states[index],), logical.serial),
                args=(index,),
                times=1,
                live=nothing,
                role="initialize",
            )
            for index, initial in zip(written, logical.op.initials(), strict=True)
            if initial is not None
        ]
        body = Part(attrs.evolve(logical, op=accumulating), tuple(range(len(logical.states))), 1, nothing)
        yield RewriteCase(None, Sequential(self, 0, nothing, (*fills, body)))
