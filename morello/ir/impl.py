"""Implementations: program trees whose nodes each implement a Spec.

A rewrite turns a logical Spec into an `Expansion`: a node, with a logical Spec for every child, the number of times the
child runs, and the memory held meanwhile. One rule gives the cost and the peak memory of every kind of node
([Kaufman2025] §3): cost = own + Σ times·cost(child), peak = max(own need, held + peak(child)).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent
from typing import ClassVar, Protocol

import attrs

from morello.errors import SpecError
from morello.ir.limits import LimitGrid, Limits, fits, lower, raise_peak
from morello.ir.numbers import Num, product
from morello.ir.ops.base import Operation
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import DimMap, TensorSpec


class StepLike(Protocol):
    """The schedule step that made a node; printable. `keyword` is its first word."""

    keyword: ClassVar[str]

    @classmethod
    def blocks_until(cls, op: Operation) -> tuple[int, ...] | None: ...

    def __str__(self) -> str: ...


@attrs.frozen
class TileRange:
    """The range of one iteration dimension that a loop body covers: `trips` tiles of `size` from `start`."""

    start: Num
    size: Num
    trips: Num


@attrs.frozen
class Part:
    """One child of a node.

    `args[i]` is the child's operand i: the number of one of the node's operands, or, counting on from these, of a
    tensor that the node introduces. `times` multiplies the child's cost; `live` are the bytes per level that the node
    holds while it runs. `ranges` are the tiles of a loop's body, None elsewhere. With `dim_maps`, the child sees
    operand i under other dimensions: its dimension d is dimension `dim_maps[i][d]` of tensor `args[i]` (None: size 1;
    or a part of its values), and dimensions that are left out have size 1.
    """

    logical: LogicalSpec
    args: tuple[int, ...]
    times: Num
    live: tuple[Num, ...]
    ranges: tuple[TileRange, ...] | None = None
    role: str = "body"
    dim_maps: tuple[DimMap, ...] | None = None

    @property
    def tiles(self) -> Num:
        """Return the number of tiles of a loop's body, on all threads."""
        return product(tile_range.trips for tile_range in self.ranges or ())


@attrs.frozen
class Expansion:
    """The node that a rewrite makes of a logical Spec. `cost` and `needs` (bytes per level) exclude its parts."""

    step: StepLike
    cost: Num
    needs: tuple[Num, ...]
    parts: tuple[Part, ...]
    tensors: tuple[TensorSpec, ...] = ()

    @property
    def kind(self) -> str:
        return type(self).__name__.lower()


@attrs.frozen
class Loop(Expansion):
    """Tiles of the iteration space: the main body, then one body per kind of boundary tile.

    `parallel`: threads share the tiles of the main body, so that its `times` are fewer than its tiles.
    """

    parallel: bool = False


@attrs.frozen
class Alloc(Expansion):
    """Operand `operand` lives in the introduced tensor while the body runs; a view shares the operand's memory."""

    operand: int = 0
    view: bool = False


@attrs.frozen
class Sequential(Expansion):
    """Children one after another."""


@attrs.frozen
class Pipeline(Expansion):
    """Children one after another, with intermediates that live only while a child uses them."""


@attrs.frozen
class KernelCall(Expansion):
    """A microkernel: a leaf of finished programs."""

    kernel: str = ""


@attrs.frozen
class AllowedSteps:
    """The steps that a search may take, as names of kernels and rewrites. Without names, all are allowed.

    `using` kernels are the only ones for their operations, and `using` rewrites the only ones besides `select`. With
    `all_layouts`, moves have more layouts than the target lists: those of `every_layout`.
    """

    using: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    all_layouts: bool = False

    def __bool__(self) -> bool:
        return bool(self.using or self.without or self.all_layouts)

    def __str__(self) -> str:
        lists = (("using", self.using), ("without", self.without))
        words = [f"{word} [{', '.join(names)}]" for word, names in lists if names]
        return " ".join([*words, *(["with all layouts"] if self.all_layouts else [])])

    def __add__(self, other: AllowedSteps) -> AllowedSteps:
        """Return the names of both."""
        using, without = (*self.using, *other.using), (*self.without, *other.without)
        more = self.all_layouts or other.all_layouts
        return AllowedSteps(tuple(dict.fromkeys(using)), tuple(dict.fromkeys(without)), more)


ANY_STEPS = AllowedSteps()


@attrs.frozen
class Leaf:
    """A hole of a partial program: a Spec that is not implemented yet, and the steps that a search for it may take."""

    spec: Spec
    allowed: AllowedSteps = ANY_STEPS

    def __str__(self) -> str:
        return f"hole: {self.spec.logical.short()}"


@attrs.frozen(cache_hash=True, eq=True)
class Node:
    """An expansion of `spec` with an implementation for each of its parts."""

    spec: Spec
    expansion: Expansion = attrs.field(hash=False)
    children: tuple[Impl, ...]
    grids: tuple[LimitGrid, ...] = attrs.field(repr=False)

    def __str__(self) -> str:
        """Return the steps and holes, one a line, with children indented."""
        lines = [str(self.expansion.step)]
        for part, child in zip(self.expansion.parts, self.children, strict=True):
            lines.append(indent(str(child) if part.role == "body" else f"{part.role}: {child}", "    "))
        return "\n".join(lines)


Impl = Leaf | Node


@attrs.frozen
class CostAndPeak:
    """Cost and peak memory (bytes per level) of a complete implementation."""

    cost: int
    peak: Limits


def combine(expansion: Expansion, children: Sequence[CostAndPeak], grids: Sequence[LimitGrid]) -> CostAndPeak:
    """Return cost and peak of a node from those of its children."""
    cost, peak = int(expansion.cost), tuple(map(int, expansion.needs))
    for part, child in zip(expansion.parts, children, strict=True):
        cost += int(part.times) * child.cost
        raised = raise_peak(child.peak, part.live, grids)
        peak = tuple(max(mine, int(theirs)) for mine, theirs in zip(peak, raised, strict=True))
    return CostAndPeak(cost, raise_peak(peak, [0] * len(peak), grids))


def child_limits(expansion: Expansion, limits: Limits, grids: Sequence[LimitGrid]) -> list[Limits] | None:
    """Return the limits of each part, or None if the node does not fit into `limits`."""
    if not fits(expansion.needs, limits):
        return None
    lowered = [lower(limits, part.live, grids) for part in expansion.parts]
    return None if any(min(one) < 0 for one in lowered) else lowered


def expand(spec: Spec, expansion: Expansion, grids: Sequence[LimitGrid]) -> Node | None:
    """Return the node for `expansion`, its children still Spec leaves; None if it does not fit into memory."""
    limits = child_limits(expansion, spec.limits, grids)
    if limits is None:
        return None
    leaves = tuple(Leaf(Spec(part.logical, own)) for part, own in zip(expansion.parts, limits, strict=True))
    return Node(spec, expansion, leaves, tuple(grids))


def cost_and_peak(impl: Impl, partial: bool = False) -> CostAndPeak:
    """Return cost and peak memory. Raises SpecError for an unfinished implementation.

    If `partial`, holes count as nothing, so that the result is the least that any program with these steps has.
    """
    if isinstance(impl, Leaf):
        if partial:
            return CostAndPeak(0, (0,) * len(impl.spec.limits))
        raise SpecError("an unfinished implementation has no cost", "finish it: `synthesize`, or select kernels")
    return combine(impl.expansion, [cost_and_peak(child, partial) for child in impl.children], impl.grids)


def leaves(impl: Impl) -> Iterator[Leaf]:
    """Yield the Specs not implemented yet, in program order."""
    if isinstance(impl, Leaf):
        yield impl
    else:
        for child in impl.children:
            yield from leaves(child)


def walk(impl: Impl) -> Iterator[Impl]:
    """Yield every node, parents before children."""
    yield impl
    if isinstance(impl, Node):
        for child in impl.children:
            yield from walk(child)
