"""Patterns: what bounds know of operand states beyond their classes, and which states each pattern stands for.

A pattern may stand for states of several patterns, if tiles of its own states have them: which, is found out from all
the states that there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import attrs
import numpy as np

from morello.ir.tensor import OperandState
from morello.search.arrays import Bools, Floats, Ints
from morello.search.tables.loops import LoopTables
from morello.search.tables.operand_states import NEVER
from morello.search.tables.pipelines import DimMap, PipelineTables
from morello.search.tables.search_tables import SearchTables


class Run(IntEnum):
    """The way values lie along the innermost dimension."""

    NONE = 0  # apart from each other; or there is one value, or no layout
    DENSE = 1  # one after another, but not all of the tensor
    FULL = 2  # the whole tensor is one run
    STRIPS = 3
    ODD_EVEN = 4


#: Per Run, the one that it is not told apart from where sizes are `blurred`.
TWIN = [Run.NONE, Run.FULL, Run.DENSE, Run.STRIPS, Run.ODD_EVEN]


@attrs.frozen(cache_hash=True)
class Pattern:
    """All that these bounds know of an operand state: class, innermost dimension, and how values lie along that."""

    cls: int
    dim: int = -1
    run: Run = Run.NONE

    def tiled(self, whole: Ints, tile: Ints) -> list[tuple[Run, Bools]]:
        """Return the ways that values of tiles lie, and for which tiles, [n]; sizes are [dimensions, n].

        A tile of which two ways are told lies in either.
        """
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
        """Return the pattern of the same class whose values lie in another way along the same dimension."""
        return Pattern(self.cls) if run == Run.NONE else attrs.evolve(self, run=run)

    def under(self, dim_map: DimMap, cls: int) -> Pattern | None:
        """Return the pattern seen under other dimensions, None if its innermost is left out."""
        if self.run == Run.NONE:
            return Pattern(cls)
        return Pattern(cls, dim_map.index(self.dim), self.run) if self.dim in dim_map else None


def blurred(sizes: Ints) -> Bools:
    """Return which tensors, of sizes [dimensions, n], have so many dimensions that their order decides what tiles are.

    DENSE and FULL have the same bounds there.
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
    """All patterns that states and their tiles have, numbered, and what is known of the states they stand for.

    `of`, [states], is the pattern of each state. `cost` and `bytes`, [patterns, tensors], are what the cheapest state
    of a pattern costs to move (m of [Kaufman2025]) and the smallest takes; infinite where none can be.
    """

    def __init__(self, tables: SearchTables):
        self._tables = tables
        self._loops, self._pipelines = tables.of(LoopTables), tables.of(PipelineTables)
        states = tables.states
        self.numbers: dict[Pattern, int] = {}
        self.all: list[Pattern] = []
        #: Per pattern, those of the states that it stands for.
        self.stands: list[set[int]] = []
        self.of: Ints = np.array(
            [
                self._number(_pattern(cls, state))
                for cls, (_, state) in zip(states.class_of, states.states, strict=True)
            ],
            dtype=np.int64,
        )
        self._close()
        #: The pattern whose values lie so, [patterns, runs]; the pattern itself if there is none.
        self.lying: Ints = np.array(
            [[self.numbers.get(pattern.lying(run), number) for run in Run] for number, pattern in enumerate(self.all)]
        )
        #: Per pattern, the states that it stands for.
        self.members = [np.flatnonzero(np.isin(self.of, [*stands])) for stands in self.stands]
        shape = len(self.all), states.cost.shape[1]
        self.cost: Floats = np.full(shape, np.inf)
        self.bytes: Ints = np.full(shape, NEVER)
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
        """Close patterns under tiling: each also stands for the patterns of its states' tiles."""
        changed = True
        while changed:
            changed = False
            for number, pattern in [*enumerate(self.all)]:
                for state in np.flatnonzero(np.isin(self.of, [*self.stands[number]])).tolist():
                    for into, patterns in self._led_to(pattern, state):
                        if not patterns <= self.stands[into]:
                            self.stands[into] |= patterns
                            changed = True

    def _led_to(self, pattern: Pattern, state: int) -> Iterator[tuple[int, set[int]]]:
        """Yield patterns that one leads to, and those of what one of the states that it stands for leads to."""
        yield from self._tiled(pattern, state)
        rank = self._tables.states.states[state][0]
        for (own, dim_map), numbers in self._pipelines.under.items():
            if own == rank and numbers[state] >= 0:
                seen = pattern.under(dim_map, int(self._tables.states.cls[numbers[state]]))
                assert seen is not None, "what a state has, its pattern has"
                yield self._number(seen), {int(self.of[numbers[state]])}

    def _tiled(self, pattern: Pattern, state: int) -> Iterator[tuple[int, set[int]]]:
        """Yield patterns that tiles have by the pattern alone, and those that tiles of the state have beside them."""
        rank = self._tables.states.states[state][0]
        tensors, tiles = self._loops.cut_tensors(rank)
        cuts = np.flatnonzero(self._loops.tile[state, : len(tensors)] >= 0)
        dims = self._tables.spaces.tensors[rank].dims
        whole, tile = dims[:, tensors[cuts]], dims[:, tiles[cuts]]
        actual = self.of[self._loops.tile[state, cuts]]
        ways = [(pattern.lying(run), where) for run, where in pattern.tiled(whole, tile) if np.any(where)]
        expected = [(self._number(into), where) for into, where in ways]
        explained = np.zeros(len(cuts), dtype=np.bool_)
        for into, where in expected:
            stands = [*self.stands[into]]
            twins = [self.numbers.get(self.all[number].lying(TWIN[self.all[number].run]), number) for number in stands]
            explained |= where & (np.isin(actual, stands) | (blurred(tile) & np.isin(actual, twins)))
        for into, where in expected:
            further = actual[where & ~explained]
            explained |= where
            yield into, {*np.unique(further).tolist()}
