"""The k cheapest programs of a Spec, in order: the optimum first, then what deviates from it least ([Huang2005])."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import attrs

from morello.codegen.forms import Forms
from morello.ir.impl import Impl, Leaf, Node, expand
from morello.ir.spec import Spec
from morello.rewrites.base import Rewrite
from morello.search.block_search import BlockSearch

#: Other steps of a Spec that are asked for at first; twice as many whenever these are not enough.
_FIRST = 8


@attrs.frozen
class Ranked:
    """A program and its cost under the model; `form` is the number of what is printed of it, if that was asked for."""

    cost: int
    impl: Impl
    form: int = -1


def cheapest(search: BlockSearch, spec: Spec, *, printed: bool = False) -> Iterator[Ranked]:
    """Yield all programs that search knows of a Spec, cheapest first. Those of equal cost come in a fixed order.

    Of those that are surely `printed` alike only the first is yielded: see `morello.codegen.forms`.
    """
    streams = _Streams(search, Forms() if printed else None)
    number = 0
    while (found := streams.of(spec).get(number)) is not None:
        yield found
        number += 1


@attrs.define
class _Streams:
    """The programs of all Specs on the way, each worked out as far as it was asked for."""

    search: BlockSearch
    forms: Forms | None
    known: dict[Spec, _Stream] = attrs.field(factory=dict[Spec, "_Stream"])

    def of(self, spec: Spec) -> _Stream:
        if spec not in self.known:
            self.known[spec] = _Stream(self, spec)
        return self.known[spec]


@attrs.define
class _Opened:
    """A step that was taken: its node, and the Specs of its parts."""

    node: Node
    parts: tuple[Spec, ...]


@attrs.define
class _Stream:
    """The programs of a Spec in order. Of each step, and of all further ones, the heap has what they cost at least."""

    streams: _Streams
    spec: Spec
    found: list[Ranked] = attrs.field(factory=list[Ranked])
    #: Bound, kind (0: more steps, 1: a step, 2: a program), number of the step, ranks of the programs of its parts.
    heap: list[tuple[int, int, int, tuple[int, ...]]] = attrs.field(factory=lambda: [(0, _MORE, 0, ())], init=False)
    steps: list[Rewrite] = attrs.field(factory=list[Rewrite])
    opened: dict[int, _Opened] = attrs.field(factory=dict[int, _Opened])
    printed: set[int] = attrs.field(factory=set[int])
    seen: set[tuple[int, tuple[int, ...]]] = attrs.field(factory=set[tuple[int, tuple[int, ...]]])

    def get(self, number: int) -> Ranked | None:
        """Return the program of a rank, from 0 on; None if there are not so many."""
        while len(self.found) <= number and self.heap:
            cost, kind, step, ranks = heapq.heappop(self.heap)
            if kind == _MORE:
                self._ask(step)
            elif kind == _STEP:
                self._open(step)
            else:
                self._take(cost, step, ranks)
                for part in range(len(ranks)):
                    self._push(step, (*ranks[:part], ranks[part] + 1, *ranks[part + 1 :]))
        return self.found[number] if len(self.found) > number else None

    def _ask(self, asked: int) -> None:
        """Ask for more steps than there were, and put those on the heap that are new."""
        count = 2 * asked or _FIRST
        alternatives = self.streams.search.alternatives(self.spec, count)
        for one in alternatives:
            if one.step not in self.steps:
                self.steps.append(one.step)
                heapq.heappush(self.heap, (one.cost, _STEP, len(self.steps) - 1, ()))
        if len(alternatives) > count:
            # All others cost at least as much as the last one.
            heapq.heappush(self.heap, (alternatives[-1].cost, _MORE, count, ()))

    def _open(self, number: int) -> None:
        search = self.streams.search
        step = self.steps[number]
        node = expand(self.spec, step.expansion(self.spec.logical, search.target), search.target.grids)
        if node is not None:
            self.opened[number] = _Opened(node, tuple(leaf.spec for leaf in node.children if isinstance(leaf, Leaf)))
            self._push(number, (0,) * len(node.children))

    def _push(self, number: int, ranks: tuple[int, ...]) -> None:
        """Put the program on the heap that consists of programs of these ranks, if there are all of them."""
        if (number, ranks) in self.seen:
            return
        self.seen.add((number, ranks))
        parts = self._parts(number, ranks)
        if parts is not None:
            expansion = self.opened[number].node.expansion
            pairs = zip(expansion.parts, parts, strict=True)
            cost = int(expansion.cost) + sum(int(part.times) * one.cost for part, one in pairs)
            heapq.heappush(self.heap, (cost, _PROGRAM, number, ranks))

    def _parts(self, number: int, ranks: Sequence[int]) -> list[Ranked] | None:
        found: list[Ranked] = []
        for spec, rank in zip(self.opened[number].parts, ranks, strict=True):
            one = self.streams.of(spec).get(rank)
            if one is None:
                return None
            found.append(one)
        return found

    def _take(self, cost: int, number: int, ranks: Sequence[int]) -> None:
        """Take a program into the list, unless one that came before is printed alike."""
        parts, forms = self._parts(number, ranks), self.streams.forms
        assert parts is not None, "it was on the heap"
        node = attrs.evolve(self.opened[number].node, children=tuple(one.impl for one in parts))
        form = forms.of(node, [one.form for one in parts]) if forms else -1
        if form < 0 or form not in self.printed:
            self.printed.add(form)
            self.found.append(Ranked(cost, node, form))


_MORE, _STEP, _PROGRAM = range(3)
