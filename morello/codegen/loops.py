"""Loops that are printed as one, and microkernel calls that are printed together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product as combinations

import attrs

from morello.ir.impl import Alloc, Impl, KernelCall, Loop, Node, Part, StepLike, walk
from morello.ir.index import IndexExpr, as_index
from morello.ir.spec import LogicalSpec
from morello.kernels.buffers import View
from morello.kernels.microkernel import Microkernel, UnrollAndJam
from morello.kernels.site import KernelSite
from morello.kernels.target import Target


@attrs.frozen
class Outer:
    """Loops over one dimension that the next loop absorbs: comment and step of the first, and their total trips."""

    comment: str
    step: StepLike
    trips: int


@attrs.frozen
class Jammed:
    """`count` calls of a microkernel that `emit` prints together."""

    kernel: Microkernel
    emit: Callable[[Sequence[KernelSite]], None]
    count: int


def arguments(
    part: Part, tensors: Sequence[View], starts: Sequence[Sequence[IndexExpr | int]] | None = None
) -> list[View]:
    """Return a child's operands: the tensors of its part, or tiles of them that begin at `starts`."""
    dim_maps = part.dim_maps or (None,) * len(part.args)
    return [
        tensors[index].seen_as(tensor, own) if starts is None else tensors[index].tile(tensor, starts[index], own)
        for index, tensor, own in zip(part.args, part.logical.operands, dim_maps, strict=True)
    ]


def tiles(
    part: Part, logical: LogicalSpec, views: Sequence[View], numbers: Mapping[int, IndexExpr | int]
) -> list[View]:
    """Return the operands of a loop's body at these tile numbers by dimension; 0 by default."""
    assert part.ranges is not None
    operands = logical.op.operands(len(logical.shape))
    starts = [
        as_index(numbers.get(dim, 0)) * int(tile_range.size) + int(tile_range.start)
        for dim, tile_range in enumerate(part.ranges)
    ]
    return arguments(part, views, [one.start(starts) for one in operands])


def through_views(impl: Impl, views: list[View]) -> tuple[Impl, list[View]]:
    """Return the program below moves that are views, and its operands."""
    while isinstance(impl, Node) and isinstance(impl.expansion, Alloc) and impl.expansion.view:
        (part,), (tensor,) = impl.expansion.parts, impl.expansion.tensors
        views = arguments(part, [*views, views[impl.expansion.operand].seen_as(tensor)])
        (impl,) = impl.children
    return impl, views


def printed(impl: Impl) -> Impl:
    """Return the program below moves that are views, which print nothing."""
    while isinstance(impl, Node) and isinstance(impl.expansion, Alloc) and impl.expansion.view:
        (impl,) = impl.children
    return impl


def until(first: StepLike | str, last: StepLike | str) -> str:
    """Return the comment's end for merged loops: after `tile [0, 8]`, ` to [0, 1]`."""
    return f" to {str(last).removeprefix(str(first).split()[0]).lstrip()}"


def repeated(part: Part) -> list[int]:
    """Return the dimensions along which a loop has several tiles."""
    assert part.ranges is not None
    return [dim for dim, tile_range in enumerate(part.ranges) if tile_range.trips > 1]


def unrolled(part: Part, logical: LogicalSpec, views: Sequence[View]) -> list[int]:
    """Return the dimensions to unroll, because each tile names registers of its own."""
    operands = logical.op.operands(len(logical.shape))
    held = [one for one, view in zip(operands, views, strict=True) if view.buffer.in_registers]
    return [dim for dim in repeated(part) if any(one.uses(dim) for one in held)]


def copies(
    part: Part, logical: LogicalSpec, views: Sequence[View], counters: Mapping[int, IndexExpr], dims: Sequence[int]
) -> Iterator[list[View]]:
    """Yield the operands of a body for each combination of unrolled tiles."""
    assert part.ranges is not None
    for point in combinations(*(range(int(part.ranges[dim].trips)) for dim in dims)):
        yield tiles(part, logical, views, {**counters, **dict(zip(dims, point, strict=True))})


def calls(impl: Impl, views: list[View]) -> Iterator[tuple[Impl, list[View]]]:
    """Yield the calls of a program whose loops are all unrolled, with their operands, in execution order."""
    impl, views = through_views(impl, views)
    if not isinstance(impl, Node) or not isinstance(impl.expansion, Loop) or impl.expansion.parallel:
        yield impl, views
        return
    logical = impl.spec.logical
    if any(repeated(part) != unrolled(part, logical, views) for part in impl.expansion.parts):
        yield impl, views
        return
    for part, child in zip(impl.expansion.parts, impl.children, strict=True):
        for within in copies(part, logical, views, {}, repeated(part)):
            yield from calls(child, within)


def goes_on(part: Part, inner: Impl) -> bool:
    """Return True if the child loops over smaller tiles of the only dimension of this loop."""
    if not isinstance(inner, Node) or not isinstance(inner.expansion, Loop) or inner.expansion.parallel:
        return False
    if len(inner.expansion.parts) > 1 or part.dim_maps or inner.spec.op != part.logical.op:
        return False
    return len(repeated(part)) == 1 and all(repeated(inside) == repeated(part) for inside in inner.expansion.parts)


def jam_of(child: Impl, target: Target, trips: int) -> Jammed | None:
    """Return the calls to print together if a loop's body is one microkernel; None if they are printed one by one."""
    found = jammed(printed(child), target)
    if found is None:
        return None
    kernel, jam = found
    count = max(count for count in range(1, jam.most + 1) if trips % count == 0)
    return Jammed(kernel, jam.emit, count) if count > 1 else None


def jammed(impl: Impl, target: Target) -> tuple[Microkernel, UnrollAndJam] | None:
    """Return the microkernel of a program that is one call, if several calls can be printed together here."""
    if not isinstance(impl, Node) or not isinstance(impl.expansion, KernelCall):
        return None
    kernel = target.kernels_by_name[impl.expansion.kernel]
    if kernel.jam is None:
        return None
    needs = (kernel.jam.registers.get(level.name, 0) * level.unit for level in target.levels)
    fits = all(need <= limit for need, limit in zip(needs, impl.spec.limits, strict=True))
    return (kernel, kernel.jam) if fits else None


def declares(impl: Impl) -> bool:
    """Return True if the code of `impl` declares variables of its own."""
    return any(isinstance(node, Node) and node.expansion.tensors for node in walk(impl))
