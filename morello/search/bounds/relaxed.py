"""The relaxed problem: Specs without layouts and contiguity, and the steps between them.

A *class tuple* has the state class of each operand of a space. Steps are those of search; each has the least cost over
all states in its classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import attrs
import numpy as np

from morello.ir.limits import Limits
from morello.search.arrays import Bools, Ints
from morello.search.bounds.class_tuples import Classes, SpaceBounds, bits, limit_steps
from morello.search.budget import check_budget, check_size
from morello.search.tables.limits import LimitCodes, reachable_levels
from morello.search.tables.operand_states import least
from morello.search.tables.shapes import Key
from morello.search.tables.step_tables import SearchTables

#: Bounds that one space may have: 0.8 gigabytes. Above this, the limits of whole levels are not tracked, which only
#: loosens the bounds.
MOST_BOUNDS = 200_000_000


@attrs.frozen(eq=False)
class Transition:
    """A step from some class tuples: `rows`, [n], are their places among those given.

    `parts` are a space and class tuples, [n, operands], each. A program needs the parts `needed`; for some shapes it
    has no others.
    """

    rows: Ints
    parts: tuple[tuple[Key, Ints], ...]
    needed: tuple[int, ...]


class StepBounds(ABC):
    """One kind of step in the relaxed problem."""

    def __init__(self, relaxed: Relaxed):
        self.relaxed = relaxed

    @abstractmethod
    def transitions(self, key: Key, classes: Ints) -> Iterator[Transition]:
        """Yield the steps from some class tuples, [n, operands]. A transition without parts is a kernel."""

    @abstractmethod
    def spaces_below(self, key: Key) -> Iterator[Key]:
        """Yield the spaces below a space: itself only if steps lead to Specs of the same size."""

    @abstractmethod
    def may_take(self, key: Key, classes: Ints) -> Ints:
        """Return the levels where steps from class tuples, or further steps of this kind, may take memory.

        [n], a bit per level.
        """

    @abstractmethod
    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        """Return the steps on one space: fields of `BoundSpace` in `_bounds.h`."""


T = TypeVar("T", bound=StepBounds)


class Relaxed:
    """The class tuples below those of the goals.

    `cheapest` and `smallest` are, per class, [tensors of its rank]: the least cost of moving a tensor (m of
    [Kaufman2025]) and its fewest bytes, over all states of the class. No limits are above `ceilings`.
    """

    def __init__(
        self,
        goals: Sequence[tuple[Key, Classes]],
        tables: SearchTables,
        kinds: Sequence[type[StepBounds]],
        ceilings: Limits | None = None,
    ):
        self.target = tables.target
        self.tables = tables
        self.spaces = tables.spaces
        self.states = tables.states
        self.limit_codes = LimitCodes(tables.target, ceilings)
        self.limit_steps = limit_steps(self.limit_codes)
        #: Per level, the largest limit of each number, as codes.
        self.step_codes = [
            np.flatnonzero(np.diff(steps[:count], append=steps[-1] + 1))
            for steps, count in zip(self.limit_steps, self.limit_codes.counts, strict=True)
        ]
        #: The number of each space.
        self.index = {key: number for number, key in enumerate(tables.spaces.by_key)}
        classes = len(self.states.classes)
        self.by_key = {key: SpaceBounds(space, classes) for key, space in tables.spaces.by_key.items()}
        members = [np.flatnonzero(self.states.cls == cls).tolist() for cls in range(classes)]
        self.cheapest = [least([self.states.cost[state] for state in own]) for own in members]
        self.smallest = [least([self.states.bytes[state] for state in own]) for own in members]
        self.level_of = np.array([cls.level for cls in self.states.classes], dtype=np.int64)
        self.steps = [kind(self) for kind in kinds]
        #: The spaces below each.
        self.below = {key: dict.fromkeys(self._below(key)) for key in self.by_key}
        #: Spaces, each after those below it.
        self.order = self._order()
        self._close(goals)
        for bounds in self.by_key.values():
            check_budget()
            self._lay_out(bounds)

    def of(self, kind: type[T]) -> T:
        """Return one kind of step in the relaxed problem."""
        return next(steps for steps in self.steps if isinstance(steps, kind))

    def apply_to(self, suits: Sequence[bool], classes: Ints) -> Bools:
        """Return whether a step that suits these levels applies to class tuples, [n, operands]."""
        return np.all(np.array(suits)[self.level_of[classes]], axis=1)

    def _below(self, key: Key) -> Iterator[Key]:
        for steps in self.steps:
            yield from steps.spaces_below(key)

    def _order(self) -> list[Key]:
        """Return the spaces in topological order, those below first. Circles are broken anywhere."""
        order: dict[Key, None] = {}
        seen: set[Key] = set()

        def visit(key: Key) -> None:
            if key not in seen:
                seen.add(key)
                for other in self.below[key]:
                    visit(other)
                order[key] = None

        for key in self.by_key:
            visit(key)
        return [*order]

    def _close(self, goals: Sequence[tuple[Key, Classes]]) -> None:
        """Enter every class tuple that steps lead to."""
        waiting: dict[Key, list[Ints]] = {}
        for key, classes in goals:
            waiting.setdefault(key, []).append(np.array([classes], dtype=np.int64))
        found: list[tuple[Key, Ints, Transition]] = []
        places = {key: place for place, key in enumerate(self.order)}
        while waiting:
            # Spaces above come first, so that few are visited again.
            key = max(waiting, key=places.__getitem__)
            new = self.by_key[key].enter(np.concatenate(waiting.pop(key)))
            check_size(tuples=sum(len(bounds.classes) for bounds in self.by_key.values()))
            for way in (way for steps in self.steps for way in steps.transitions(key, new)) if len(new) else ():
                check_budget()
                found.append((key, new[way.rows], way))
                for below, classes in way.parts:
                    waiting.setdefault(below, []).append(classes)
        for bounds in self.by_key.values():
            bounds.tuples = {tuple(row): number for number, row in enumerate(bounds.classes.tolist())}
        self._mark_solvable(found)

    def _mark_solvable(self, transitions: Sequence[tuple[Key, Ints, Transition]]) -> None:
        """Mark the class tuples with a transition whose needed parts are all solvable."""
        counts = [len(bounds.classes) for bounds in self.by_key.values()]
        ends = np.cumsum(counts)
        first = dict(zip(self.by_key, (ends - counts).tolist(), strict=True))
        solvable = np.zeros(sum(counts), dtype=np.bool_)
        alike: dict[int, list[Ints]] = {}
        for key, classes, way in transitions:
            check_budget()
            nodes = [(key, classes), *(way.parts[part] for part in way.needed)]
            numbers = [first[key] + self.by_key[key].number(classes) for key, classes in nodes]
            alike.setdefault(len(numbers), []).append(np.stack(numbers))
        steps = [np.concatenate(arrays, axis=1) for arrays in alike.values()]
        known = -1
        while known < np.count_nonzero(solvable):
            known = np.count_nonzero(solvable)
            for parent, *parts in steps:
                there = np.ones(len(parent), dtype=np.bool_)
                for part in parts:
                    there &= solvable[part]
                solvable[parent[there]] = True
        for bounds, marks in zip(self.by_key.values(), np.split(solvable, ends[:-1]), strict=True):
            bounds.solvable = marks

    def _lay_out(self, bounds: SpaceBounds) -> None:
        """Assign columns to class tuples, for each limit that is tracked."""
        steps = np.array([len(codes) for codes in self.step_codes], dtype=np.int64)
        counts = self._tracked(bounds)[:, None] >> np.arange(len(steps)) & 1
        counts *= steps
        for level in np.argsort(-steps, kind="stable").tolist():
            if int(counts.sum()) * bounds.space.count > MOST_BOUNDS:
                counts[:, level] = 0
        bounds.lay_out(counts)

    def _tracked(self, bounds: SpaceBounds) -> Ints:
        """Return the levels whose limits are tracked, [tuples], a bit per level.

        Those are levels where some operand has taken memory, and steps can take more, unless the target
        excludes them (`MemoryLevel.tracked`). All memory of other levels counts as free, which only lowers the bound.
        """
        paths = reachable_levels(self.target) | np.eye(len(self.target.levels), dtype=np.bool_)
        paths[[level.kind == "memory" for level in self.target.levels]] = False
        passed = np.array([bits(np.flatnonzero(column).tolist()) for column in paths.T], dtype=np.int64)
        taken = np.bitwise_or.reduce(passed[self.level_of[bounds.classes]], axis=1)
        more = np.zeros(len(taken), dtype=np.int64)
        for steps in self.steps:
            more |= steps.may_take(bounds.space.key, bounds.classes)
        worth = bits(
            index for index, level in enumerate(self.target.levels) if level.kind != "scalar" and level.tracked
        )
        return np.where(bounds.solvable, taken & more & worth, 0)
