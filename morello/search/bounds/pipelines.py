"""Pipelines in the relaxed problem: new tensors cost and take the least of their classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from morello.search.arrays import Bools, Floats, Ints
from morello.search.bounds.relaxed import Classes, Columns, Node, Relaxed, Relaxer, SpaceBounds, StepBounds
from morello.search.tables.operand_states import NEVER
from morello.search.tables.pipelines import PipelineTable, PipelineTables
from morello.search.tables.shapes import Key


@attrs.frozen
class PipelineClass:
    """A pipeline on operands of some classes: those of its new tensors, and of its parts' operands.

    `valid`, [shapes], says where some step of the table applies.
    """

    table: PipelineTable
    new_classes: Classes
    parts: tuple[Classes, ...]
    valid: Bools


class PipelineBounds(StepBounds):
    """Pipelines of whole Specs, which run one after another."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.tables = relaxed.tables.of(PipelineTables)
        self._classes: dict[tuple[Key, Classes], list[PipelineClass]] = {}

    def ways(self, key: Key, classes: Classes) -> Iterator[tuple[Node, ...]]:
        for pipeline in self.classes(key, classes):
            parts = zip(pipeline.table.parts, pipeline.parts, strict=True)
            yield tuple((part.space.key, below) for part, below in parts)

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from (part.space.key for table in self.tables.of_space(key) for part in table.parts)

    def may_take(self, key: Key, classes: Classes) -> set[int]:
        # Their parts may take of any level.
        return {*range(len(self.relaxed.target.levels))} if self.classes(key, classes) else set()

    def relaxer(self, bounds: SpaceBounds) -> Relaxer:
        return _PipelineRelaxer(self, bounds)

    def classes(self, key: Key, classes: Classes) -> list[PipelineClass]:
        """Return the pipelines that operands of these classes can go through."""
        if (key, classes) not in self._classes:
            dtypes = tuple(self.relaxed.states.classes[cls].dtype for cls in classes)
            pipelines = [self._class(table, classes) for table in self.tables.of(key, dtypes)]
            self._classes[key, classes] = [pipeline for pipeline in pipelines if pipeline is not None]
        return self._classes[key, classes]

    def _class(self, table: PipelineTable, classes: Classes) -> PipelineClass | None:
        """Return a pipeline with its classes; None where an operand cannot be seen as its part wants it."""
        states = self.relaxed.states
        numbers = [int(row[row >= 0][0]) for row in table.new_states[0]]
        new_classes = tuple(int(states.cls[self.tables.numbers[number]]) for number in numbers)
        parts: list[Classes] = []
        for part in table.parts:
            below: list[int] = []
            for arg, dim_map in zip(part.args, part.dim_maps, strict=True):
                cls = (*classes, *new_classes)[arg]
                if dim_map is not None:
                    seen = attrs.evolve(states.classes[cls], rank=len(dim_map))
                    if seen not in states.class_numbers:
                        return None
                    cls = states.class_numbers[seen]
                below.append(cls)
            parts.append(tuple(below))
        rows = [np.stack([*row, table.parts[0].shape]) for row in table.new_states]
        valid = np.any([np.all(row >= 0, axis=0) for row in rows], axis=0)
        return PipelineClass(table, new_classes, tuple(parts), valid)


class _PipelineRelaxer(Relaxer):
    def __init__(self, pipelines: PipelineBounds, bounds: SpaceBounds):
        self._pipelines, self._relaxed, self._bounds = pipelines, pipelines.relaxed, bounds

    def start(self, values: Floats, before: Floats) -> None:
        # A pipeline that leads to the space itself goes by what its bounds were before.
        for columns in self._bounds.solvable_columns():
            for pipeline in self._pipelines.classes(self._bounds.space.key, columns.classes):
                cells = np.flatnonzero(pipeline.valid)
                total = self._cost(pipeline, columns, cells, before)
                if total is not None:
                    values[cells, columns.slice] = np.minimum(values[cells, columns.slice], total)

    def _cost(self, pipeline: PipelineClass, columns: Columns, cells: Ints, before: Floats) -> Floats | None:
        """Return what new tensors and parts cost at least, [cells, columns]; None if that is not known yet."""
        relaxed = self._relaxed
        own = np.zeros(len(cells))
        used: list[tuple[int, Ints]] = []
        for cls, tensors in zip(pipeline.new_classes, pipeline.table.tensors, strict=True):
            own += relaxed.cheapest[cls][tensors[cells]]
            used.append((relaxed.states.classes[cls].level, relaxed.smallest[cls][tensors[cells]]))
        total = np.repeat(own[:, None], columns.count, axis=1)
        for part, classes in zip(pipeline.table.parts, pipeline.parts, strict=True):
            below = relaxed.by_key[part.space.key]
            known = before if below is self._bounds else below.values
            if not known.size:
                return None
            held = [used[tensor] for tensor in part.holds]
            column = self._columns_left(columns, below.columns_of(classes), held, below.width)
            total += known[part.shape[cells][:, None], column]
        return total

    def _columns_left(self, columns: Columns, child: Columns, used: Sequence[tuple[int, Ints]], never: int) -> Ints:
        """Return columns of the child, [cells, columns], while bytes are held; `never` where they do not fit."""
        held: dict[int, Ints] = {}
        for level, amount in used:
            held[level] = np.minimum(held.get(level, 0) + np.minimum(amount, NEVER), NEVER)
        column: Ints = child.under(columns.codes)[None]
        for level, amount in held.items():
            amounts, which = np.unique(amount, return_inverse=True)
            before = columns.codes[:, level][None]
            left = self._relaxed.limit_codes.lower(level, before, amounts[:, None])
            steps = child.steps[level]
            shift = (steps[left] - steps[before]) * child.strides[level]
            column = np.where((left < 0)[which] | (column == never), never, column + shift[which])
        return column
