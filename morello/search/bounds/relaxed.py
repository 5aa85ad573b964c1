"""The problem that lower bounds come from: Specs with layouts and contiguity forgotten, and the steps between them.

A *class tuple* says for each operand of a space only what its state class says. The relaxed problem has the same
steps; a step costs what it costs in the best case of all states in the classes.
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
from morello.search.tables.limits import LimitCodes
from morello.search.tables.operand_states import least
from morello.search.tables.shapes import Key
from morello.search.tables.step_tables import SearchTables

#: Bounds that one space may have: 0.8 gigabytes. Above this, whole levels are dropped from the index, which only
#: loosens the bounds.
MOST_BOUNDS = 200_000_000


@attrs.frozen(eq=False)
class Transition:
    """A step from some class tuples: `rows`, [n], are their places among those that were asked about.

    `parts` are what it leads to: of each a space, and class tuples, [n, operands]. A program needs one for each of the
    parts `needed`; it may do without the others, for some shapes at least.
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
        """Yield the steps from some class tuples, [n, operands]; a way to no parts at all is a kernel."""

    @abstractmethod
    def spaces_below(self, key: Key) -> Iterator[Key]:
        """Yield the spaces that steps of one lead to: itself only if they lead to Specs that are no smaller."""

    @abstractmethod
    def may_take(self, key: Key, classes: Ints) -> Ints:
        """Return of which levels steps from class tuples may take memory, now or after others of this kind.

        [n], a bit per level.
        """

    @abstractmethod
    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        """Return the steps on one space as `_bounds.h` has them: fields of `BoundSpace`."""


T = TypeVar("T", bound=StepBounds)


class Relaxed:
    """The class tuples that steps lead to from the goals'.

    `cheapest` and `smallest` are, per class, [tensors of its rank]: the least that a move of such a tensor costs (m of
    [Kaufman2025]) and the fewest bytes that it takes, of all states in it. No limits are above `ceilings`.
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
        #: The spaces that steps of each lead to.
        self.below = {key: dict.fromkeys(self._below(key)) for key in self.by_key}
        #: Spaces, each after those that its steps lead to.
        self.order = self._order()
        self._close(goals)
        for bounds in self.by_key.values():
            self._lay_out(bounds)

    def of(self, kind: type[T]) -> T:
        """Return one kind of step in the relaxed problem."""
        return next(steps for steps in self.steps if isinstance(steps, kind))

    def apply_to(self, suits: Sequence[bool], classes: Ints) -> Bools:
        """Return which of some class tuples, [n, operands], a step that suits these levels applies to."""
        return np.all(np.array(suits)[self.level_of[classes]], axis=1)

    def _below(self, key: Key) -> Iterator[Key]:
        for steps in self.steps:
            yield from steps.spaces_below(key)

    def _order(self) -> list[Key]:
        """Return the spaces in an order in which each comes after those that its steps lead to, itself aside."""
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
        """Find every class tuple that steps lead to."""
        waiting: dict[Key, list[Ints]] = {}
        for key, classes in goals:
            waiting.setdefault(key, []).append(np.array([classes], dtype=np.int64))
        found: list[tuple[Key, Ints, Transition]] = []
        places = {key: place for place, key in enumerate(self.order)}
        while waiting:
            # What leads to a space comes before it, so that few spaces are looked at again.
            key = max(waiting, key=places.__getitem__)
            new = self.by_key[key].enter(np.concatenate(waiting.pop(key)))
            for way in (way for steps in self.steps for way in steps.transitions(key, new)) if len(new) else ():
                found.append((key, new[way.rows], way))
                for below, classes in way.parts:
                    waiting.setdefault(below, []).append(classes)
        for bounds in self.by_key.values():
            bounds.tuples = {tuple(row): number for number, row in enumerate(bounds.classes.tolist())}
        self._mark_solvable(found)

    def _mark_solvable(self, transitions: Sequence[tuple[Key, Ints, Transition]]) -> None:
        """Find the class tuples from which some way leads to such tuples only."""
        counts = [len(bounds.classes) for bounds in self.by_key.values()]
        ends = np.cumsum(counts)
        first = dict(zip(self.by_key, (ends - counts).tolist(), strict=True))
        solvable = np.zeros(sum(counts), dtype=np.bool_)
        alike: dict[int, list[Ints]] = {}
        for key, classes, way in transitions:
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
        """Give each class tuple its columns: a per_level per limit that is tracked."""
        steps = np.array([len(codes) for codes in self.step_codes], dtype=np.int64)
        counts = self._tracked(bounds)[:, None] >> np.arange(len(steps)) & 1
        counts *= steps
        for level in np.argsort(-steps, kind="stable").tolist():
            if int(counts.sum()) * bounds.space.count > MOST_BOUNDS:
                counts[:, level] = 0
        bounds.lay_out(counts)

    def _tracked(self, bounds: SpaceBounds) -> Ints:
        """Return the levels whose limits are worth a per_level of columns, [tuples], a bit per level.

        Those are levels of which some operand has taken memory, and of which more can be taken, unless the target says
        that they are not worth it (`MemoryLevel.tracked`). To leave one out is to assume that all of it is free, which
        only lowers the bound.
        """
        passed = np.array([self._passed(level) for level in range(len(self.target.levels))], dtype=np.int64)
        taken = np.bitwise_or.reduce(passed[self.level_of[bounds.classes]], axis=1)
        more = np.zeros(len(taken), dtype=np.int64)
        for steps in self.steps:
            more |= steps.may_take(bounds.space.key, bounds.classes)
        worth = bits(
            index for index, level in enumerate(self.target.levels) if level.kind != "scalar" and level.tracked
        )
        return np.where(bounds.solvable, taken & more & worth, 0)

    def _passed(self, level: int) -> int:
        """Return the levels that an operand may have taken memory of on its way to `level`, the slowest aside."""
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
        return bits(number for number in into if self.target.levels[number].kind != "memory")
