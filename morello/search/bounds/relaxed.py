"""The problem that lower bounds come from: Specs with layouts and contiguity forgotten, and the steps between them.

A *class tuple* says for each operand of a space only what its state class says. The relaxed problem has the same
steps; a step costs what it costs in the best case of all states in the classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.kernels.target import Target
from morello.search.tables.kernels import KernelRow
from morello.search.tables.limits import LimitAxes
from morello.search.tables.operand_states import NEVER, Offer, States
from morello.search.tables.pipelines import Stage, Stages
from morello.search.tables.shapes import Key, Space, Spaces

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

Classes = tuple[int, ...]

#: Bounds that one space may have: 1.6 gigabytes. Larger ones do without limits of whole levels.
MOST_BOUNDS = 200_000_000


@attrs.frozen
class MoveClass:
    """Moves of one operand from one class to another: what they cost and take at least, per shape of the space."""

    operand: int
    offer: Offer
    into: int
    level: int
    cost: Floats
    bytes: Ints
    view: bool


@attrs.define
class Columns:
    """Where the bounds of one class tuple are among the columns of its space: one per value of the tracked limits.

    `strides` has an entry per level, 0 for those whose limit is not tracked and taken to be all of it.
    """

    classes: Classes
    first: int
    count: int
    strides: Ints
    numbers: Ints  # [count, levels]: the limits of each column


@attrs.frozen
class StageClass:
    """A stage taken by operands of some classes: the classes of its new tensors, and those of its parts' operands."""

    stage: Stage
    fresh: Classes
    parts: tuple[Classes, ...]
    valid: npt.NDArray[np.bool_]


class SpaceBounds:
    """The class tuples of one space, and their bounds: `values[shape, column]`."""

    def __init__(self, space: Space):
        self.space = space
        self.tuples: dict[Classes, int] = {}
        self.columns: list[Columns] = []
        self.width = 0
        self.values: Floats = np.zeros((0, 0))
        self.full: list[int] = []  # per class tuple, the column of full limits

    def number(self, classes: Classes) -> int:
        return self.tuples.setdefault(classes, len(self.tuples))


class Relaxed:
    """The class tuples that steps lead to from the goals', and the moves and stages between them."""

    def __init__(
        self,
        goals: Sequence[tuple[Key, Classes]],
        spaces: Spaces,
        states: States,
        stages: Stages,
        kernels: dict[Key, list[KernelRow]],
        target: Target,
    ):
        self.target = target
        self.spaces = spaces
        self.states = states
        self.stages = stages
        self.kernels = kernels
        self.axes = LimitAxes(target)
        self.move_key = {
            (key.rank, key.serial): key
            for key in spaces.by_key
            if key.op.moves_data and len(spaces.by_key[key].operands) == 2
        }
        self.by_key = {key: SpaceBounds(space) for key, space in spaces.by_key.items()}
        self.cheapest, self.smallest = self._class_minima()
        self.moves: dict[tuple[Key, int, int], list[MoveClass]] = {}
        self._move_shapes: dict[tuple[Key, int], Ints] = {}
        self._staged: dict[tuple[Key, Classes], list[StageClass]] = {}
        self._close(goals)
        for bounds in self.by_key.values():
            self._lay_out(bounds)

    def move_classes(self, key: Key, operand: int, cls: int) -> list[MoveClass]:
        """The moves of one operand whose state is of class `cls`."""
        found = self.moves.get((key, operand, cls))
        if found is None:
            found = self.moves[key, operand, cls] = [*self._move_classes(key, operand, cls)]
        return found

    def _move_classes(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        space, states = self.spaces.by_key[key], self.states
        tensors = space.tensors[operand]
        for offer in states.offers(space, operand, states.classes[cls]):
            into = states.class_numbers.get(offer.target)
            if into is None:
                continue
            level = self.target.levels[offer.target.level]
            view = level.kind == "cache" and offer.target.dtype == states.classes[cls].dtype
            yield MoveClass(
                operand,
                offer,
                into,
                offer.target.level,
                self.cheapest[into][tensors],
                self.smallest[into][tensors],
                view,
            )

    def staged(self, key: Key, classes: Classes) -> list[StageClass]:
        """The stages that operands of these classes can go through."""
        if (key, classes) not in self._staged:
            dtypes = tuple(self.states.classes[cls].dtype for cls in classes)
            made = [self._stage_class(stage, classes) for stage in self.stages.of(key, dtypes)]
            self._staged[key, classes] = [one for one in made if one is not None]
        return self._staged[key, classes]

    def _stage_class(self, stage: Stage, classes: Classes) -> StageClass | None:
        """The classes of a stage's tensors and parts; None where an operand cannot be seen as its part wants it."""
        numbers = [int(row[row >= 0][0]) for row in stage.fresh[0]]
        fresh = tuple(int(self.states.cls[self.states.of_stages[number]]) for number in numbers)
        parts = []
        for part in stage.parts:
            below = []
            for arg, axes in zip(part.args, part.axes, strict=True):
                cls = (*classes, *fresh)[arg]
                if axes is not None:
                    seen = attrs.evolve(self.states.classes[cls], rank=len(axes))
                    if seen not in self.states.class_numbers:
                        return None
                    cls = self.states.class_numbers[seen]
                below.append(cls)
            parts.append(tuple(below))
        rows = [np.stack([*row, stage.parts[0].shape]) for row in stage.fresh]
        valid = np.any([np.all(row >= 0, axis=0) for row in rows], axis=0)
        return StageClass(stage, fresh, tuple(parts), valid)

    def _class_minima(self) -> tuple[Floats, Ints]:
        """Per state class and tensor shape: the least m and the fewest bytes of any state in it."""
        states = self.states
        count = len(states.classes)
        cheapest = np.full((count, states.cost.shape[1]), np.inf)
        smallest = np.full((count, states.cost.shape[1]), NEVER)
        np.minimum.at(cheapest, states.cls, states.cost)
        np.minimum.at(smallest, states.cls, states.bytes)
        return cheapest, smallest

    def _close(self, goals: Sequence[tuple[Key, Classes]]) -> None:
        """Find every class tuple that steps lead to."""
        waiting = list(dict.fromkeys(goals))
        seen = set(waiting)
        while waiting:
            key, classes = waiting.pop()
            self.by_key[key].number(classes)
            for found in self._next(key, classes):
                if found not in seen:
                    seen.add(found)
                    waiting.append(found)

    def _next(self, key: Key, classes: Classes) -> Iterator[tuple[Key, Classes]]:
        for step in self.spaces.steps[key]:
            for part in step.parts:
                yield part.space.key, tuple(classes[arg] for arg in part.args)
        for one in self.staged(key, classes):
            for part, below in zip(one.stage.parts, one.parts, strict=True):
                yield part.space.key, below
        for operand, cls in enumerate(classes):
            for move in self.move_classes(key, operand, cls):
                yield key, (*classes[:operand], move.into, *classes[operand + 1 :])
                one = self.spaces.by_key[key].operands[operand]
                rank = len(one.dims)
                if one.reads:
                    yield self.move_key[rank, key.serial], (cls, move.into)
                if one.writes:
                    yield self.move_key[rank, key.serial], (move.into, cls)

    def _lay_out(self, bounds: SpaceBounds) -> None:
        """Give each class tuple its columns: one per combination of tracked limits."""
        levels = len(self.axes.sizes)
        needed = {
            level
            for row in self.kernels[bounds.space.key]
            for level, need in enumerate(row.needs)
            if need and self.target.levels[level].kind != "scalar"
        }
        tracked_by = [self._tracked(bounds.space.key, classes, needed) for classes in bounds.tuples]
        for level in sorted(range(levels), key=lambda level: -self.axes.sizes[level]):
            width = sum(math.prod(self.axes.sizes[level] for level in tracked) for tracked in tracked_by)
            if width * bounds.space.count > MOST_BOUNDS:
                tracked_by = [tracked - {level} for tracked in tracked_by]
        for classes, tracked in zip(bounds.tuples, tracked_by, strict=True):
            choices = [
                np.arange(self.axes.sizes[level]) if level in tracked else self.axes.full[level : level + 1]
                for level in range(levels)
            ]
            grid = np.stack([axis.reshape(-1) for axis in np.meshgrid(*choices, indexing="ij")], axis=-1)
            strides = np.zeros(levels, dtype=np.int64)
            stride = 1
            for level in reversed(range(levels)):
                if level in tracked:
                    strides[level] = stride
                    stride *= self.axes.sizes[level]
            bounds.columns.append(Columns(classes, bounds.width, len(grid), strides, grid))
            bounds.width += len(grid)
        bounds.full = [one.first + int(one.strides @ self.axes.full) for one in bounds.columns]

    def _tracked(self, key: Key, classes: Classes, needed: set[int]) -> set[int]:
        """Levels whose limit is worth a column per value: some operand has taken of it, and more can be taken.

        To leave one out is to assume that all of it is free, which only lowers the bound.
        """
        taken: set[int] = set()
        more: set[int] = set(needed)
        for operand, cls in enumerate(classes):
            taken |= self._passed(self.states.classes[cls].level)
            more |= {move.level for move in self._further(key, operand, cls)}
        if self.staged(key, classes):
            # What their parts take, and those of theirs.
            more |= taken
        return {level for level in taken & more if self.target.levels[level].kind != "scalar"}

    def _further(self, key: Key, operand: int, cls: int) -> Iterator[MoveClass]:
        """Moves to other classes, now or later."""
        seen, waiting = {cls}, [cls]
        while waiting:
            for move in self.move_classes(key, operand, waiting.pop()):
                if move.into not in seen:
                    seen.add(move.into)
                    waiting.append(move.into)
                    yield move

    def _passed(self, level: int) -> set[int]:
        """Levels that an operand may have taken memory of on its way to `level`, the slowest aside."""
        names = [one.name for one in self.target.levels]
        into = {level}
        while True:
            more = {
                index
                for index, one in enumerate(self.target.levels)
                if any(names.index(name) in into and names.index(name) != index for name in one.destinations)
            }
            if more <= into:
                break
            into |= more
        return {one for one in into if self.target.levels[one].kind != "memory"}

    def suit(self, suits: Sequence[bool], classes: Classes) -> bool:
        """Whether a step that suits these levels applies to operands of these classes."""
        return all(suits[self.states.classes[cls].level] for cls in classes)

    def move_shapes(self, space: Space, operand: int) -> Ints:
        """Per shape of a space, the shape of the Move that copies one operand."""
        key = space.key, operand
        if key not in self._move_shapes:
            below = self.spaces.by_key[self.move_key[len(space.operands[operand].dims), space.key.serial]]
            self._move_shapes[key] = below.numbers(list(space.operand_shapes(operand)))
        return self._move_shapes[key]
