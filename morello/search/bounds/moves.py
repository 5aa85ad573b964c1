"""Moves in the relaxed problem: transitions from one class of an operand to another, by a copy or a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from morello.search.arrays import Ints, distinct_numbers
from morello.search.bounds.class_tuples import SpaceBounds, bits
from morello.search.bounds.relaxed import Relaxed, StepBounds, Transition
from morello.search.tables.moves import MoveTable, MoveTables, is_moved
from morello.search.tables.shapes import Key, Space


@attrs.frozen
class MoveClass:
    """Moves of one operand to the class `into`, at `level`."""

    operand: int
    table: MoveTable
    into: int
    level: int
    view: bool


class MoveBounds(StepBounds):
    """Moves of operands. A copy is a Spec in a space of the operation Move."""

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

    def transitions(self, key: Key, classes: Ints) -> Iterator[Transition]:
        space = self.relaxed.spaces.by_key[key]
        for operand, column in enumerate(classes.T):
            found = {cls: self.classes(key, operand, cls) for cls in distinct_numbers(column).tolist()}
            for view in (False, True):
                into = {cls: [move.into for move in moves if move.view == view] for cls, moves in found.items()}
                rows = [np.repeat(np.flatnonzero(column == cls), len(own)) for cls, own in into.items()]
                after = [np.tile(own, np.count_nonzero(column == cls)) for cls, own in into.items()]
                if any(map(len, rows)):
                    yield self._way(space, operand, classes, np.concatenate(rows), np.concatenate(after), view)

    def _way(self, space: Space, operand: int, classes: Ints, rows: Ints, after: Ints, view: bool) -> Transition:
        """Return moves of an operand of class tuples `rows`, [n], to classes `after`, [n]."""
        after = after.astype(np.int64)
        one, copies, before = space.operands[operand], self.copy_key(space, operand), classes[rows, operand]
        body = classes[rows]
        body[:, operand] = after
        load = [(copies, np.stack([before, after], axis=1))] if one.reads else []
        store = [(copies, np.stack([after, before], axis=1))] if one.writes else []
        parts = ((space.key, body), *load, *store)
        # The class does not decide whether it is a view: without a copy, only the body is needed.
        return Transition(rows, parts, (0,) if view else tuple(range(len(parts))))

    def spaces_below(self, key: Key) -> Iterator[Key]:
        space = self.relaxed.spaces.by_key[key]
        for operand in range(len(space.operands)) if is_moved(key.op, self.relaxed.target) else ():
            if self.copy_key(space, operand) != key:
                yield self.copy_key(space, operand)

    def may_take(self, key: Key, classes: Ints) -> Ints:
        levels = np.zeros(len(classes), dtype=np.int64)
        for operand, column in enumerate(classes.T):
            further = np.zeros(len(self.relaxed.states.classes), dtype=np.int64)
            for cls in distinct_numbers(column).tolist():
                further[cls] = bits({move.level for move in self._further(key, operand, cls)})
            levels |= further[column]
        return levels

    def classes(self, key: Key, operand: int, cls: int) -> list[MoveClass]:
        """Return the moves of one operand whose state is of class `cls`."""
        moves = self._classes.get((key, operand, cls))
        if moves is None:
            moves = self._classes[key, operand, cls] = [*self._move_classes(key, operand, cls)]
        return moves

    def _move_classes(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        relaxed, states = self.relaxed, self.relaxed.states
        space = relaxed.spaces.by_key[key]
        for table in self.tables.tables(states, space, operand, states.classes[cls]):
            into = states.class_numbers.get(table.target)
            if into is not None:
                level = table.target.level
                view = relaxed.target.levels[level].kind == "cache" and table.target.dtype == states.classes[cls].dtype
                yield MoveClass(operand, table, into, level, view)

    def _further(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        """Yield the moves to other classes from a class and from those that it leads to."""
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

    def copies(self, space: Space, move: MoveClass, cls: int) -> dict[str, int]:
        """Return the class tuples of the Moves that load and store an operand that is moved."""
        operand = space.operands[move.operand]
        tuples = self.relaxed.by_key[self.copy_key(space, move.operand)].tuples
        load = {"load": tuples[cls, move.into]} if operand.reads else {}
        return load | ({"store": tuples[move.into, cls]} if operand.writes else {})

    def shared(self, space: Space, move: MoveClass, cls: int) -> dict[str, Any]:
        """Return the fields that structs of moves share."""
        return {
            "operand": move.operand,
            "cls": move.into,
            "level": move.level,
            "copy_space": self.relaxed.index[self.copy_key(space, move.operand)],
            "load": -1,
            "store": -1,
            **self.copies(space, move, cls),
            "copy_shape": self.copy_shapes(space, move.operand),
        }

    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        moves: list[dict[str, Any]] = []
        plans = [np.zeros((3, 0), dtype=np.int64)]
        for operand, column in enumerate(bounds.classes.T):
            for cls in distinct_numbers(column).tolist():
                for move in self.classes(bounds.space.key, operand, cls):
                    if move.into != cls:
                        plans.append(self._plan(bounds, move, cls, len(moves)))
                        copies = {"load": -1, "store": -1} if move.view else {}
                        moves.append({**self.shared(bounds.space, move, cls), "from": cls, **copies})
        here, number, into = np.concatenate(plans, axis=1)
        # Class tuples in the fastest levels come first, since moves of others lead to them.
        order = np.lexsort([number, here, np.sum(self.relaxed.level_of[bounds.classes], axis=1)[here]])
        first = np.flatnonzero(np.diff(here[order], prepend=-1))
        return {
            "moves": len(moves),
            "move": moves,
            "movable": len(first),
            "moved": here[order][first],
            "move_first": np.append(first, len(order)),
            "move_number": number[order],
            "move_into": into[order],
        }

    def _plan(self, bounds: SpaceBounds, move: MoveClass, cls: int, number: int) -> Ints:
        """Return the class tuples that a move applies to, its number, and the class tuples after it, [3, n]."""
        into = bounds.after[move.operand][:, move.into]
        here = np.flatnonzero(bounds.solvable & (bounds.classes[:, move.operand] == cls) & (into >= 0))
        here = here[bounds.solvable[into[here]]]
        return np.stack([here, np.full(len(here), number), into[here]])
