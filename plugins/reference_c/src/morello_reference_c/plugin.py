"""The target reference_c: one memory, one microkernel per operation, and the emitter that prints them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

import attrs

from morello.errors import EmitError
from morello.ir.dtypes import DType
from morello.ir.layout import Layout, row_major
from morello.ir.numbers import Num
from morello.ir.ops import BY_NAME, Operation
from morello.ir.ops.views import MOST_INPUTS, Concat
from morello.ir.spec import LogicalSpec
from morello.plugins import (
    Machine,
    MemoryLevel,
    Microkernel,
    OperandPattern,
    Target,
    TargetInfo,
    TargetPlugin,
    hookimpl,
)
from morello.rewrites.bufferize import Bufferize
from morello.rewrites.select import Select
from morello_reference_c.emitter import ReferenceEmitter
from morello_reference_c.meanings import meaning

NAME = "reference_c"


@attrs.frozen(cache_hash=True)
class BufferizeAll(Bufferize):
    """`bufferize to GL`, which search applies to all intermediates at once: all programs of a Spec are alike here."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        yield from (step for step in super().steps(logical, target) if not step.at)


#: Those with other numbers of inputs than the plain one, all to one size of the output.
_OTHER_CONCATS = [
    Concat(sizes=(*(1,) * (count - 1), MOST_INPUTS + 1 - count))
    for count in range(1, MOST_INPUTS + 1)
    if count != len(Concat().sizes)
]


def _layouts(dtype: DType, rank: int) -> list[Layout]:
    return [row_major(rank)]


def _cost(logical: LogicalSpec, machine: Machine) -> Num:
    """Return one unit per point of the iteration space."""
    return logical.op.volume(logical.shape)


def _emit(site: object) -> None:
    raise EmitError(
        f"microkernels of {NAME} are whole operations and cannot be part of another target's program",
        f"compile the Spec for {NAME} alone",
    )


def _kernel(op: Operation, name: str | None = None) -> Microkernel:
    """Return the kernel of an operation with any parameters, by default named like the operation without."""
    count = len(op.operands(op.rank or 1))
    patterns = (OperandPattern(contiguous=False),) * count

    def same(logical: LogicalSpec) -> bool:
        return logical.op.name == op.name

    return Microkernel(
        name=name or op.name, op=type(op), examples=(op,), operands=patterns, cost=_cost, emit=_emit, when=same
    )


@hookimpl
def morello_plugin() -> TargetPlugin:
    return TargetPlugin(
        info=TargetInfo(name=NAME, description="plain C that spells out what an operation means", layouts=_layouts),
        levels=[MemoryLevel(name="GL", kind="memory", capacity=2**47, unit=64, hit_cost=1)],
        rewrites=[Select, BufferizeAll],
        kernels=[
            *(_kernel(op) for op in BY_NAME.values() if meaning(op)),
            *(_kernel(op, f"Concat{len(op.sizes)}") for op in _OTHER_CONCATS),
        ],
        emitter=ReferenceEmitter(),
    )
