"""Operand states, numbered, and what happens to them: costs, memory, tiles and moves, over all tensor shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable
from morello.ir.dtypes import DType, by_name
from morello.ir.layout import TileCode
from morello.ir.numbers import partition, take
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.move import MoveStep, seen_in
from morello.search.tables.pipelines import Axes, Stages
from morello.search.tables.shapes import MOVE_BITS, Space, Spaces, is_moved, step_rank

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
#: Of states; there is one for each state and each way to cut a tensor.
Numbers = npt.NDArray[np.int32]

#: More bytes than any memory has.
NEVER = np.int64(1) << 60
#: In place of the number of a tile: the tile is the whole operand.
WHOLE = -1


@attrs.frozen(cache_hash=True)
class StateClass:
    """What bounds know of an operand state: all but layout, contiguity and alignment."""

    rank: int
    level: int
    dtype: DType
    vector: int | None


@attrs.frozen
class Offer:
    """Moves of one operand to one class of states, as search tries them: `steps` and their places in tie-breaks.

    `fresh[i]` numbers the new operand's state: per tensor shape, or, where `keeps[i]`, per state moved; -1: none.
    """

    target: StateClass
    steps: tuple[MoveStep, ...]
    ranks: Ints
    keeps: tuple[bool, ...]
    fresh: tuple[Ints, ...]


class States:
    """All operand states that Specs in `spaces` can have, beginning with those of the goals.

    Arrays have a row per state and a column per tensor shape of its rank: `cost` (m of [Kaufman2025], infinite where
    the state does not describe the shape) and `bytes` (of the state's own level).
    """

    def __init__(self, spaces: Spaces, goals: Sequence[tuple[int, OperandState]], stages: Stages, target: Target):
        self.target = target
        self.spaces = spaces
        self.tensors = spaces.tensors
        self.levels = {level.name: index for index, level in enumerate(target.levels)}
        self.states: list[tuple[int, OperandState]] = []
        self.numbers: dict[tuple[int, OperandState], int] = {}
        self.classes: list[StateClass] = []
        self.class_numbers: dict[StateClass, int] = {}
        self.class_of: list[int] = []
        self._tiles = _tile_pairs(spaces)
        self._costs: list[Floats] = []
        self._bytes: list[Ints] = []
        self._tile_rows: list[Numbers] = []
        self._fresh: dict[tuple[int, MoveStep], Ints] = {}
        self._kept: dict[MoveStep, list[int]] = {}
        self._seen: dict[str, list[int]] = {}
        self._under: dict[tuple[int, Axes], list[int]] = {key: [] for key in sorted(stages.axes, key=str)}
        for rank, state in goals:
            self.number(rank, state)
        #: The numbers of the states that new tensors of stages have.
        self.of_stages = np.array([self.number(rank, state) for rank, state in stages.states], dtype=np.int64)
        self._close(spaces)
        self.cost = self._stacked(self._costs, np.inf)
        self.bytes = self._stacked(self._bytes, NEVER)
        self.tile = self._stacked(self._tile_rows, -1)
        self.cls = np.array(self.class_of, dtype=np.int64)
        self.level = np.array([self.classes[number].level for number in self.class_of], dtype=np.int64)
        #: Per cache, the number of each state seen in that cache: a move to it is a view.
        self.seen = {name: self._padded(row) for name, row in self._seen.items()}
        #: Per rank and other dimensions, the number of each state seen under those, -1 where it cannot be.
        self.under = {key: self._padded(row) for key, row in self._under.items()}

    def __len__(self) -> int:
        return len(self.states)

    def number(self, rank: int, state: OperandState) -> int:
        """The number of a state of operands of this rank, a new one if need be."""
        found = self.numbers.get((rank, state))
        if found is None:
            found = self.numbers[rank, state] = len(self.states)
            self.states.append((rank, state))
            cls = StateClass(rank, self.levels[state.level], state.dtype, state.vector)
            if cls not in self.class_numbers:
                self.class_numbers[cls] = len(self.classes)
                self.classes.append(cls)
            self.class_of.append(self.class_numbers[cls])
        return found

    def pairs(self, sliding: Sequence[bool], whole: Ints, tile: Ints) -> Ints:
        """Numbers of the ways to cut tensors `tile` from tensors `whole`; WHOLE where they are the same."""
        known = self._tiles[len(sliding)]
        wanted = _cut_key(whole, tile, len(self.tensors[len(sliding)]), sliding)
        at = np.minimum(np.searchsorted(known, wanted), max(len(known) - 1, 0))
        return np.where(whole == tile, WHOLE, at)

    def tile_pairs(self, rank: int) -> tuple[Ints, Ints]:
        """The shapes of the tensors that are cut and of their tiles, for each way to cut tensors of a rank."""
        return np.divmod(self._tiles[rank] >> rank, len(self.tensors[rank]))

    def offers(self, space: Space, operand: int, cls: StateClass) -> list[Offer]:
        """The moves of one operand that search tries where the operand's state is of class `cls`."""
        steps = [*self._steps(space, operand, cls)]
        grouped: dict[StateClass, list[tuple[MoveStep, int]]] = {}
        for step, rank in steps:
            level = self.target.level(step.level)
            dtype = cls.dtype if step.dtype is None else by_name(step.dtype)
            made = StateClass(cls.rank, self.levels[level.name], dtype, step.vector)
            grouped.setdefault(made, []).append((step, rank))
        offers = []
        for made, members in grouped.items():
            keeps = tuple(step.layout is None and self.target.level(step.level).kind == "cache" for step, _ in members)
            fresh = tuple(
                self._padded(self._kept[_general(step)]) if kept else self._fresh_row(cls.rank, cls.dtype, step)
                for (step, _), kept in zip(members, keeps, strict=True)
            )
            ranks = np.array([rank for _, rank in members], dtype=np.int64)
            offers.append(Offer(made, tuple(step for step, _ in members), ranks, keeps, fresh))
        return offers

    def _padded(self, row: Sequence[int]) -> Ints:
        """A row with a number per state, -1 for those it says nothing of."""
        return np.array([*row, *[-1] * (len(self.states) - len(row))], dtype=np.int64)

    def _steps(self, space: Space, operand: int, cls: StateClass) -> Iterator[tuple[MoveStep, int]]:
        """Move's own list for operands of this class, with its places in tie-breaks."""
        state = OperandState(cls.dtype, self.target.levels[cls.level].name, None, vector=cls.vector)
        batch = space.batch([state] * len(space.operands))
        for order, rewrite in enumerate(rewrites_of(self.target)):
            if rewrite is MoveStep:
                for index, step in enumerate(rewrite.steps(batch, self.target)):
                    if step.operand == operand:
                        yield step, step_rank(order, (operand << MOVE_BITS) + index)

    def _close(self, spaces: Spaces) -> None:
        """Find every state that tiles and moves lead to."""
        done = 0
        seen_offers: set[tuple[int, str, DType]] = set()
        moves = self._all_moves(spaces)
        while done < len(self.states):
            rank, state = self.states[done]
            self._measure(done)
            if (rank, state.level, state.dtype) not in seen_offers:
                seen_offers.add((rank, state.level, state.dtype))
                for step in moves(rank, state):
                    self._fresh_row(rank, state.dtype, step)
            self._keep(rank, state, moves(rank, state))
            for (wanted, axes), row in self._under.items():
                if wanted == rank:
                    with contextlib.suppress(Inapplicable):
                        _put(row, done, self.number(len(axes), state.under(axes)))
            done += 1

    def _all_moves(self, spaces: Spaces):
        """Every move of an operand in some level and of some type, as if it were the source of a Move."""
        moved = {
            len(one.dims)
            for key, space in spaces.by_key.items()
            if is_moved(key.op, self.target)
            for one in space.operands
        }
        cache: dict[tuple[int, str, DType], list[MoveStep]] = {}

        def moves(rank: int, state: OperandState) -> list[MoveStep]:
            key = rank, state.level, state.dtype
            if rank not in moved:
                return []
            if key not in cache:
                neutral = OperandState(state.dtype, state.level, None)
                dims = tuple(self.tensors[rank].dims)
                batch = LogicalSpec(Move(), dims, (neutral, neutral))
                found: dict[MoveStep, None] = {}
                for rewrite in rewrites_of(self.target):
                    if rewrite is MoveStep:
                        for step in rewrite.steps(batch, self.target):
                            found.setdefault(_general(step))
                cache[key] = list(found)
            return cache[key]

        return moves

    def _keep(self, rank: int, state: OperandState, moves: Sequence[MoveStep]) -> None:
        """What moves that keep the operand's layout make of a state, and what it is as an operand of each cache."""
        number = self.numbers[rank, state]
        for step in moves:
            level = self.target.level(step.level)
            if level.kind != "cache":
                continue
            _put(self._seen.setdefault(level.name, []), number, self.number(rank, seen_in(level, state, self.target)))
            if step.layout is None:
                tensor = TensorSpec((1,) * rank, state)
                ((made, _),) = step.fresh("operand", tensor, self.target)
                _put(self._kept.setdefault(step, []), number, self.number(rank, made))

    def _fresh_row(self, rank: int, dtype: DType, step: MoveStep) -> Ints:
        """The numbers of the states that a move to a layout of its own makes, per tensor shape."""
        step = _general(step)
        general = attrs.evolve(step, dtype=step.dtype or dtype.name)
        if (rank, general) not in self._fresh:
            tensors = self.tensors[rank]
            row = np.full(len(tensors), -1, dtype=np.int64)
            self._fresh[rank, general] = row
            if step.layout is not None or self.target.level(step.level).kind == "scalar":
                with contextlib.suppress(Inapplicable):
                    self._fill_fresh(row, rank, dtype, general)
        return self._fresh[rank, general]

    def _fill_fresh(self, row: Ints, rank: int, dtype: DType, step: MoveStep) -> None:
        """Enter what a move makes. Raises Inapplicable where its layout describes none of the shapes."""
        dims = tuple(self.tensors[rank].dims)
        tensor = TensorSpec(dims, OperandState(dtype, step.level, None))
        for state, cells in step.fresh("operand", tensor, self.target):
            at = np.arange(len(row)) if cells is None else cells
            whole = TensorSpec(tuple(take(dim, at) for dim in dims), state).has_whole_vectors()
            at = at[np.broadcast_to(whole, at.shape)]
            if len(at):
                row[at] = self.number(rank, state)

    def _measure(self, number: int) -> None:
        """What one state costs and takes, and what its tiles are."""
        rank, state = self.states[number]
        tensors = self.tensors[rank]
        cells = np.flatnonzero(_describes(state, tensors.dims))
        cost, used = np.full(len(tensors), np.inf), np.full(len(tensors), NEVER)
        if len(cells):
            tensor = TensorSpec(tuple(dim[cells] for dim in tensors.dims), state)
            cost[cells] = self.target.move_cost(tensor)
            used[cells] = self.target.footprint(tensor)[self.levels[state.level]]
        self._costs.append(cost)
        self._bytes.append(used)
        self._tile_rows.append(self._tile_row(rank, state, cost < np.inf))

    def _tile_row(self, rank: int, state: OperandState, valid: Bools) -> Numbers:
        """The states of all tiles of tensors in this state; -1 where it cannot be cut so."""
        tensors, pairs = self.tensors[rank], self._tiles[rank]
        row = np.full(len(pairs), -1, dtype=np.int32)
        pairs, slides = np.divmod(pairs, 1 << rank)
        whole, tile = np.divmod(pairs, len(tensors))
        for bits in np.unique(slides).tolist():
            cells = np.flatnonzero(valid[whole] & (slides == bits))
            if len(cells):
                sliding = [bool(bits >> dim & 1) for dim in range(rank)]
                self._cut(row, cells, rank, state, sliding, tensors.dims[:, whole[cells]], tensors.dims[:, tile[cells]])
        return row

    def _cut(
        self, row: Numbers, cells: Ints, rank: int, state: OperandState, sliding: Sequence[bool], shape: Ints, cut: Ints
    ) -> None:
        """Enter the states of tiles `cut` of tensors `shape`."""
        if state.layout is None:
            row[cells] = self.number(rank, state)
            return
        alignment = self.target.level(state.level).alignment
        for group, at in partition(state.tile_codes(tuple(shape), tuple(cut), alignment, sliding=sliding)):
            if TileCode.STRADDLES in group[:-1]:
                continue
            made = state.tiled(group)
            at = np.arange(len(cells)) if at is None else at
            fine = np.broadcast_to(TensorSpec(tuple(cut[:, at]), made).has_whole_vectors(), at.shape)
            if fine.any():
                row[cells[at[fine]]] = self.number(rank, made)

    def _stacked(self, rows: Sequence[npt.NDArray[Any]], filler: Any) -> npt.NDArray[Any]:
        width = max((len(row) for row in rows), default=0) + 1
        stacked = np.full((len(rows), width), filler, dtype=rows[0].dtype)
        for number, row in enumerate(rows):
            stacked[number, : len(row)] = row
        return stacked


def _general(step: MoveStep) -> MoveStep:
    """The step without the number of the operand, which makes no difference to the new state."""
    return attrs.evolve(step, operand=0)


def _put(row: list[int], index: int, value: int) -> None:
    row += [-1] * (index + 1 - len(row))
    row[index] = value


def _describes(state: OperandState, dims: Ints) -> Bools:
    """The shapes that a state in normal form describes, in whole vectors."""
    count = dims.shape[1]
    layout = state.layout
    if layout is None:
        return np.ones(count, dtype=np.bool_)
    fine = np.broadcast_to(np.asarray(layout.applies(tuple(dims))), (count,)).copy()
    cells = np.flatnonzero(fine)
    if len(cells):
        shape = tuple(dims[:, cells])
        for codes, at in partition(layout.tile_codes(shape, shape)):
            fine[cells if at is None else cells[at]] = layout.tiled(state.contig, codes) == (layout, state.contig)
    cells = np.flatnonzero(fine)
    if len(cells):
        fine[cells] = TensorSpec(tuple(dims[:, cells]), state).has_whole_vectors()
    return fine


def _cut_key(whole: Ints, tile: Ints, tensors: int, sliding: Sequence[bool]) -> Ints:
    """One number for what is cut from what, and along which dimensions tiles may begin anywhere."""
    bits = sum(1 << dim for dim, slides in enumerate(sliding) if slides)
    return (whole * tensors + tile) * (1 << len(sliding)) + bits


def _tile_pairs(spaces: Spaces) -> dict[int, Ints]:
    """Per rank, every way that a structural step cuts an operand (`_cut_key`), sorted."""
    found: dict[int, list[Ints]] = {rank: [np.zeros(0, dtype=np.int64)] for rank in spaces.tensors}
    for key, space in spaces.by_key.items():
        for step in spaces.steps[key]:
            for part in step.parts:
                cells = np.flatnonzero(part.shape >= 0)
                for position, arg in enumerate(part.args):
                    rank = len(space.operands[arg].dims)
                    whole = space.tensors[arg][cells]
                    tile = part.space.tensors[position][part.shape[cells]]
                    cut = whole != tile
                    sliding = space.operands[arg].sliding
                    found[rank].append(np.unique(_cut_key(whole[cut], tile[cut], len(spaces.tensors[rank]), sliding)))
    return {rank: np.unique(np.concatenate(arrays)) for rank, arrays in found.items()}
