"""The contributions of this plugin: one memory, one microkernel per operation, and the emitter that prints them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Self

import attrs

from morello.errors import EmitError
from morello.ir.dtypes import DType
from morello.ir.layout import Layout, row_major
from morello.ir.numbers import Num
from morello.ir.ops import Operation
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Emitter
from morello.plugins import Machine, MemoryLevel, Microkernel, OperandPattern, TargetInfo, hookimpl
from morello.rewrites import Rewrite
from morello.rewrites.bufferize import Bufferize
from morello.rewrites.select import Select
from morello_reference_c.emitter import ReferenceEmitter
from morello_reference_c.meanings import meaning

NAME = "reference_c"


@attrs.frozen(cache_hash=True)
class BufferizeAll(Bufferize):
    """`bufferize to GL`, which search takes with all intermediates at once: nobody chooses between programs here."""

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Machine) -> Iterator[Self]:
        yield from (step for step in super().steps(logical, target) if not step.at)


def _layouts(dtype: DType, rank: int) -> list[Layout]:
    return [row_major(rank)]


def _cost(logical: LogicalSpec, machine: Machine) -> Num:
    """Return the cost: one per point of the iteration space: nobody chooses between programs here."""
    return logical.op.volume(logical.shape)


def _emit(site: object) -> None:
    raise EmitError(
        f"microkernels of {NAME} are whole operations and cannot be part of another target's program",
        f"compile the Spec for {NAME} alone",
    )


def _kernel(op: Operation) -> Microkernel:
    """For an operation with any parameters: it has the name that it has with none."""
    count = len(op.operands(op.rank or 1))
    patterns = (OperandPattern(contiguous=False),) * count

    def same(logical: LogicalSpec) -> bool:
        return logical.op.name == op.name

    return Microkernel(name=op.name, op=type(op), operands=patterns, cost=_cost, emit=_emit, when=same)


@hookimpl
def morello_targets() -> Iterable[TargetInfo]:
    return [TargetInfo(name=NAME, description="plain C that spells out what an operation means", layouts=_layouts)]


@hookimpl
def morello_levels(target: str) -> Iterable[MemoryLevel] | None:
    return [MemoryLevel(name="GL", kind="memory", capacity=2**47, unit=64, hit_cost=1)] if target == NAME else None


@hookimpl
def morello_rewrites(target: str) -> Iterable[type[Rewrite]] | None:
    return [Select, BufferizeAll] if target == NAME else None


@hookimpl
def morello_microkernels(target: str, operations: Mapping[str, Operation]) -> Iterable[Microkernel] | None:
    return [_kernel(op) for op in operations.values() if meaning(op)] if target == NAME else None


@hookimpl
def morello_emitter(target: str) -> Emitter | None:
    return ReferenceEmitter() if target == NAME else None
