"""Which iteration dimensions a Compose has: those of its stages, tied where one reads what another writes.

A dimension of a stage that makes an intermediate is what its consumers ask for: a sum of the Compose's own
dimensions, so a tile of the output asks every stage for the tile that it needs. Where a tensor is asked for in
several ways, no tile of it would do for all of them: what is asked is kept whole, and its sizes must agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, lcm
from typing import Any

import attrs

from morello.ir.ops.base import Operand, Operation

Terms = tuple[tuple[int, int], ...]


@attrs.frozen(cache_hash=True)
class Stage:
    """One operation of a Compose, with its number of iteration dimensions and what it reads.

    Entry e ≥ 0 of `inputs` is external input number e, entry ~j the output of stage j; one for each operand that
    the operation reads and does not write.
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


@attrs.frozen
class Agreement:
    """Two ways to ask for one dimension of a tensor, whose sizes must agree."""

    tensor: str
    one: Terms
    other: Terms


@attrs.frozen
class Wiring:
    """The iteration dimensions of a Compose, and all else in terms of them.

    `origins` says for each of them which dimension of which stage it is; `terms` gives, for each stage, its own
    iteration dimensions; `inputs` each external input; `whole` what cannot be tiled.
    """

    origins: tuple[tuple[int, int], ...]
    terms: tuple[tuple[Terms, ...], ...]
    inputs: tuple[tuple[Terms, ...], ...]
    agreements: tuple[Agreement, ...]
    whole: frozenset[int]

    def granule(self, stages: Sequence[Stage], dim: int) -> int:
        """Tiles of `dim` begin at multiples of this, as each stage's own tiles do."""
        found = 1
        for stage, own in zip(stages, self.terms, strict=True):
            for number, terms in enumerate(own):
                granule = stage.op.granule(number)
                found = lcm(found, *(granule // gcd(granule, c) for other, c in terms if other == dim))
        return found


def size_of(terms: Terms, sizes: Sequence[Any]) -> Any:
    """The size of a dimension that is this sum, where the dimensions in it have `sizes`."""
    return 1 + sum(c * (sizes[dim] - 1) for dim, c in terms)


def substituted(terms: Terms, own: Sequence[Terms]) -> Terms:
    """A sum of a stage's dimensions as a sum of what these are sums of."""
    return merged((dim, c * factor) for outer, factor in terms for dim, c in own[outer])


def merged(pairs: Any) -> Terms:
    """Terms in order, at most one per dimension."""
    total: dict[int, int] = {}
    for dim, c in pairs:
        total[dim] = total.get(dim, 0) + c
    return tuple(sorted((dim, c) for dim, c in total.items() if c))


def wire(stages: Sequence[Stage], inputs: int) -> Wiring:
    """The iteration dimensions of these stages, whose form has been checked."""
    maker = _Maker()
    asked: dict[int, list[tuple[Terms, ...]]] = {}
    names: dict[int, str] = {}
    terms: list[tuple[Terms, ...]] = []
    for number, stage in enumerate(stages):
        wanted = maker.agree(f"the output of {stage.op}", asked[~number]) if number else ()
        own = maker.stage(number, stage, wanted)
        terms.append(own)
        for entry, one in zip(stage.inputs, stage.reads, strict=True):
            asked.setdefault(entry, []).append(tuple(substituted(each, own) for each in one.dims))
            names.setdefault(entry, f"{one.name}{number}")
    external = [maker.agree(names[entry], asked[entry]) for entry in range(inputs)]
    return maker.wiring(stages, terms, external)


@attrs.define
class _Maker:
    """Dimensions made so far, with those that turned out to be the same."""

    origins: list[tuple[int, int]] = attrs.field(factory=list)
    parents: list[int] = attrs.field(factory=list)
    whole: set[int] = attrs.field(factory=set)
    agreements: list[Agreement] = attrs.field(factory=list)

    def stage(self, number: int, stage: Stage, wanted: tuple[Terms, ...]) -> tuple[Terms, ...]:
        """A stage's own dimensions: those of its output are what is wanted of it, all others new."""
        own: dict[int, Terms] = {}
        late: list[tuple[Terms, Terms]] = []
        for written, want in zip(stage.output.dims, wanted, strict=bool(number)):
            if len(written) == 1 and written[0][1] == 1 and written[0][0] not in own:
                own[written[0][0]] = want
            else:
                late.append((written, want))
        found = tuple(own[dim] if dim in own else self._fresh(number, dim) for dim in range(stage.rank))
        for written, want in late:
            self._same(f"the output of {stage.op}", want, substituted(written, found))
        return found

    def agree(self, tensor: str, asked: list[tuple[Terms, ...]]) -> tuple[Terms, ...]:
        """What is wanted of a tensor that several stages ask for."""
        for other in asked[1:]:
            for one, each in zip(asked[0], other, strict=True):
                self._same(tensor, one, each)
        return asked[0]

    def _fresh(self, number: int, dim: int) -> Terms:
        self.origins.append((number, dim))
        self.parents.append(len(self.parents))
        return ((len(self.parents) - 1, 1),)

    def _find(self, dim: int) -> int:
        while self.parents[dim] != dim:
            dim = self.parents[dim]
        return dim

    def _same(self, tensor: str, one: Terms, other: Terms) -> None:
        """Two sums are one size. What differs is kept whole: a tile of the one is no tile of the other."""
        one, other = self._renamed(one), self._renamed(other)
        if one == other:
            return
        self.whole.update(dim for dim, _ in one + other)
        if all(len(terms) == 1 and terms[0][1] == 1 for terms in (one, other)):
            first, second = sorted((one[0][0], other[0][0]))
            self.parents[second] = first
        else:
            self.agreements.append(Agreement(tensor, one, other))

    def _renamed(self, terms: Terms) -> Terms:
        return merged((self._find(dim), c) for dim, c in terms)

    def wiring(
        self, stages: Sequence[Stage], terms: list[tuple[Terms, ...]], external: list[tuple[Terms, ...]]
    ) -> Wiring:
        """All of it, with dimensions numbered in the order in which they came up."""
        roots = [dim for dim, parent in enumerate(self.parents) if dim == parent]
        number = {dim: index for index, dim in enumerate(roots)}

        def final(sums: Sequence[Terms]) -> tuple[Terms, ...]:
            return tuple(merged((number[self._find(dim)], c) for dim, c in one) for one in sums)

        own = tuple(map(final, terms))
        whole = {number[self._find(dim)] for dim in self.whole}
        for stage, sums in zip(stages, own, strict=True):
            whole.update(dim for kept in stage.op.untiled(stage.rank) for dim, _ in sums[kept])
        return Wiring(
            tuple(self.origins[dim] for dim in roots),
            own,
            tuple(map(final, external)),
            tuple(Agreement(each.tensor, *final((each.one, each.other))) for each in self.agreements),
            frozenset(whole),
        )
