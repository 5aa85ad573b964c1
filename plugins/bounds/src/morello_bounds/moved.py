"""Bytes that a program moves across a cut, as the model has it."""

from __future__ import annotations

from morello.ir.impl import Alloc, Impl, KernelCall, Leaf
from morello.kernels.target import Target


def moved(impl: Impl, target: Target, level: int) -> int:
    """Return the bytes that a program moves between levels before number `level` and the others.

    A view that crosses moves its tensor in, out, or both; copies are programs of their own, whose kernels read and
    write. What kernels read or write beyond the cut counts once for each call. Raises MorelloError for a program with
    Specs that are not implemented.
    """
    numbers = {one.name: number for number, one in enumerate(target.levels)}
    return _moved(impl, numbers, level)


def _moved(impl: Impl, numbers: dict[str, int], level: int) -> int:
    if isinstance(impl, Leaf):
        return 0
    logical, expansion = impl.spec.logical, impl.expansion
    total = 0
    if isinstance(expansion, KernelCall):
        for one, tensor in zip(logical.declared, logical.operands, strict=True):
            if numbers[tensor.state.level] >= level:
                total += int(tensor.bytes) * (one.reads + one.writes)
    elif isinstance(expansion, Alloc) and expansion.view:
        one, source = logical.declared[expansion.operand], logical.operand(expansion.operand)
        if numbers[expansion.tensors[0].state.level] < level <= numbers[source.state.level]:
            total += int(source.bytes) * (one.reads + one.writes)
    for part, child in zip(expansion.parts, impl.children, strict=True):
        runs = part.tiles if part.ranges is not None else part.times
        total += int(runs) * _moved(child, numbers, level)
    return total


def reads_beyond(impl: Impl, target: Target, level: int) -> bool:
    """Return True if a kernel that computes has an operand beyond the cut, and so may read it more than once."""
    if isinstance(impl, Leaf):
        return False
    if isinstance(impl.expansion, KernelCall):
        numbers = {one.name: number for number, one in enumerate(target.levels)}
        op = impl.spec.op
        beyond = any(numbers[state.level] >= level for state in impl.spec.logical.states)
        return beyond and not (op.moves_data or op.initializes)
    return any(reads_beyond(child, target, level) for child in impl.children)
