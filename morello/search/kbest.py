"""The k cheapest programs of a Spec, in order of cost, found lazily ([Huang2005])."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import attrs

from morello.codegen.forms import Forms
from morello.ir.impl import Impl, Node, expand
from morello.ir.spec import Spec
from morello.rewrites.base import Rewrite
from morello.search.session import SearchSession

#: Alternative steps of a Spec requested at first; the number doubles whenever they are used up.
_FIRST = 8


@attrs.frozen
class RankedProgram:
    """A program and its cost under the model; equal `form`s mean equal C, unless they are -1."""

    cost: int
    impl: Impl
    form: int = -1


def cheapest(search: SearchSession, spec: Spec, *, printed: bool = False) -> Iterator[RankedProgram]:
    """Yield all programs of a Spec, cheapest first, in a fixed order.

    With `printed`, skip programs whose C is surely that of an earlier one: see `morello.codegen.forms`.
    """
    streams = _Streams(search, Forms() if printed else None)
    number = 0
    while (found := streams.of(spec).get(number)) is not None:
        yield found
        number += 1


@attrs.define
class _Streams:
    """The programs of all Specs below a Spec, each list computed as far as requested."""

    search: SearchSession
    forms: Forms | None
    known: dict[Spec, _Stream] = attrs.field(factory=dict[Spec, "_Stream"])

    def of(self, spec: Spec) -> _Stream:
        if spec not in self.known:
            self.known[spec] = _Stream(self, spec)
        return self.known[spec]


@attrs.define
class _Stream:
    """The programs of a Spec in order. The heap has lower bounds of steps not yet expanded."""

    streams: _Streams
    spec: Spec
    found: list[RankedProgram] = attrs.field(factory=list[RankedProgram])
    #: Bound, kind (_MORE steps, a _STEP, a _PROGRAM), number of the step, ranks of the programs of its parts.
    heap: list[tuple[int, int, int, tuple[int, ...]]] = attrs.field(factory=lambda: [(0, _MORE, 0, ())], init=False)
    steps: list[Rewrite] = attrs.field(factory=list[Rewrite])
    expanded: dict[int, Node] = attrs.field(factory=dict[int, Node])
    printed: set[int] = attrs.field(factory=set[int])
    seen: set[tuple[int, tuple[int, ...]]] = attrs.field(factory=set[tuple[int, tuple[int, ...]]])

    def get(self, number: int) -> RankedProgram | None:
        """Return the program of a rank, counting from 0, or None."""
        while len(self.found) <= number and self.heap:
            cost, kind, step, ranks = heapq.heappop(self.heap)
            if kind == _MORE:
                self._request(step)
            elif kind == _STEP:
                self._expand(step)
            else:
                self._take(cost, step, ranks)
                for part in range(len(ranks)):
                    self._push(step, (*ranks[:part], ranks[part] + 1, *ranks[part + 1 :]))
        return self.found[number] if len(self.found) > number else None

    def _request(self, before: int) -> None:
        """Request twice as many steps as before, and push the new ones."""
        count = 2 * before or _FIRST
        alternatives = self.streams.search.alternatives(self.spec, count)
        for one in alternatives:
            if one.step not in self.steps:
                self.steps.append(one.step)
                heapq.heappush(self.heap, (one.cost, _STEP, len(self.steps) - 1, ()))
        if len(alternatives) > count:
            # The cost of the last one bounds those of all further ones.
            heapq.heappush(self.heap, (alternatives[-1].cost, _MORE, count, ()))

    def _expand(self, number: int) -> None:
        search = self.streams.search
        step = self.steps[number]
        node = expand(self.spec, step.expansion(self.spec.logical, search.target), search.target.grids)
        if node is not None:
            self.expanded[number] = node
            self._push(number, (0,) * len(node.children))

    def _push(self, number: int, ranks: tuple[int, ...]) -> None:
        """Push the program whose parts have these ranks, if all of them exist."""
        if (number, ranks) in self.seen:
            return
        self.seen.add((number, ranks))
        parts = self._parts(number, ranks)
        if parts is not None:
            expansion = self.expanded[number].expansion
            pairs = zip(expansion.parts, parts, strict=True)
            cost = int(expansion.cost) + sum(int(part.times) * one.cost for part, one in pairs)
            heapq.heappush(self.heap, (cost, _PROGRAM, number, ranks))

    def _parts(self, number: int, ranks: Sequence[int]) -> list[RankedProgram] | None:
        found: list[RankedProgram] = []
        for leaf, rank in zip(self.expanded[number].children, ranks, strict=True):
            one = self.streams.of(leaf.spec).get(rank)
            if one is None:
                return None
            found.append(one)
        return found

    def _take(self, cost: int, number: int, ranks: Sequence[int]) -> None:
        """Append a program, unless an earlier one has its form."""
        parts, forms = self._parts(number, ranks), self.streams.forms
        assert parts is not None, "it was on the heap"
        node = attrs.evolve(self.expanded[number], children=tuple(one.impl for one in parts))
        form = forms.of(node, [one.form for one in parts]) if forms else -1
        if form < 0 or form not in self.printed:
            self.printed.add(form)
            self.found.append(RankedProgram(cost, node, form))


_MORE, _STEP, _PROGRAM = range(3)
