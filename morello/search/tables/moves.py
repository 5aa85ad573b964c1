"""Moves: the operand states that they make, and the moves that search tries on operands of each state class."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import product as combinations

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.dtypes import DType, by_name
from morello.ir.numbers import take
from morello.ir.ops.base import Operation
from morello.ir.ops.move import Move
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.target import Target
from morello.rewrites import move
from morello.rewrites.base import Rewrite
from morello.rewrites.move import MoveStep, seen_in
from morello.search.arrays import Ints
from morello.search.tables.operand_states import StateClass, States, images
from morello.search.tables.shapes import DTypes, Key, Reached, Space, Spaces, key_of
from morello.search.tables.step_tables import Priority, StepTables, overridden


@attrs.frozen
class MoveTable:
    """Moves of one operand to one class of states: `steps` and their `priorities`, [steps].

    `into[i]` numbers the new operand's state, or -1: per tensor shape, [tensors], or, where `keeps[i]`, per state of
    the moved operand, [states].
    """

    target: StateClass
    steps: tuple[MoveStep, ...]
    priorities: Ints
    keeps: tuple[bool, ...]
    into: tuple[Ints, ...]


class MoveTables(StepTables):
    """The operand states that moves make.

    Per cache, `seen`, [states], numbers each state as seen in the cache. A move there to that state is a view: it
    copies nothing.
    """

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        #: The operands that search moves, by rank.
        self._moved: dict[int, list[tuple[Space, int]]] = {}
        for space in spaces.by_key.values():
            for index, operand in enumerate(space.operands if is_moved(space.key.op, target) else ()):
                self._moved.setdefault(len(operand.dims), []).append((space, index))
        #: The caches that moves of a class go to, each with the moves that keep the layout.
        self._steps: dict[StateClass, dict[str, list[MoveStep]]] = {}
        self._searched: dict[tuple[Key, OperandState], list[list[tuple[MoveStep, int]]]] = {}
        self._into: dict[tuple[int, MoveStep], Ints] = {}
        self._kept: dict[MoveStep, dict[int, int]] = {}
        self._seen: dict[str, dict[int, int]] = {}
        self.seen: dict[str, Ints] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search calls these two, and assumes that the rest is that of MoveStep.
        return issubclass(rewrite, MoveStep) and overridden(rewrite, MoveStep) <= {"steps", "fresh"}

    @classmethod
    def reach(cls, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        if not is_moved(space.key.op, target):
            return
        for known in dtypes:
            choices = [
                [dtype] if operand.writes else _casts(dtype, target)
                for operand, dtype in zip(space.operands, known, strict=True)
            ]
            for cast in combinations(*choices):
                yield (space.key, cast), list(space.sizes)
        for index, operand in enumerate(space.operands):
            key = Key(Move(), len(operand.dims), space.key.serial)
            for dtype in dict.fromkeys(known[index] for known in dtypes):
                yield (key, (dtype, dtype)), list(space.operand_shapes(index))

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        space = self.spaces.by_key[key_of(logical)]
        state = logical.states[priority.operand]
        level = next(number for number, level in enumerate(self.target.levels) if level.name == state.level)
        cls = StateClass(len(space.operands[priority.operand].dims), level, state.dtype, state.vector)
        packed = priority.pack()
        return next(step for step, place in self._steps_of(space, priority.operand, cls) if place == packed)

    def tables(self, states: States, space: Space, operand: int, cls: StateClass) -> list[MoveTable]:
        """Return the moves that search tries on an operand in a state of class `cls`."""
        grouped: dict[StateClass, list[tuple[MoveStep, int]]] = {}
        for step, priority in self._steps_of(space, operand, cls):
            dtype = cls.dtype if step.dtype is None else by_name(step.dtype, self.target.dtypes)
            into = StateClass(cls.rank, states.levels[step.level], dtype, step.vector)
            grouped.setdefault(into, []).append((step, priority))
        tables: list[MoveTable] = []
        for target, members in grouped.items():
            # Of steps that make equal states, as layouts that differ in unit dimensions, the first.
            distinct: dict[tuple[bool, bytes], tuple[MoveStep, int, Ints]] = {}
            for step, priority in members:
                keeps = self._keeps_layout(step)
                into = (
                    images(self._kept[_general(step)], states)
                    if keeps
                    else self._new_states(states, cls.rank, cls.dtype, step)
                )
                distinct.setdefault((keeps, into.tobytes()), (step, priority, into))
            steps, places, into_states = zip(*distinct.values(), strict=True)
            priorities = np.array(places, dtype=np.int64)
            tables.append(MoveTable(target, steps, priorities, tuple(keeps for keeps, _ in distinct), into_states))
        return tables

    def _keeps_layout(self, step: MoveStep) -> bool:
        return step.layout is None and self.target.level(step.level).kind == "cache"

    def _steps_of(self, space: Space, operand: int, cls: StateClass) -> list[tuple[MoveStep, int]]:
        """Return the moves of an operand of this class, with their priorities."""
        # The moves of an operand do not depend on other operands, so one batch lists those of all.
        state = OperandState(cls.dtype, self.target.levels[cls.level].name, None, vector=cls.vector)
        if (space.key, state) not in self._searched:
            batch = space.batch([state] * len(space.operands))
            found: list[list[tuple[MoveStep, int]]] = [[] for _ in space.operands]
            for place, rewrite in self.rewrites(self.target):
                for index, step in enumerate(rewrite.steps(batch, self.target)):
                    if isinstance(step, MoveStep):
                        found[step.operand].append((step, Priority(place, index, step.operand).pack()))
            self._searched[space.key, state] = found
        return self._searched[space.key, state][operand]

    # The states that moves make.

    def follow(self, states: States, number: int) -> None:
        rank, state = states.states[number]
        if rank not in self._moved:
            return
        cls = attrs.evolve(states.classes[states.class_of[number]], vector=None)
        if cls not in self._steps:
            every = (step for space, index in self._moved[rank] for step, _ in self._steps_of(space, index, cls))
            caches = self._steps[cls] = {}
            for step in dict.fromkeys(map(_general, every)):
                self._new_states(states, rank, state.dtype, step)
                if self.target.level(step.level).kind == "cache":
                    caches.setdefault(step.level, []).extend([step] if step.layout is None else [])
        for name, keeping in self._steps[cls].items():
            view = states.number(rank, seen_in(self.target.level(name), state, self.target))
            self._seen.setdefault(name, {})[number] = view
            for step in keeping:
                ((kept, _),) = step.fresh("operand", TensorSpec((1,) * rank, state), self.target)
                self._kept.setdefault(step, {})[number] = states.number(rank, kept)

    def finish(self, states: States) -> None:
        self.seen = {name: images(views, states) for name, views in self._seen.items()}

    def _new_states(self, states: States, rank: int, dtype: DType, step: MoveStep) -> Ints:
        """Return the numbers of the states that a move to a given layout makes, [tensors], or -1."""
        general = attrs.evolve(_general(step), dtype=step.dtype or dtype.name)
        if (rank, general) not in self._into:
            into = np.full(len(self.spaces.tensors[rank]), -1, dtype=np.int64)
            self._into[rank, general] = into
            if step.layout is not None or self.target.level(step.level).kind == "scalar":
                with contextlib.suppress(Inapplicable):
                    self._enter_new_states(into, states, rank, dtype, general)
        return self._into[rank, general]

    def _enter_new_states(self, into: Ints, states: States, rank: int, dtype: DType, step: MoveStep) -> None:
        """Store the states that a move makes. Raises Inapplicable if its layout describes none of the shapes."""
        dims = tuple(self.spaces.tensors[rank].sizes)
        tensor = TensorSpec(dims, OperandState(dtype, step.level, None))
        for state, group in step.fresh("operand", tensor, self.target):
            cells = np.arange(len(into)) if group is None else group
            fills = TensorSpec(tuple(take(dim, cells) for dim in dims), state).has_whole_vectors()
            cells = cells[np.broadcast_to(fills, cells.shape)]
            if len(cells):
                into[cells] = states.number(rank, state)


def is_moved(op: Operation, target: Target) -> bool:
    """Return whether search moves the operands of an operation."""
    return bool(MoveTables.rewrites(target)) and move.is_moved(op, target)


def _casts(dtype: DType, target: Target) -> list[DType]:
    """Return a data type and all types to which chains of moves can cast it."""
    reached = [dtype]
    for known in reached:
        for name, to in sorted(target.info.casts):
            if name == known.name and (wider := by_name(to, target.dtypes)) not in reached:
                reached.append(wider)
    return reached


def _general(step: MoveStep) -> MoveStep:
    """Return the step for operand 0: the new state does not depend on the operand's number."""
    return attrs.evolve(step, operand=0)
