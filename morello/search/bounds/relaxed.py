"""The problem that lower bounds come from: Specs with layouts and contiguity forgotten, and the steps between them.

A *class tuple* says for each operand of a space only what its state class says. The relaxed problem has the same
steps; a step costs what it costs in the best case of all states in the classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import attrs
import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.tables.limits import LimitCodes
from morello.search.tables.operand_states import NEVER
from morello.search.tables.search_tables import SearchTables
from morello.search.tables.shapes import Key, Space

Classes = tuple[int, ...]
#: A class tuple of a space.
Node = tuple[Key, Classes]

#: Bounds that one space may have: 1.6 gigabytes. Above this, whole levels are dropped from the index, which only
#: loosens the bounds.
MOST_BOUNDS = 200_000_000


@attrs.define
class Columns:
    """The columns of one class tuple among the bounds of its space: one per combination of tracked limits.

    `strides`, [levels], are 0 for levels whose limit is not tracked and taken to be all of it. `codes`, [count,
    levels], are those of each column's limits, and `steps` number the limits that have columns (`limit_steps`).
    """

    classes: Classes
    first: int
    count: int
    strides: Ints
    codes: Ints
    steps: Ints

    @property
    def slice(self) -> slice:
        return slice(self.first, self.first + self.count)

    def under(self, codes: Ints) -> Ints:
        """Return the columns, [...], of limits with these codes, [..., levels]."""
        return self.first + at_levels(self.steps, codes) @ self.strides


def at_levels(tables: Ints, codes: Ints) -> Ints:
    """Return what tables, [levels, codes], have for codes of limits, [..., levels]."""
    return tables[np.arange(codes.shape[-1]), codes]


def limit_steps(limit_codes: LimitCodes) -> Ints:
    """Return numbers of limits as bounds tell them apart, [levels, codes]: larger ones for larger limits.

    Limits with more than two significant bits count as the next larger limit that has no more, which only lowers
    bounds. It makes bounds of AVX-512 take a third of the time and memory.
    """
    steps = np.zeros((len(limit_codes.counts), max(limit_codes.counts)), dtype=np.int64)
    for level, count in enumerate(limit_codes.counts):
        sizes = [int(size) for size in limit_codes.bytes(level, np.arange(count))]
        told = np.array([size % (1 << max(0, size.bit_length() - 2)) == 0 for size in sizes])
        told[-1] = True
        # A limit that is not told apart has the number of the next that is.
        steps[level, :count] = np.cumsum(told) - told
        steps[level, count:] = steps[level, count - 1]
    return steps


class SpaceBounds:
    """The class tuples of one space, and their bounds: `values`, [shapes + 1, columns + 1], in units of cost.

    The last row and column are infinite, for what cannot be.
    """

    def __init__(self, space: Space):
        self.space = space
        self.tuples: dict[Classes, int] = {}
        self.columns: list[Columns] = []
        self.width = 0
        self.values: Floats = np.zeros((0, 0))
        self.full: list[int] = []  # per class tuple, the column of full limits
        #: The class tuples that may have programs: kernels take the others in no way.
        self.solvable: set[Classes] = set()

    def number(self, classes: Classes) -> int:
        """Return the number of a class tuple, a new one if need be."""
        return self.tuples.setdefault(classes, len(self.tuples))

    def columns_of(self, classes: Classes) -> Columns:
        """Return the columns of a class tuple."""
        return self.columns[self.tuples[classes]]

    def solvable_columns(self) -> Iterator[Columns]:
        """Yield the columns of class tuples that may have programs."""
        return (columns for columns in self.columns if columns.classes in self.solvable)


class Relaxer:
    """The steps of one kind on one space, as they lower its bounds. Each kind overrides what it needs."""

    def start(self, values: Floats, before: Floats) -> None:
        """Lower `values` by all that does not depend on smaller shapes of the space.

        `before` are the bounds of the space as they were known before, empty the first time.
        """

    def relax(self, rows: Ints, block: Floats) -> None:
        """Lower `block`, the bounds of the shapes `rows`, [rows, columns], by what is known of smaller shapes."""

    def close(self, rows: Ints, values: Floats) -> None:
        """Lower `values[rows]` by steps between Specs of one shape."""


class StepBounds(ABC):
    """One kind of step in the relaxed problem."""

    def __init__(self, relaxed: Relaxed):
        self.relaxed = relaxed

    @abstractmethod
    def ways(self, key: Key, classes: Classes) -> Iterator[tuple[Node, ...]]:
        """Yield for each step from a class tuple those that it leads to: a way, which needs programs for all of them.

        Where a step leads to some of them for some shapes only, there is a way without them, too.
        """

    @abstractmethod
    def spaces_below(self, key: Key) -> Iterator[Key]:
        """Yield the spaces that steps of one lead to: itself only if `Relaxer.start` asks for its bounds."""

    @abstractmethod
    def may_take(self, key: Key, classes: Classes) -> set[int]:
        """Return the levels of which steps may take memory, now or after others of this kind."""

    @abstractmethod
    def relaxer(self, bounds: SpaceBounds) -> Relaxer:
        """Return the steps on one space."""


T = TypeVar("T", bound=StepBounds)


class Relaxed:
    """The class tuples that steps lead to from the goals'.

    `cheapest` and `smallest` are [classes, tensors]: the least that a move of such a tensor costs (m of
    [Kaufman2025]) and the fewest bytes that it takes, of all states in a class.
    """

    def __init__(self, goals: Sequence[tuple[Key, Classes]], tables: SearchTables, kinds: Sequence[type[StepBounds]]):
        self.target = tables.target
        self.tables = tables
        self.spaces = tables.spaces
        self.states = tables.states
        self.limit_codes = LimitCodes(tables.target)
        self.limit_steps = limit_steps(self.limit_codes)
        self.by_key = {key: SpaceBounds(space) for key, space in tables.spaces.by_key.items()}
        self.cheapest, self.smallest = self._class_minima()
        self.steps = [kind(self) for kind in kinds]
        self._close(goals)
        for bounds in self.by_key.values():
            self._lay_out(bounds)

    def of(self, kind: type[T]) -> T:
        """Return one kind of step in the relaxed problem."""
        return next(steps for steps in self.steps if isinstance(steps, kind))

    def apply_to(self, suits: Sequence[bool], classes: Classes) -> bool:
        """Return whether a step that suits these levels applies to operands of these classes."""
        return all(suits[self.states.classes[cls].level] for cls in classes)

    def _class_minima(self) -> tuple[Floats, Ints]:
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
        ways: dict[Node, list[tuple[Node, ...]]] = {node: [] for node in waiting}
        while waiting:
            key, classes = node = waiting.pop()
            self.by_key[key].number(classes)
            ways[node] = [way for steps in self.steps for way in steps.ways(key, classes)]
            for child in (child for way in ways[node] for child in way):
                if child not in ways:
                    ways[child] = []
                    waiting.append(child)
        for key, classes in _solvable(ways):
            self.by_key[key].solvable.add(classes)

    def _lay_out(self, bounds: SpaceBounds) -> None:
        """Give each class tuple its columns: one per combination of tracked limits."""
        # The largest of all limits with one number has the column.
        columns_of = [
            np.flatnonzero(np.diff(steps[:count], append=steps[-1] + 1))
            for steps, count in zip(self.limit_steps, self.limit_codes.counts, strict=True)
        ]
        counts = [len(codes) for codes in columns_of]
        levels = range(len(counts))
        tracked_by = [self._tracked(bounds.space.key, classes) for classes in bounds.tuples]
        for level in sorted(levels, key=lambda level: -counts[level]):
            width = sum(math.prod(counts[level] for level in tracked) for tracked in tracked_by)
            if width * bounds.space.count > MOST_BOUNDS:
                tracked_by = [tracked - {level} for tracked in tracked_by]
        for classes, tracked in zip(bounds.tuples, tracked_by, strict=True):
            full = self.limit_codes.full
            choices = [columns_of[level] if level in tracked else full[level : level + 1] for level in levels]
            codes = np.stack([axis.reshape(-1) for axis in np.meshgrid(*choices, indexing="ij")], axis=-1)
            strides = np.zeros(len(counts), dtype=np.int64)
            stride = 1
            for level in reversed(levels):
                if level in tracked:
                    strides[level] = stride
                    stride *= counts[level]
            bounds.columns.append(Columns(classes, bounds.width, len(codes), strides, codes, self.limit_steps))
            bounds.width += len(codes)
        bounds.full = [int(columns.under(self.limit_codes.full)) for columns in bounds.columns]

    def _tracked(self, key: Key, classes: Classes) -> set[int]:
        """Return the levels whose limit is worth a column per value.

        Those are levels of which some operand has taken memory, and of which more can be taken, unless the target says
        that they are not worth it (`MemoryLevel.tracked`). To leave one out is to assume that all of it is free, which
        only lowers the bound.
        """
        if classes not in self.by_key[key].solvable:
            return set()
        taken = {level for cls in classes for level in self._passed(self.states.classes[cls].level)}
        more = {level for steps in self.steps for level in steps.may_take(key, classes)}
        levels = self.target.levels
        return {level for level in taken & more if levels[level].kind != "scalar" and levels[level].tracked}

    def _passed(self, level: int) -> set[int]:
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
        return {number for number in into if self.target.levels[number].kind != "memory"}


def _solvable(ways: Mapping[Node, Sequence[tuple[Node, ...]]]) -> set[Node]:
    """Return the nodes from which some way leads to solvable nodes only; a way to none at all is a kernel."""
    parents: dict[Node, list[Node]] = {}
    for node, options in ways.items():
        for child in {child for way in options for child in way}:
            parents.setdefault(child, []).append(node)
    solvable: set[Node] = set()
    waiting = list(ways)
    while waiting:
        node = waiting.pop()
        if node not in solvable and any(solvable.issuperset(way) for way in ways[node]):
            solvable.add(node)
            waiting += parents.get(node, ())
    return solvable
