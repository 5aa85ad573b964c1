"""Moves in the relaxed problem: they lead from one class of an operand to another, and copy unless they are views."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.relaxed import Classes, Columns, Node, Relaxed, Relaxer, SpaceBounds, StepBounds
from morello.search.tables.moves import MoveTable, MoveTables, is_moved
from morello.search.tables.operand_states import NEVER
from morello.search.tables.shapes import Key, Space


@attrs.frozen
class MoveClass:
    """Moves of one operand to the class `into`, at `level`.

    `cost` and `bytes`, [shapes of the space], are what the new operand costs and takes at least.
    """

    operand: int
    table: MoveTable
    into: int
    level: int
    cost: Floats
    bytes: Ints
    view: bool


class MoveBounds(StepBounds):
    """Moves of operands. A copy is a Spec of its own, in a space of the operation Move."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.tables = relaxed.tables.of(MoveTables)
        self._copy_keys = {
            (key.rank, key.serial): key
            for key, space in relaxed.spaces.by_key.items()
            if key.op.moves_data and len(space.operands) == 2
        }
        self._classes: dict[tuple[Key, int, int], list[MoveClass]] = {}
        self._copy_shapes: dict[tuple[Key, int], Ints] = {}

    def ways(self, key: Key, classes: Classes) -> Iterator[tuple[Node, ...]]:
        space = self.relaxed.spaces.by_key[key]
        for operand, cls in enumerate(classes):
            one = space.operands[operand]
            for move in self.classes(key, operand, cls):
                copies = self.copy_key(space, operand)
                load = [(copies, (cls, move.into))] if one.reads else []
                store = [(copies, (move.into, cls))] if one.writes else []
                body = key, _after(classes, move)
                yield body, *load, *store
                # Classes do not tell if it is a view, or a copy all the same.
                if move.view:
                    yield (body,)

    def spaces_below(self, key: Key) -> Iterator[Key]:
        space = self.relaxed.spaces.by_key[key]
        for operand in range(len(space.operands)) if is_moved(key.op, self.relaxed.target) else ():
            if self.copy_key(space, operand) != key:
                yield self.copy_key(space, operand)

    def may_take(self, key: Key, classes: Classes) -> set[int]:
        return {move.level for operand, cls in enumerate(classes) for move in self._further(key, operand, cls)}

    def relaxer(self, bounds: SpaceBounds) -> Relaxer:
        return _MoveRelaxer(self, bounds)

    def classes(self, key: Key, operand: int, cls: int) -> list[MoveClass]:
        """Return the moves of one operand whose state is of class `cls`."""
        moves = self._classes.get((key, operand, cls))
        if moves is None:
            moves = self._classes[key, operand, cls] = [*self._move_classes(key, operand, cls)]
        return moves

    def _move_classes(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        relaxed, states = self.relaxed, self.relaxed.states
        space = relaxed.spaces.by_key[key]
        tensors = space.tensors[operand]
        for table in self.tables.tables(states, space, operand, states.classes[cls]):
            into = states.class_numbers.get(table.target)
            if into is not None:
                level = table.target.level
                view = relaxed.target.levels[level].kind == "cache" and table.target.dtype == states.classes[cls].dtype
                cost, used = relaxed.cheapest[into][tensors], relaxed.smallest[into][tensors]
                yield MoveClass(operand, table, into, level, cost, used, view)

    def _further(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        """Yield moves to other classes, now or later."""
        seen, waiting = {cls}, [cls]
        while waiting:
            for move in self.classes(key, operand, waiting.pop()):
                if move.into not in seen:
                    seen.add(move.into)
                    waiting.append(move.into)
                    yield move

    def copy_key(self, space: Space, operand: int) -> Key:
        """Return the space of the copies of an operand."""
        return self._copy_keys[len(space.operands[operand].dims), space.key.serial]

    def copy_shapes(self, space: Space, operand: int) -> Ints:
        """Return the shape of the Move that copies an operand, [shapes of the space]."""
        key = space.key, operand
        if key not in self._copy_shapes:
            below = self.relaxed.spaces.by_key[self.copy_key(space, operand)]
            self._copy_shapes[key] = below.numbers(list(space.operand_shapes(operand)))
        return self._copy_shapes[key]

    def copy_costs(self, space: Space, move: MoveClass, cls: int, rows: Ints) -> Floats:
        """Return what loading and storing cost at least when an operand is moved, with all memory free: [rows]."""
        operand = space.operands[move.operand]
        below = self.relaxed.by_key[self.copy_key(space, move.operand)]
        shapes = self.copy_shapes(space, move.operand)[rows]
        total = np.zeros(len(rows))
        if operand.reads:
            total += below.values[shapes, below.full[below.tuples[cls, move.into]]]
        if operand.writes:
            total += below.values[shapes, below.full[below.tuples[move.into, cls]]]
        return total


@attrs.frozen
class _Planned:
    """A move of class tuple `columns`, whose operand is of class `cls`.

    `table[which[shape]]`, [columns], are the columns that its own lead to; `depends` are the first columns of the class
    tuples that its cost depends on.
    """

    columns: Columns
    move: MoveClass
    cls: int
    table: Ints
    which: Ints
    depends: tuple[int, ...]


class _MoveRelaxer(Relaxer):
    def __init__(self, moves: MoveBounds, bounds: SpaceBounds):
        self._moves, self._relaxed, self._bounds = moves, moves.relaxed, bounds
        self._space = bounds.space
        self._plan = [*self._planned()]

    def close(self, rows: Ints, values: Floats) -> None:
        """Take moves until none lowers a bound: those of what a move leads to go again when that has changed."""
        clock = 0
        changed: dict[int, int] = {}
        tried: dict[int, int] = {}
        again = True
        while again:
            again = False
            for index, planned in enumerate(self._plan):
                if index in tried and tried[index] >= max(changed.get(below, 0) for below in planned.depends):
                    continue
                clock += 1
                tried[index] = clock
                here = planned.columns.slice
                before, moved = values[rows, here], self._moved(planned, rows, values)
                if np.any(moved < before):
                    values[rows, here] = np.minimum(moved, before)
                    changed[planned.columns.first] = clock
                    again = True

    def _moved(self, planned: _Planned, rows: Ints, values: Floats) -> Floats:
        """Return what the move and all that follows cost at least, [rows, columns]."""
        move = planned.move
        tensors = self._space.tensors[move.operand][rows]
        own = move.cost[rows] + self._relaxed.cheapest[planned.cls][tensors]
        if not move.view:
            own = own + self._moves.copy_costs(self._space, move, planned.cls, rows)
        return values[rows[:, None], planned.table[planned.which[rows]]] + own[:, None]

    def _planned(self) -> Iterator[_Planned]:
        """Yield moves between classes, those of operands in the fastest levels first."""
        classes, bounds, key = self._relaxed.states.classes, self._bounds, self._space.key
        order = sorted(bounds.solvable_columns(), key=lambda one: sum(classes[cls].level for cls in one.classes))
        for columns in order:
            for operand, cls in enumerate(columns.classes):
                for move in self._moves.classes(key, operand, cls):
                    if move.into == cls or _after(columns.classes, move) not in bounds.solvable:
                        continue
                    child = bounds.columns_of(_after(columns.classes, move))
                    amounts, which = np.unique(move.bytes, return_inverse=True)
                    table = self._columns_after(columns, child, move.level, amounts, bounds.width)
                    # Copies of a Move's operands are Moves themselves.
                    copies = [] if move.view or not key.op.moves_data else [(cls, move.into), (move.into, cls)]
                    copied = [bounds.columns_of(pair).first for pair in copies if pair in bounds.tuples]
                    yield _Planned(columns, move, cls, table, which, (child.first, *copied))

    def _columns_after(self, columns: Columns, child: Columns, level: int, amounts: Ints, never: int) -> Ints:
        """Return columns of the child, [amounts, columns], after bytes of a level are taken; `never` for too many."""
        codes = np.repeat(columns.codes[None], len(amounts), axis=0)
        left = self._relaxed.limit_codes.lower(
            level, columns.codes[:, level][None], np.minimum(amounts, NEVER)[:, None]
        )
        codes[:, :, level] = np.maximum(left, 0)
        return np.where(left < 0, never, child.under(codes))


def _after(classes: Classes, move: MoveClass) -> Classes:
    """Return the class tuple after a move."""
    return (*classes[: move.operand], move.into, *classes[move.operand + 1 :])
