"""Patterns: abstraction classes of operand states, finer than state classes.

The members of a pattern are the states that have it, and further states, such that tiles and views of members are
members of the pattern's tiles and views. The members are computed as a closure over all states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.dtypes import DType
from morello.ir.tensor import SPACINGS, Block, Collapsed, DimMap, Every, Only, OperandState, plain
from morello.search.arrays import Bools, Floats, Ints, distinct_numbers
from morello.search.budget import check_budget
from morello.search.tables.loops import LoopTables
from morello.search.tables.operand_states import NEVER, least
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.shapes import Space
from morello.search.tables.step_tables import SearchTables
from morello.search.tables.tiles import Kinds, Tiles

#: The distance of runs, in bytes, that patterns distinguish. Distinguishing more makes search slower.
FAR = SPACINGS[-1]


class Run:
    """The arrangement of values along the innermost dimension: integers, as those of `TileCode`."""

    NONE = 0  # apart, or a single value, or no layout
    DENSE = 1  # one after another, but not all of the tensor
    FULL = 2  # the whole tensor is one run
    DENSE_OR_FULL = 3  # the join of these two
    STRIPS = 4
    ODD_EVEN = 5
    ANY = 6  # unknown: any state of the class


@attrs.frozen(cache_hash=True)
class Pattern:
    """The class of an operand state, its innermost dimension, and the arrangement of values along that.

    `far`: `Run.DENSE` runs are multiples of `FAR` bytes apart.
    """

    cls: int
    dim: int = -1
    run: int = Run.NONE
    far: bool = False

    def lying(self, run: int, far: bool = False) -> Pattern:
        """Return the pattern of the same class and dimension with another arrangement."""
        if run in (Run.NONE, Run.ANY):
            return Pattern(self.cls, run=run)
        return attrs.evolve(self, run=run, far=far and run == Run.DENSE)

    def under(self, dim_map: DimMap, cls: int) -> Pattern | None:
        """Return the pattern of a view under other dimensions, None if its innermost is left out."""
        # Patterns lack the order of dimensions, which decides whether parts of a tensor are one run.
        parts = any(isinstance(axis, (Block, Only)) or (isinstance(axis, Every) and axis.step == 1) for axis in dim_map)
        if self.run == Run.ANY or parts:
            return Pattern(cls, run=Run.ANY)
        if self.run == Run.NONE or any(isinstance(axis, Every) and axis.dim == self.dim for axis in dim_map):
            return Pattern(cls)
        dims = [axis.outer if isinstance(axis, Collapsed) else axis for axis in dim_map], plain(dim_map)
        dim = next((own.index(self.dim) for own in dims if self.dim in own), None)
        if dim is None:
            return None
        seen = Pattern(cls, dim, self.run, self.far)
        skips = any(isinstance(axis, Every) for axis in dim_map)
        return seen.lying(Run.DENSE) if skips and self.run in (Run.DENSE, Run.FULL) else seen


class Cuts:
    """The cuts of tensors of one rank, and the arrangements of their tiles, which many patterns share.

    `whole` and `tile` are the sizes of both, [dimensions, cuts].
    """

    def __init__(self, whole: Ints, tile: Ints):
        self.whole, self.tile = whole, tile
        self._line = np.sum(tile > 1, axis=0) == 1
        self._joined = joined(tile)
        self._known: dict[tuple[int, int, bool, int], tuple[list[tuple[int, bool]], Kinds]] = {}

    def lying(self, pattern: Pattern, width: int) -> tuple[list[tuple[int, bool]], Kinds]:
        """Return the arrangement and `far` of each kind of tile, and the kinds, [cuts]. `width` is a value's bytes."""
        key = pattern.dim, pattern.run, pattern.far, width
        if key not in self._known:
            found: list[tuple[int, bool]] = []
            kinds = np.full(self.whole.shape[1], -1, dtype=np.int16)
            for run, far, there in self._lying(pattern, width):
                kinds[there] = len(found)
                found.append((run, far))
            self._known[key] = found, kinds
        return self._known[key]

    def _lying(self, pattern: Pattern, width: int) -> Iterator[tuple[int, bool, Ints]]:
        runs = self._runs(pattern)
        for run in np.flatnonzero(np.bincount(runs)).tolist():
            there = np.flatnonzero(runs == run)
            if run != Run.DENSE or pattern.run == Run.DENSE:
                yield run, pattern.far, there
                continue
            far = self.whole[pattern.dim, there] * width % FAR == 0
            for each in np.unique(far):
                yield Run.DENSE, bool(each), there[far == each]

    def _runs(self, pattern: Pattern) -> Ints:
        """Return the arrangements of tiles, [cuts]."""
        if pattern.run in (Run.NONE, Run.ANY):
            return np.full(len(self._line), pattern.run)
        whole, tile = self.whole[pattern.dim], self.tile[pattern.dim]
        single = (tile == 1) & (whole > 1)
        if pattern.run in (Run.STRIPS, Run.ODD_EVEN):
            return np.where(single, Run.NONE, pattern.run)
        alone = self._line & (tile > 1)
        runs: Ints = np.where(
            single, Run.NONE, np.where(alone, Run.FULL, np.where(tile < whole, Run.DENSE, pattern.run))
        )
        return np.where(self._joined & (runs != Run.NONE), Run.DENSE_OR_FULL, runs)


def joined(sizes: Ints) -> Bools:
    """Return which tensors, of sizes [dimensions, n], have tiles that are DENSE or FULL by the order of dimensions.

    Patterns lack that order, so their join `DENSE_OR_FULL` is used for these tensors.
    """
    return np.sum(sizes > 1, axis=0) > 2


def reached_tensors(tables: SearchTables) -> dict[tuple[int, DType], Bools]:
    """Return the tensors, [tensors of a rank], that operands of each data type can have.

    All Specs of a space have the same types, except those of copies: of these, images, filters and outputs share one.
    """
    spaces, loops = tables.spaces, tables.of(LoopTables)
    types = {cls.dtype for cls in tables.states.classes}
    types |= {dtype for every in spaces.dtypes.values() for dtypes in every for dtype in dtypes}
    found: dict[tuple[int, DType], Bools] = {
        (rank, dtype): np.zeros(len(tensors), dtype=np.bool_)
        for rank, tensors in spaces.tensors.items()
        for dtype in types
    }

    def mark(space: Space, dtypes: Sequence[DType], shapes: Ints | slice = slice(None)) -> None:
        for operand, tensors, dtype in zip(space.operands, space.tensors, dtypes, strict=True):
            found[len(operand.dims), dtype][tensors[shapes]] = True

    for key, space in spaces.by_key.items():
        for dtypes in () if key.op.moves_data else spaces.dtypes[key]:
            mark(space, dtypes)
    for (key, dtypes), columns in spaces.copies.items():
        mark(spaces.by_key[key], dtypes, spaces.by_key[key].numbers([*np.concatenate(columns, axis=1)]))
    copies = [space for key, space in spaces.by_key.items() if key.op.moves_data]
    known = -1
    while known < (count := sum(np.count_nonzero(there) for there in found.values())):
        known = count
        for space in copies:
            rank, tensors = space.key.rank, space.tensors[0]
            for source, destination in spaces.dtypes[space.key]:
                if (source.name, destination.name) in tables.target.info.casts:
                    found[rank, destination] |= found[rank, source]
            for part in (part for loop in loops.by_key[space.key] for part in loop.parts):
                for dtype in types:
                    cells = np.flatnonzero((part.shape >= 0) & found[rank, dtype][tensors])
                    found[part.space.key.rank, dtype][part.space.tensors[0][part.shape[cells]]] = True
    return found


def _pattern(cls: int, state: OperandState) -> Pattern:
    layout = state.layout
    if layout is None or not layout.dims or not state.contig:
        return Pattern(cls)
    run = Run.FULL if state.contig == len(layout.dims) else Run.DENSE
    if any(physical.odd_even for physical in layout.dims):
        run = Run.ODD_EVEN
    elif layout.has_strips:
        run = Run.STRIPS
    return Pattern(cls, layout.dims[-1].dim, run, run == Run.DENSE and state.spacing == FAR)


class Patterns:
    """All patterns of states and their tiles, numbered, with the least costs of their members.

    `of`, [states], is the pattern of each state; `any`, [patterns], the unknown pattern of the same class; `join`,
    [patterns], the pattern for `joined` tensors, mostly the same. `members`, [patterns, states], are the states of
    each. `cost` and `bytes` are, per pattern, [tensors of its rank]: the least cost of moving a member (m of
    [Kaufman2025]) and its fewest bytes, infinite without members. `tile` has the tiles of each pattern; `cuttable`,
    [cuts of its rank], marks the cuts into tiles that some member has; `seen`, [patterns], is the pattern of a view,
    -1: no member has one.
    """

    def __init__(self, tables: SearchTables):
        self._loops, self._pipelines = tables.of(LoopTables), tables.of(PipelineTables)
        self.states = tables.states
        self.numbers: dict[Pattern, int] = {}
        self.all: list[Pattern] = []
        #: Per rank, whether tensors are joined (`joined`).
        self.joined = {rank: joined(tensors.sizes) for rank, tensors in tables.spaces.tensors.items()}
        states = zip(self.states.class_of, self.states.states, strict=True)
        self.of: Ints = np.array([self._number(_pattern(cls, state)) for cls, (_, state) in states], dtype=np.int64)
        self.tile: list[Tiles] = []
        self._cuts = {
            rank: Cuts(*(tensors.sizes[:, own] for own in self._loops.cut_tensors(rank)))
            for rank, tensors in tables.spaces.tensors.items()
        }
        #: The patterns that moves make, with the states that they are of: many patterns share these.
        self._made: dict[tuple[int, int], tuple[Ints, list[tuple[int, Ints]]]] = {}
        #: The kinds of tiles that a pattern and a state have for the same cuts.
        self._pairs: dict[tuple[int, int, bool], Ints] = {}
        self.members = self._closed()
        self._known_cuttable: dict[frozenset[int], Bools] = {}
        self.cuttable = [self._cuttable(number) for number in range(len(self.all))]
        self.join: Ints = np.array([self.numbers.get(self._joined(pattern), -1) for pattern in self.all])
        self.any: Ints = np.array([self.numbers[Pattern(pattern.cls, run=Run.ANY)] for pattern in self.all])
        self.seen = self._seen_tables()
        self._reached = reached_tensors(tables)
        self.cost = [self._cost(number) for number in range(len(self.all))]
        self.bytes = [self._least(number, self.states.bytes, NEVER) for number in range(len(self.all))]

    def __len__(self) -> int:
        return len(self.all)

    def rank(self, number: int) -> int:
        """Return the rank of the tensors that have a pattern."""
        return self.states.classes[self.all[number].cls].rank

    def of_tensors(self, states: Ints, rank: int, tensors: Ints | slice = slice(None)) -> Ints:
        """Return the patterns of states of tensors of one rank, by default all, [tensors]; -1 where the state is -1."""
        numbers = np.where(self.joined[rank][tensors], self.join[self.of[states]], self.of[states])
        return np.where(states >= 0, numbers, -1)

    def made(self, states: Ints, rank: int) -> list[tuple[int, Ints]]:
        """Return the patterns of the states that a move makes, [tensors of a rank], and the tensors of each."""
        if (id(states), rank) not in self._made:
            there = np.flatnonzero(states >= 0)
            patterns = self.of_tensors(states, rank)[there]
            found = [(pattern, there[patterns == pattern]) for pattern in distinct_numbers(patterns).tolist()]
            self._made[id(states), rank] = states, found
        return self._made[id(states), rank][1]

    def images(self, state: int, rank: int) -> Iterator[tuple[int, Bools]]:
        """Yield the patterns of a state, and whether tensors of its rank have them."""
        where = self.joined[rank]
        own, join = int(self.of[state]), int(self.join[self.of[state]])
        if own == join:
            yield own, np.ones(len(where), dtype=np.bool_)
            return
        yield own, ~where
        yield join, where

    def _cost(self, number: int) -> Floats:
        cls = self.states.classes[self.all[number].cls]
        never = ~self._reached[cls.rank, cls.dtype]
        # Joined tensors have the join instead.
        if self.all[number].run in (Run.DENSE, Run.FULL):
            never = never | self.joined[cls.rank]
        return np.where(never, np.inf, self._least(number, self.states.cost, np.inf))

    def _least(self, number: int, rows: Sequence[npt.NDArray[Any]], filler: float | np.int64) -> npt.NDArray[Any]:
        """Return the least over the members of a pattern, [tensors of its rank]."""
        own = [rows[state] for state in np.flatnonzero(self.members[number]).tolist()]
        return least(own) if own else np.full(len(self.joined[self.rank(number)]), filler)

    def _number(self, pattern: Pattern) -> int:
        if pattern not in self.numbers:
            self.numbers[pattern] = len(self.numbers)
            self.all.append(pattern)
        return self.numbers[pattern]

    def _joined(self, pattern: Pattern) -> Pattern:
        """Return the pattern for joined tensors."""
        there = np.any(self.joined[self.states.classes[pattern.cls].rank])
        return pattern.lying(Run.DENSE_OR_FULL) if there and pattern.run in (Run.DENSE, Run.FULL) else pattern

    def _closed(self) -> Bools:
        """Return the members of each pattern, [patterns, states], closed under tiles and views."""
        waiting: dict[tuple[int, int], None] = {}
        for state in range(len(self.of)):
            number = int(self.of[state])
            waiting[number, state] = None
            waiting[self._number(self._joined(self.all[number])), state] = None
            waiting[self._number(Pattern(self.states.class_of[state], run=Run.ANY)), state] = None
        known = dict(waiting)
        while waiting:
            number, state = pair = next(iter(waiting))
            del waiting[pair]
            for found in self._led_to(number, state):
                if found not in known:
                    known[found] = waiting[found] = None
        self._tiles(len(self.all) - 1)
        members = np.zeros((len(self.all), len(self.of)), dtype=np.bool_)
        members[tuple(np.array([*known], dtype=np.int64).T)] = True
        return members

    def _led_to(self, number: int, state: int) -> Iterator[tuple[int, int]]:
        """Yield the patterns and states of the tiles and views of a member."""
        rank = self.rank(number)
        tiles, actual = self._tiles(number), self._loops.tile[state]
        kinds, own_kinds = self._together(number, tiles, actual)
        pairs = {*zip(tiles.made[kinds].tolist(), actual.made[own_kinds].tolist(), strict=True)}
        yield from sorted(pairs)
        for (own, dim_map), numbers in self._pipelines.under.items():
            if own == rank and numbers[state] >= 0:
                seen = self.all[number].under(dim_map, int(self.states.cls[numbers[state]]))
                assert seen is not None, "a view of a state has a pattern"
                yield self._number(seen), int(numbers[state])

    def _together(self, number: int, tiles: Tiles, actual: Tiles) -> Ints:
        """Return the kinds of tiles that a pattern and a state have for the same cuts, [2, pairs]."""
        rank = self.rank(number)
        unlike = self.all[number].run in (Run.DENSE, Run.FULL)
        key = id(tiles.kinds), id(actual.kinds), unlike
        if key not in self._pairs:
            cuts = np.flatnonzero(actual.kinds >= 0)
            if unlike:
                cuts = cuts[~self.joined[rank][self._loops.cut_tensors(rank)[0][cuts]]]
            count = len(actual.made) + 1
            met = np.zeros(len(tiles.made) * count, dtype=np.bool_)
            met[tiles.kinds[cuts].astype(np.int64) * count + actual.kinds[cuts]] = True
            self._pairs[key] = np.stack(np.divmod(np.flatnonzero(met), count))
        return self._pairs[key]

    def _tiles(self, number: int) -> Tiles:
        """Return the tiles of a pattern."""
        while len(self.tile) < len(self.all):
            check_budget()
            pattern = self.all[len(self.tile)]
            cls = self.states.classes[pattern.cls]
            transitions, kinds = self._cuts[cls.rank].lying(pattern, cls.dtype.bytes)
            made = [self._number(pattern.lying(run, far)) for run, far in transitions]
            self.tile.append(Tiles(kinds, np.array(made, dtype=np.int32)))
        return self.tile[number]

    def _cuttable(self, number: int) -> Bools:
        """Return whether some member has tiles for a cut, [cuts of its rank]."""
        kinds = [self._loops.tile[state].kinds for state in np.flatnonzero(self.members[number]).tolist()]
        key = frozenset(map(id, [self.tile[number].kinds, *kinds]))
        if key not in self._known_cuttable:
            there = np.zeros(len(self.tile[number].kinds), dtype=np.bool_)
            for one in {id(each): each for each in kinds}.values():
                there |= one >= 0
            self._known_cuttable[key] = there
        return self._known_cuttable[key]

    def _seen_tables(self) -> dict[tuple[int, DimMap], Ints]:
        tables: dict[tuple[int, DimMap], Ints] = {}
        for (rank, dim_map), numbers in self._pipelines.under.items():
            row = tables[rank, dim_map] = np.full(len(self.all), -1, dtype=np.int64)
            for number in range(len(self.all)):
                seen = numbers[np.flatnonzero(self.members[number])]
                if self.rank(number) == rank and np.any(seen >= 0):
                    cls = int(self.states.cls[seen[seen >= 0][0]])
                    pattern = self.all[number].under(dim_map, cls)
                    assert pattern is not None, "a view of a state has a pattern"
                    row[number] = self.numbers[pattern]
        return tables
