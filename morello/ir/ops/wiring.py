"""Iteration dimensions of a Compose: those of its stages, tied where one reads what another writes.

A dimension of a stage that computes an intermediate is what its consumers read: a sum of the Compose's own dimensions,
so that a tile of the output determines the tile of every stage. If consumers read a tensor in different ways, no tile
serves them all: the dimensions involved are kept whole, and their sizes must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd, lcm
from types import MappingProxyType
from typing import Protocol

import attrs

from morello.errors import SpecError
from morello.ir.numbers import NumT
from morello.ir.ops.base import Operand, Operation

Terms = tuple[tuple[int, int], ...]


@attrs.frozen(cache_hash=True)
class ComposeStage:
    """One operation of a Compose, with its number of iteration dimensions and its inputs.

    `inputs` has one entry for each operand that is read but not written: e ≥ 0 is external input e, ~j the output of
    stage j.
    """

    op: Operation
    rank: int
    inputs: tuple[int, ...]

    @property
    def reads(self) -> tuple[Operand, ...]:
        return tuple(one for one in self.op.operands(self.rank) if not one.writes)

    @property
    def output(self) -> Operand:
        return next(one for one in self.op.operands(self.rank) if one.writes)


@attrs.frozen(cache_hash=True)
class Extent:
    """A dimension made of iteration dimensions: a sum of (dimension, coefficient) terms, smaller by `less`."""

    terms: Terms
    less: int = 0

    def size(self, sizes: Sequence[NumT]) -> NumT:
        """Return the size for these iteration sizes."""
        return 1 - self.less + sum(c * (sizes[dim] - 1) for dim, c in self.terms)

    def within(self, inner: Sequence[Extent]) -> Extent:
        """Return the extent in terms of the dimensions that `inner` consists of."""
        pairs = ((dim, c * factor) for outer, factor in self.terms for dim, c in inner[outer].terms)
        return Extent(merged(pairs), self.less + sum(c * inner[dim].less for dim, c in self.terms))

    @property
    def is_dimension(self) -> bool:
        """Return True for a plain iteration dimension."""
        return len(self.terms) == 1 and self.terms[0][1] == 1 and not self.less


def extents(operand: Operand) -> tuple[Extent, ...]:
    """Return the dimensions of an operand."""
    return tuple(map(Extent, operand.dims, operand.shrink or (0,) * len(operand.dims)))


def merged(pairs: Iterable[tuple[int, int]]) -> Terms:
    """Return terms in order, at most one per dimension."""
    total: dict[int, int] = {}
    for dim, c in pairs:
        total[dim] = total.get(dim, 0) + c
    return tuple(sorted((dim, c) for dim, c in total.items() if c))


@attrs.frozen
class Agreement:
    """Two extents of one dimension of a tensor, whose sizes must agree."""

    tensor: str
    one: Extent
    other: Extent


@attrs.frozen
class Wiring:
    """The iteration dimensions of a Compose, and those of its parts in terms of them.

    `origins` gives the (stage, dimension) of each; `stages` each stage's own iteration dimensions, `inputs` the
    dimensions of each external input; `whole` the dimensions that cannot be tiled.
    """

    origins: tuple[tuple[int, int], ...]
    stages: tuple[tuple[Extent, ...], ...]
    inputs: tuple[tuple[Extent, ...], ...]
    agreements: tuple[Agreement, ...]
    whole: frozenset[int]

    def tile_multiple(self, stages: Sequence[ComposeStage], dim: int) -> int:
        """Return the number that tiles of `dim` are multiples of, such that each stage's tiles are of its own."""
        multiple = 1
        for stage, own in zip(stages, self.stages, strict=True):
            for number, extent in enumerate(own):
                own_multiple = stage.op.tile_multiple(number)
                multiple = lcm(
                    multiple, *(own_multiple // gcd(own_multiple, c) for other, c in extent.terms if other == dim)
                )
        return multiple


def wire(stages: Sequence[ComposeStage], inputs: int) -> Wiring:
    """Return the iteration dimensions of these validated stages."""
    maker = _Maker()
    asked: dict[int, list[tuple[Extent, ...]]] = {}
    names: dict[int, str] = {}
    wired: list[tuple[Extent, ...]] = []
    for number, stage in enumerate(stages):
        # No stage reads the output of the first, nor some other outputs.
        wanted = maker.agree(f"the output of {stage.op}", asked[~number]) if ~number in asked else None
        own = maker.stage(number, stage, wanted)
        wired.append(own)
        for entry, one in zip(stage.inputs, stage.reads, strict=True):
            asked.setdefault(entry, []).append(tuple(each.within(own) for each in extents(one)))
            names.setdefault(entry, f"{one.name}{number}")
    external = [maker.agree(names[entry], asked[entry]) for entry in range(inputs)]
    return maker.wiring(stages, wired, external)


@attrs.define
class _Maker:
    """A union-find structure over the dimensions so far."""

    origins: list[tuple[int, int]] = attrs.field(factory=list[tuple[int, int]])
    parents: list[int] = attrs.field(factory=list[int])
    whole: set[int] = attrs.field(factory=set[int])
    #: The sizes, less 1, of dimensions that can have no other; they are none of the Compose.
    fixed: dict[int, int] = attrs.field(factory=dict[int, int])
    unified: set[int] = attrs.field(factory=set[int])
    agreements: list[Agreement] = attrs.field(factory=list[Agreement])

    def stage(self, number: int, stage: ComposeStage, wanted: tuple[Extent, ...] | None) -> tuple[Extent, ...]:
        """Return a stage's own dimensions: those of its output are given by `wanted`, all others are new."""
        wanted_of: dict[int, Extent] = {}
        late: list[tuple[Extent, Extent]] = []
        for written, want in zip(extents(stage.output), wanted, strict=True) if wanted is not None else ():
            if written.is_dimension and written.terms[0][0] not in wanted_of:
                wanted_of[written.terms[0][0]] = want
            else:
                late.append((written, want))
        dims = tuple(wanted_of[dim] if dim in wanted_of else self._fresh(number, dim) for dim in range(stage.rank))
        for written, want in late:
            self._same(f"the output of {stage.op}", want, written.within(dims))
        return dims

    def agree(self, tensor: str, asked: list[tuple[Extent, ...]]) -> tuple[Extent, ...]:
        """Return the extents of a tensor that several stages read."""
        for other in asked[1:]:
            for one, each in zip(asked[0], other, strict=True):
                self._same(tensor, one, each)
        return asked[0]

    def _fresh(self, number: int, dim: int) -> Extent:
        self.origins.append((number, dim))
        self.parents.append(len(self.parents))
        return Extent(((len(self.parents) - 1, 1),))

    def _find(self, dim: int) -> int:
        while self.parents[dim] != dim:
            dim = self.parents[dim]
        return dim

    def _same(self, tensor: str, extent: Extent, other: Extent) -> None:
        """Unify two extents of equal size; keep dimensions whole where they are sums that differ."""
        extent, other = self._renamed(extent), self._renamed(other)
        if extent == other:
            return
        if extent.is_dimension and other.is_dimension:
            first, second = sorted((extent.terms[0][0], other.terms[0][0]))
            self.parents[second] = first
            self.unified.update((first, second))
        else:
            apart = merged((*extent.terms, *((dim, -c) for dim, c in other.terms)))
            if len(apart) == 1:
                (dim, c), less = apart[0], extent.less - other.less
                if less % c == 0 and less // c >= 0:
                    self.fixed[dim] = less // c
            self.whole.update(dim for dim, _ in extent.terms + other.terms)
            self.agreements.append(Agreement(tensor, extent, other))

    def _renamed(self, extent: Extent) -> Extent:
        pairs = [(self._find(dim), c) for dim, c in extent.terms]
        less = extent.less - sum(c * self.fixed.get(dim, 0) for dim, c in pairs)
        return Extent(merged((dim, c) for dim, c in pairs if dim not in self.fixed), less)

    def wiring(
        self, stages: Sequence[ComposeStage], stage_dims: list[tuple[Extent, ...]], external: list[tuple[Extent, ...]]
    ) -> Wiring:
        """Return the result, with dimensions numbered in order of creation."""
        roots = [dim for dim, parent in enumerate(self.parents) if dim == parent and dim not in self.fixed]
        number = {dim: index for index, dim in enumerate(roots)}

        def final(dims: Sequence[Extent]) -> tuple[Extent, ...]:
            renamed = map(self._renamed, dims)
            return tuple(Extent(merged((number[dim], c) for dim, c in one.terms), one.less) for one in renamed)

        def numbers(dims: Iterable[int]) -> set[int]:
            return {number[root] for root in map(self._find, dims) if root not in self.fixed}

        final_dims = tuple(map(final, stage_dims))
        whole, unified = numbers(self.whole), numbers(self.unified)
        for stage, found in zip(stages, final_dims, strict=True):
            whole.update(dim for kept in stage.op.untiled(stage.rank) for dim, _ in found[kept].terms)
            # A tile of two dimensions of a stage that are one would be on its diagonal.
            every = [dim for extent in found for dim, _ in extent.terms]
            whole.update(dim for dim in unified if every.count(dim) > 1)
        agreements = [Agreement(each.tensor, *final((each.one, each.other))) for each in self.agreements]
        return Wiring(
            tuple(self.origins[dim] for dim in roots),
            final_dims,
            tuple(map(final, external)),
            tuple(each for each in agreements if each.one != each.other),
            frozenset(whole),
        )


#: A rank that all operations without a fixed one accept.
_SOME_RANK = 32


class Part(Protocol):
    """An operation, or a graph that stands for one."""

    @property
    def rank(self) -> int | None: ...
    def operands(self, rank: int, /) -> tuple[Operand, ...]: ...


def names_of(op: Part) -> tuple[list[str], str]:
    """Return the names of the inputs and of the output, which do not depend on the rank."""
    operands = op.operands(op.rank or _SOME_RANK)
    return [one.name for one in operands if not one.writes], operands[-1].name


def chained(ops: Sequence[Part]) -> tuple[tuple[int, ...], ...]:
    """Return the inputs of each stage of a chain: the output of the next one, then external inputs."""
    wires: list[tuple[int, ...]] = []
    external = 0
    for number, op in enumerate(ops, 1):
        own = len(names_of(op)[0]) - (number < len(ops))
        linked = (~number,) if number < len(ops) else ()
        wires.append((*linked, *range(external, external + own)))
        external += own
    return tuple(wires)


def ranks_of(
    ops: Sequence[Part], wires: Sequence[Sequence[int]], outputs: Mapping[int, int] = MappingProxyType({})
) -> tuple[int, ...]:
    """Return the ranks of stages with these inputs, inferred from fixed ones, or else from those of the outputs.

    `outputs` has the numbers of dimensions of the outputs of some stages.

    Raises SpecError if they are not determined.
    """
    ranks = [op.rank for op in ops]
    _spread_ranks(ops, wires, ranks)
    for number, dims in outputs.items():
        if ranks[number] is None:
            ranks[number] = _rank(ops[number], -1, dims)
            _spread_ranks(ops, wires, ranks)
    unknown = [str(op) for op, rank in zip(ops, ranks, strict=True) if rank is None]
    if unknown:
        raise SpecError(
            f"the number of dimensions of {unknown[0]} does not follow from the other operations",
            "connect it with the others: let one read its output or compute its input",
        )
    return tuple(rank for rank in ranks if rank is not None)


def _spread_ranks(ops: Sequence[Part], wires: Sequence[Sequence[int]], ranks: list[int | None]) -> None:
    """Infer ranks from known ones: all operations see a tensor with as many dimensions."""
    dims: dict[int, int] = {}
    progress = True
    while progress:
        before = list(ranks)
        for number, (op, wire) in enumerate(zip(ops, wires, strict=True)):
            entries = (*wire, ~number)
            place = next((place for place, entry in enumerate(entries) if entry in dims), None)
            if ranks[number] is None and place is not None:
                ranks[number] = _rank(op, place if place < len(wire) else -1, dims[entries[place]])
            if (rank := ranks[number]) is not None:
                for entry, one in zip(entries, op.operands(rank), strict=False):
                    dims.setdefault(entry, len(one.dims))
        progress = ranks != before


def _rank(op: Part, operand: int, dims: int) -> int:
    """Return the rank at which this operand has `dims` dimensions."""
    for rank in (dims, dims - 1, dims + 1):
        if rank >= 0 and len(op.operands(rank)[operand].dims) == dims:
            return rank
    raise SpecError(
        f"{op} has no operand {op.operands(dims)[operand].name} of {dims} dimensions",
        "compose it with operations on as many dimensions",
    )
