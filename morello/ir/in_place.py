"""Outputs that are stored over an input: the Specs that may have one, and the programs that allow it.

A program allows it if it reads each value of the input before it writes the output's value in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from morello.errors import SpecError
from morello.ir.impl import Alloc, Impl, KernelCall, Leaf, Loop, Part
from morello.ir.spec import LogicalSpec


@attrs.frozen
class Hazard:
    """A part of a program that may read an input after it wrote the output there; `kernel` names that of a call."""

    message: str
    kernel: str = ""


def output_over(logical: LogicalSpec, operand: int) -> int:
    """Return the output that can be stored over an input. Raises SpecError if none can."""
    declared, op = logical.declared, logical.op.without_constants
    one, written = declared[operand], [number for number, each in enumerate(declared) if each.writes]
    if one.writes:
        raise SpecError(f"{one.name} is an output, so that it is written anyway", "write `overwritten` in an input")
    if operand in logical.op.constants:
        raise SpecError(f"{one.name} is constant and overwritten", "leave out one of them")
    output = declared[written[0]]
    if len(written) > 1 or output.reads:
        what = f"{len(written)} outputs" if len(written) > 1 else f"an output that it reads, {output.name}"
        raise SpecError(f"{op} has {what}: none can be stored over {one.name}", "leave out `overwritten`")
    if (one.dims, one.shrink) != (output.dims, output.shrink):
        raise SpecError(
            f"{output.name} of {op} cannot be stored over {one.name}, which has other dimensions",
            "write `overwritten` in an input with the dimensions of the output, such as those of Relu, Add and Softmax",
        )
    if logical.states[operand] != logical.states[written[0]]:
        mine, other = (logical.operand(each).labels for each in (operand, written[0]))
        raise SpecError(
            f"{output.name} ({other}) cannot be stored over {one.name} ({mine})",
            "give both the same data type, level and layout",
        )
    return written[0]


def hazard(impl: Impl, over: int, in_place: Callable[[str], bool]) -> Hazard | None:
    """Return where a program may read operand `over` after it wrote the output there; None if nowhere.

    `in_place` returns True for the names of kernels that read each value before they write the output's value there.
    """
    return _hazard(impl, {over}, {output_over(impl.spec.logical, over)}, in_place)


def _hazard(
    impl: Impl, read: Collection[int], written: Collection[int], in_place: Callable[[str], bool]
) -> Hazard | None:
    """Return the hazard of a program. Its operands `read` and `written`, if it has both, are the same memory."""
    if not read or not written or isinstance(impl, Leaf):
        return None
    logical, expansion = impl.spec.logical, impl.expansion
    tiles = {(logical.declared[one].dims, logical.declared[one].shrink) for one in (*read, *written)}
    if len(tiles) > 1:
        return Hazard(f"{logical.short()} has other dimensions of the output than of the overwritten input")
    if isinstance(expansion, KernelCall) and not in_place(expansion.kernel):
        return Hazard(f"{expansion.kernel} may read values of the input that it has overwritten", expansion.kernel)
    if isinstance(expansion, Alloc) and expansion.view:
        # The new tensor is the memory of its operand.
        fresh = {len(logical.states)}
        read = {*read, *(fresh if expansion.operand in read else ())}
        written = {*written, *(fresh if expansion.operand in written else ())}
    done = False
    for part, child in zip(expansion.parts, impl.children, strict=True):
        reads, writes = (
            {operand for operand, tensor in enumerate(part.args) if tensor in own} for own in (read, written)
        )
        if isinstance(expansion, Loop):
            if not _apart(part, logical, next(iter(written))):
                return Hazard(f"tiles of `{expansion.step}` write the same values of the output")
        elif reads and done:
            return Hazard(f"{part.logical.short()} reads the overwritten input after the output was written")
        if part.dim_maps and reads and writes and len({part.dim_maps[one] for one in (*reads, *writes)}) > 1:
            return Hazard(f"{part.logical.short()} takes other values of the output than of the overwritten input")
        if found := _hazard(child, reads, writes, in_place):
            return found
        done = done or bool(writes)
    return None


def _apart(part: Part, logical: LogicalSpec, operand: int) -> bool:
    """Return True if the tiles of a loop are different values of an operand."""
    held, ranges = logical.declared[operand], part.ranges or ()
    tiled = [dim for dim, (one, size) in enumerate(zip(ranges, logical.shape, strict=True)) if one.size != size]
    return not (tiled and any(held.sliding)) and all(held.uses(dim) for dim in tiled)
