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
from morello.search.tables.operand_states import NEVER, States

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Run(IntEnum):
    """How values lie along the innermost dimension."""

    NONE = 0  # apart from each other; or there is one value, or no layout
    DENSE = 1  # one after another, but not all of the tensor
    FULL = 2  # the whole tensor is one run
    STRIPS = 3
    ODD_EVEN = 4


#: What is not told apart where sizes are `blurred`.
TWIN = [Run.NONE, Run.FULL, Run.DENSE, Run.STRIPS, Run.ODD_EVEN]


@attrs.frozen(cache_hash=True)
class Pattern:
    """What these bounds know of an operand state: its class, its innermost dimension, and how values lie along it."""

    cls: int
    dim: int = -1
    run: Run = Run.NONE

    def tiled(self, whole: Ints, tile: Ints) -> list[tuple[Run, Bools]]:
        """How values of tiles lie, and where; sizes are [dimensions, n]. Where there are two answers, it is either."""
        if self.run == Run.NONE:
            return [(Run.NONE, np.ones(whole.shape[1], dtype=np.bool_))]
        single = (tile[self.dim] == 1) & (whole[self.dim] > 1)
        if self.run in (Run.STRIPS, Run.ODD_EVEN):
            return [(Run.NONE, single), (self.run, ~single)]
        alone = ~single & (np.sum(tile > 1, axis=0) == 1) & (tile[self.dim] > 1)
        cut = ~single & ~alone & (tile[self.dim] < whole[self.dim])
        kept = ~(single | alone | cut)
        # The order of the other dimensions decides, which is not known.
        unsure = kept & blurred(whole) & ~blurred(tile)
        return [(Run.NONE, single), (Run.FULL, alone), (Run.DENSE, cut), (self.run, kept), (TWIN[self.run], unsure)]

    def lying(self, run: Run) -> Pattern:
        """The pattern of the same class whose values lie in another way along the same dimension."""
        return Pattern(self.cls) if run == Run.NONE else attrs.evolve(self, run=run)

    def under(self, axes: Sequence[int | None], cls: int) -> Pattern | None:
        """The pattern seen under other dimensions, None if its innermost is left out."""
        if self.run == Run.NONE:
            return Pattern(cls)
        return Pattern(cls, axes.index(self.dim), self.run) if self.dim in axes else None


def blurred(sizes: Ints) -> Bools:
    """Whether tensors of these sizes, [dimensions, n], have so many dimensions that their order decides what tiles
    are: DENSE and FULL have the same bounds there.
    """
    return np.sum(sizes > 1, axis=0) > 2


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
        self.all: list[Pattern] = []
        #: Per pattern, those of the states that it stands for.
        self.stands: list[set[int]] = []
        #: The pattern of each state.
        self.of = np.array(
            [self._number(_pattern(states.class_of[at], state)) for at, (_, state) in enumerate(states.states)],
            dtype=np.int64,
        )
        self._close()
        #: Per pattern and Run, the pattern whose values lie so; itself if there is none.
        self.lying = np.array(
            [[self.numbers.get(one.lying(run), number) for run in Run] for number, one in enumerate(self.all)]
        )
        #: Per pattern, the states that it stands for.
        self.members = [np.flatnonzero(np.isin(self.of, [*stands])) for stands in self.stands]
        #: What the cheapest of them costs and the smallest takes, per tensor shape; infinite where none can be.
        shape = len(self.all), states.cost.shape[1]
        self.cost, self.bytes = np.full(shape, np.inf), np.full(shape, NEVER)
        for number, members in enumerate(self.members):
            if len(members):
                self.cost[number], self.bytes[number] = states.cost[members].min(0), states.bytes[members].min(0)

    def __len__(self) -> int:
        return len(self.numbers)

    def _number(self, pattern: Pattern) -> int:
        if pattern not in self.numbers:
            self.numbers[pattern] = len(self.numbers)
            self.all.append(pattern)
            self.stands.append({self.numbers[pattern]})
        return self.numbers[pattern]

    def _close(self) -> None:
        """Let patterns stand for those of all that their states' tiles are."""
        changed = True
        while changed:
            changed = False
            for number, pattern in [*enumerate(self.all)]:
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
        ways = [(pattern.lying(run), where) for run, where in pattern.tiled(whole, tile) if np.any(where)]
        found = [(self._number(into), where) for into, where in ways]
        known = np.zeros(len(pairs), dtype=np.bool_)
        for into, where in found:
            stands = [*self.stands[into]]
            twins = [self.numbers.get(self.all[one].lying(TWIN[self.all[one].run]), one) for one in stands]
            known |= where & (np.isin(made, stands) | (blurred(tile) & np.isin(made, twins)))
        for into, where in found:
            fresh = made[where & ~known]
            known |= where
            yield into, {*np.unique(fresh).tolist()}
        for (own, axes), row in states.under.items():
            if own == rank and row[state] >= 0:
                seen = pattern.under(axes, int(states.cls[row[state]]))
                assert seen is not None, "what a state has, its pattern has"
                yield self._number(seen), {int(self.of[row[state]])}
