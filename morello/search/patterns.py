"""Patterns: what bounds know of operand states beyond their classes, and which states each pattern stands for.

A pattern may stand for states of several patterns, if tiles of its own states have them: which, is found out from all
the states that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.tensor import OperandState
from morello.search.states import States

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Run(IntEnum):
    """How values lie along the innermost dimension."""

    NONE = 0  # apart from each other; or there is one value, or no layout
    DENSE = 1  # one after another, but not all of the tensor
    FULL = 2  # the whole tensor is one run
    STRIPS = 3
    ODD_EVEN = 4


@attrs.frozen(cache_hash=True)
class Pattern:
    """What these bounds know of an operand state: its class, its innermost dimension, and how values lie along it."""

    cls: int
    dim: int = -1
    run: Run = Run.NONE

    def tiled(self, whole: Ints, tile: Ints) -> list[tuple[Pattern, Bools]]:
        """The patterns of tiles, and where they are; sizes are [dimensions, n]."""
        if self.run == Run.NONE:
            return [(self, np.ones(whole.shape[1], dtype=np.bool_))]
        single = (tile[self.dim] == 1) & (whole[self.dim] > 1)
        found = [(Pattern(self.cls), single)]
        if self.run in (Run.STRIPS, Run.ODD_EVEN):
            return [*found, (self, ~single)]
        alone = ~single & (np.sum(tile > 1, axis=0) == 1) & (tile[self.dim] > 1)
        cut = ~single & ~alone & (tile[self.dim] < whole[self.dim])
        kept = ~(single | alone | cut)
        found += [(self._lying(Run.FULL), alone), (self._lying(Run.DENSE), cut), (self, kept)]
        return found

    def _lying(self, run: Run) -> Pattern:
        return attrs.evolve(self, run=run)

    def under(self, axes: Sequence[int | None], cls: int) -> Pattern | None:
        """The pattern seen under other dimensions, None if its innermost is left out."""
        if self.run == Run.NONE:
            return Pattern(cls)
        return Pattern(cls, axes.index(self.dim), self.run) if self.dim in axes else None


def _pattern(cls: int, state: OperandState) -> Pattern:
    layout = state.layout
    if layout is None or not layout.dims or not state.contig:
        return Pattern(cls)
    run = Run.FULL if state.contig == len(layout.dims) else Run.DENSE
    if any(physical.odd_even for physical in layout.dims):
        run = Run.ODD_EVEN
    elif layout.has_strips:
        run = Run.STRIPS
    return Pattern(cls, layout.dims[-1].dim, run)


class Patterns:
    """All patterns that states and their tiles have, numbered, and what is known of the states they stand for."""

    def __init__(self, states: States):
        self.states = states
        self.numbers: dict[Pattern, int] = {}
        #: Per pattern, those of the states that it stands for.
        self.stands: list[set[int]] = []
        #: The pattern of each state.
        self.of = np.array(
            [self._number(_pattern(states.class_of[at], state)) for at, (_, state) in enumerate(states.states)],
            dtype=np.int64,
        )
        self._close()
        self.all = list(self.numbers)
        #: Per pattern, the states that it stands for.
        self.members = [np.flatnonzero(np.isin(self.of, [*stands])) for stands in self.stands]
        #: What the cheapest of them costs, per tensor shape; infinite where none can be.
        self.cost = np.full((len(self.all), states.cost.shape[1]), np.inf)
        for number, members in enumerate(self.members):
            if len(members):
                self.cost[number] = states.cost[members].min(0)

    def __len__(self) -> int:
        return len(self.numbers)

    def _number(self, pattern: Pattern) -> int:
        if pattern not in self.numbers:
            self.numbers[pattern] = len(self.numbers)
            self.stands.append({self.numbers[pattern]})
        return self.numbers[pattern]

    def _close(self) -> None:
        """Let patterns stand for those of all that their states' tiles are."""
        changed = True
        while changed:
            changed = False
            for number, pattern in [(number, pattern) for pattern, number in self.numbers.items()]:
                for state in np.flatnonzero(np.isin(self.of, [*self.stands[number]])).tolist():
                    for into, made in self._led_to(pattern, state):
                        if not made <= self.stands[into]:
                            self.stands[into] |= made
                            changed = True

    def _led_to(self, pattern: Pattern, state: int) -> Iterator[tuple[int, set[int]]]:
        """Patterns that one leads to, and those of what one of the states that it stands for leads to."""
        states = self.states
        rank = states.states[state][0]
        pairs = np.flatnonzero(states.tile[state, : len(states.tile_pairs(rank)[0])] >= 0)
        whole, tile = (states.tensors[rank].dims[:, side[pairs]] for side in states.tile_pairs(rank))
        made = self.of[states.tile[state, pairs]]
        for into, where in pattern.tiled(whole, tile) if len(pairs) else ():
            if np.any(where):
                yield self._number(into), {*np.unique(made[where]).tolist()}
        for (own, axes), row in states.under.items():
            if own == rank and row[state] >= 0:
                seen = pattern.under(axes, int(states.cls[row[state]]))
                assert seen is not None, "what a state has, its pattern has"
                yield self._number(seen), {int(self.of[row[state]])}
