"""to_accum: set the output to its initial value, then accumulate into it (paper §2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Block, Part
from morello.ir.spec import LogicalSpec
from morello.rewrites.base import Case, Rewrite

if TYPE_CHECKING:
    from morello.plugins.target import Target


@attrs.frozen(cache_hash=True)
class ToAccum(Rewrite):
    """`to_accum`: a block of Fill and the accumulating operation."""

    keyword: ClassVar[str] = "to_accum"
    structural: ClassVar[bool] = True

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        if logical.op.accumulating() is not None:
            yield cls()

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[Case]:
        accumulating, initial = logical.op.accumulating(), logical.op.initial()
        if accumulating is None or initial is None:
            raise Inapplicable(f"{logical.op} has no accumulating variant to turn into")
        nothing = target.nothing()
        fills = [
            Part(
                logical=LogicalSpec(initial, tensor.shape, (tensor.state,), logical.serial),
                args=(index,),
                times=1,
                live=nothing,
                role="initialize",
            )
            for index, (one, tensor) in enumerate(
                zip(logical.op.operands(len(logical.shape)), logical.operands, strict=True)
            )
            if one.writes
        ]
        body = Part(attrs.evolve(logical, op=accumulating), tuple(range(len(logical.states))), 1, nothing)
        yield Case(None, Block(self, 0, nothing, (*fills, body)))
