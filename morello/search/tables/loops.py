"""Loops, and all other structural steps, on every shape; and the states of the tiles that they cut.

A structural step (`Rewrite.structural`) leads to the node's own operands, or tiles of them, in any states.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import attrs
import numpy as np

from morello.errors import PluginError
from morello.ir.impl import Expansion
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite
from morello.search.arrays import Bools, Ints, Ints32, distinct_numbers
from morello.search.budget import check_budget
from morello.search.tables.operand_states import States
from morello.search.tables.shapes import (
    DTypes,
    Key,
    Reached,
    Space,
    Spaces,
    key_of,
    neutral_batch,
    searched_cases,
)
from morello.search.tables.step_tables import Priority, StepTables
from morello.search.tables.tiles import CutGroup, Kinds, Tiles

#: The number of a cut whose tile is the whole operand.
WHOLE = -1


@attrs.frozen
class LoopPart:
    """One child of a loop, over all shapes of the loop's space.

    The child's operands are tiles of the loop's operands `args`. `shape`, [shapes], is the number of the child's
    shape, -1 where the child is absent; `times`, [shapes], its number of runs.
    """

    space: Space
    args: tuple[int, ...]
    shape: Ints32
    times: Ints


@attrs.frozen
class LoopTable:
    """One step over all shapes of a space: where it is `valid`, [shapes], and its own `cost`, [shapes].

    `suits` has, per level of the target, whether the step applies to operands there.
    """

    step: Rewrite
    priority: int
    valid: Bools
    cost: Ints
    parts: tuple[LoopPart, ...]
    suits: tuple[bool, ...]


@attrs.frozen(eq=False)
class LoopGroup:
    """Loops with equal kinds of parts and levels, `loop` among them, as entries: one per loop and valid shape.

    Those of shape `s` are the entries from `first[s]` to `first[s + 1]`; `shape`, `cost` and `priority`, [entries], are
    of the loop, and `shape` and `times` of each part are [entries], too.
    """

    loop: LoopTable
    parts: tuple[LoopPart, ...]
    shape: Ints
    first: Ints
    cost: Ints
    priority: Ints


class LoopTables(StepTables):
    """All loops, by space, and the states of the tiles that they cut.

    A cut is a pair of a tensor's shape and a tile's; cuts are numbered per rank. `tile` has the tiles of each state.
    """

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.by_key: dict[Key, list[LoopTable]] = {
            key: [*self._tabulate_space(space)] for key, space in spaces.by_key.items()
        }
        self._cuts = self._all_cuts()
        self._cut_tensors: dict[int, tuple[Ints, Ints]] = {}
        self._by_sliding: dict[int, list[CutGroup]] = {}
        #: Codes and kinds of tiles, which states that differ only in level share.
        self._known: dict[tuple[object, ...], tuple[list[tuple[int, ...]], Kinds]] = {}
        self._kinds: dict[bytes, Kinds] = {}
        self.tile: list[Tiles] = []

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        return rewrite.structural

    @classmethod
    def reach(cls, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        batch = neutral_batch(space, target)
        steps = (step for _, rewrite in cls.rewrites(target) for step in rewrite.steps(batch, target))
        cases = (case for step in steps for case in searched_cases(step, batch, target))
        for part in (part for case in cases for part in case.expansion.parts):
            for whole in dtypes:
                reached = key_of(part.logical), tuple(whole[arg] for arg in part.args)
                yield reached, part.logical.shape
                if part.logical.serial != space.key.serial:
                    # Bounds compare the tiles of a parallel loop with the serial whole.
                    yield reached, list(space.sizes)

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        packed = priority.pack()
        return next(loop.step for loop in self.by_key[key_of(logical)] if loop.priority == packed)

    def _tabulate_space(self, space: Space) -> Iterator[LoopTable]:
        batch = neutral_batch(space, self.target)
        for place, rewrite in self.rewrites(self.target):
            for index, step in enumerate(rewrite.steps(batch, self.target)):
                check_budget()
                yield from self._tabulate(space, batch, step, Priority(place, index).pack())

    def _tabulate(self, space: Space, batch: LogicalSpec, step: Rewrite, priority: int) -> Iterator[LoopTable]:
        """Yield the step on every shape: one table per distinct sequence of children."""
        tables: dict[tuple[tuple[Key, tuple[int, ...]], ...], LoopTable] = {}
        for case in searched_cases(step, batch, self.target):
            cells: Ints = np.arange(space.count, dtype=np.int64) if case.cells is None else case.cells
            kinds = tuple((key_of(part.logical), part.args) for part in case.expansion.parts)
            alike = next((other for other in tables if other[: len(kinds)] == kinds[: len(other)]), None)
            table = tables.pop(alike) if alike is not None else self._empty(space, step, priority)
            kinds = max(kinds, alike or (), key=len)
            tables[kinds] = self._with_case(table, case.expansion, cells, kinds)
        yield from tables.values()

    def _empty(self, space: Space, step: Rewrite, priority: int) -> LoopTable:
        suits = tuple(step.supports_level(level) for level in self.target.levels)
        return LoopTable(step, priority, np.zeros(space.count, dtype=np.bool_), _no_cost(space.count), (), suits)

    def _with_case(
        self, table: LoopTable, expansion: Expansion, cells: Ints, kinds: Sequence[tuple[Key, tuple[int, ...]]]
    ) -> LoopTable:
        _check(expansion, table.step)
        count = len(table.valid)
        parts = list(table.parts)
        for key, args in kinds[len(parts) :]:
            space = self.spaces.by_key[key]
            parts.append(LoopPart(space, args, np.full(count, -1, dtype=np.int32), np.zeros(count, dtype=np.int64)))
        table.valid[cells] = True
        cost = table.cost
        if np.any(np.asarray(expansion.cost)):
            cost = cost.copy()
            cost[cells] = expansion.cost
        for entry, part in zip(parts, expansion.parts, strict=False):
            shape = [np.broadcast_to(np.asarray(size), cells.shape) for size in part.logical.shape]
            entry.shape[cells] = entry.space.numbers(shape)
            entry.times[cells] = part.times
        return attrs.evolve(table, cost=cost, parts=tuple(parts))

    # The states of tiles.

    def cuts(self, space: Space, part: LoopPart, shape: Ints) -> list[Ints]:
        """Return the numbers of the cuts into each operand of a part of loops on `shape`, [n], of a space.

        They are WHOLE where the tile is the whole operand, and where the part is absent.
        """
        wholes = [space.tensors[arg][shape] for arg in part.args]
        tiles = [
            np.where(part.shape >= 0, own[part.shape], whole)
            for own, whole in zip(part.space.tensors, wholes, strict=True)
        ]
        return [
            self._cut_numbers(space.operands[arg].sliding, whole, tile)
            for arg, whole, tile in zip(part.args, wholes, tiles, strict=True)
        ]

    def _cut_numbers(self, sliding: Sequence[bool], whole: Ints, tile: Ints) -> Ints:
        known = self._cuts[len(sliding)]
        wanted = _cut_code(whole, tile, len(self.spaces.tensors[len(sliding)]), sliding)
        number = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        return np.where(whole == tile, WHOLE, number)

    def cut_tensors(self, rank: int) -> tuple[Ints, Ints]:
        """Return the tensors and the tiles of all cuts of a rank, [cuts] each."""
        if rank not in self._cut_tensors:
            tensors = len(self.spaces.tensors[rank])
            self._cut_tensors[rank] = np.divmod(self._cuts[rank] % tensors**2, tensors)
        return self._cut_tensors[rank]

    def follow(self, states: States, number: int) -> None:
        rank, state = states.states[number]
        codes, kinds = self._tiles(states, number)
        made = [states.number(rank, state.tiled(each)) for each in codes]
        self.tile.append(Tiles(kinds, np.array(made, dtype=np.int32)))

    def _tiles(self, states: States, number: int) -> tuple[list[tuple[int, ...]], Kinds]:
        """Return the `tile_codes` of each kind of tile of a state, and the kind of each cut, [cuts]."""
        rank, state = states.states[number]
        # Codes depend on the alignment of the level and the size of the type only.
        place = state.layout, state.contig, state.vector, state.aligned, state.spacing, state.dtype.bytes
        key = rank, place, self.target.level(state.level).alignment
        if key not in self._known:
            found: list[tuple[int, ...]] = []
            groups: list[Kinds] = [np.zeros(0, dtype=np.int16)]
            for cuts in self._cuts_by_sliding(rank):
                codes, kinds = cuts.kinds(state, key[2], partial(states.described_by, rank), len(found))
                groups.append(kinds)
                found += codes
            kinds = np.concatenate(groups)
            self._known[key] = found, self._kinds.setdefault(kinds.tobytes(), kinds)
        return self._known[key]

    def _cuts_by_sliding(self, rank: int) -> list[CutGroup]:
        """Return all cuts of a rank, grouped by sliding dimensions."""
        if rank not in self._by_sliding:
            (whole, tile), dims = self.cut_tensors(rank), self.spaces.tensors[rank].sizes
            # Cuts are sorted by their sliding dimensions.
            slides, first = np.unique(self._cuts[rank] // dims.shape[1] ** 2, return_index=True)
            self._by_sliding[rank] = [
                CutGroup([bool(bits >> dim & 1) for dim in range(rank)], whole[begin:end], tile[begin:end], dims)
                for bits, (begin, end) in zip(slides.tolist(), pairwise([*first, len(whole)]), strict=True)
            ]
        return self._by_sliding[rank]

    def finish(self, states: States) -> None:
        self._known.clear()
        self._kinds.clear()
        self._by_sliding.clear()

    def _all_cuts(self) -> dict[int, Ints]:
        """Return the codes (`_cut_code`) of all cuts by loops, sorted, per rank."""
        codes: dict[int, list[Ints]] = {rank: [np.zeros(0, dtype=np.int64)] for rank in self.spaces.tensors}
        for key, loops in self.by_key.items():
            space = self.spaces.by_key[key]
            for part in (part for loop in loops for part in loop.parts):
                cells = np.flatnonzero(part.shape >= 0)
                for position, arg in enumerate(part.args):
                    operand = space.operands[arg]
                    tensors = len(self.spaces.tensors[len(operand.dims)])
                    whole = space.tensors[arg][cells]
                    tile = part.space.tensors[position][part.shape[cells]]
                    cut = whole != tile
                    codes[len(operand.dims)].append(
                        distinct_numbers(_cut_code(whole[cut], tile[cut], tensors, operand.sliding))
                    )
        return {rank: distinct_numbers(np.concatenate(arrays)) for rank, arrays in codes.items()}


def grouped(loops: Iterable[LoopTable]) -> Iterator[LoopGroup]:
    """Yield loops on one space in groups with equal kinds of parts and levels."""
    kinds: dict[object, list[LoopTable]] = {}
    for loop in loops:
        kinds.setdefault((*((part.space.key, part.args) for part in loop.parts), loop.suits), []).append(loop)
    for alike in kinds.values():
        shape, step = np.nonzero(np.stack([loop.valid for loop in alike], axis=1))
        parts = tuple(
            LoopPart(
                members[0].space,
                members[0].args,
                np.stack([part.shape for part in members])[step, shape],
                np.stack([part.times for part in members])[step, shape],
            )
            for members in zip(*(loop.parts for loop in alike), strict=True)
        )
        first = np.searchsorted(shape, np.arange(len(alike[0].valid) + 1))
        cost = np.stack([loop.cost for loop in alike])[step, shape]
        yield LoopGroup(alike[0], parts, shape, first, cost, np.array([loop.priority for loop in alike])[step])


def _no_cost(count: int) -> Ints:
    """Return zeros, [count], that take no memory: few loops have a cost of their own."""
    return np.broadcast_to(np.zeros(1, dtype=np.int64), (count,))


def _cut_code(whole: Ints, tile: Ints, tensors: int, sliding: Sequence[bool]) -> Ints:
    """Return one number for each cut: its sliding dimensions, its tensor and its tile."""
    bits = sum(1 << dim for dim, slides in enumerate(sliding) if slides)
    return (bits * tensors + whole) * tensors + tile


def _check(expansion: Expansion, step: Rewrite) -> None:
    """Raise PluginError if a structural step takes memory."""
    held = [expansion.needs, *(part.live for part in expansion.parts)]
    if expansion.tensors or any(np.any(np.asarray(amount)) for amounts in held for amount in amounts):
        raise PluginError(
            f"rewrite {step.keyword} is declared structural, but `{step}` takes memory",
            "remove `structural = True` from its class",
        )
