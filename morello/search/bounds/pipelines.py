"""Pipelines in the relaxed problem: new tensors have the least cost and bytes of their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.search.arrays import Ints
from morello.search.bounds.class_tuples import Classes, SpaceBounds, bits
from morello.search.bounds.relaxed import Relaxed, StepBounds, Transition
from morello.search.tables.operand_states import NEVER
from morello.search.tables.pipelines import PipelinePart, PipelineTable, PipelineTables
from morello.search.tables.shapes import Key


@attrs.frozen(eq=False)
class PipelineClasses:
    """The pipelines of one table, and the class tuples `rows`, [n], to which they apply.

    `parts`, [n, parts], are the class tuples of the parts; `new_classes` are the classes of new tensors.
    """

    table: PipelineTable
    new_classes: Classes
    rows: Ints
    parts: npt.NDArray[np.int32]


class PipelineBounds(StepBounds):
    """Pipelines: Specs that run one after another."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.tables = relaxed.tables.of(PipelineTables)
        self._dtypes = {dtype: place for place, dtype in enumerate({cls.dtype: 0 for cls in relaxed.states.classes})}
        self._dtype_of = np.array([self._dtypes[cls.dtype] for cls in relaxed.states.classes], dtype=np.int64)
        self._packed: dict[Key, list[PipelineClasses]] = {}

    def transitions(self, key: Key, classes: Ints) -> Iterator[Transition]:
        for table, rows, below in self._on(key, classes):
            parts = tuple((part.space.key, tuples) for part, tuples in zip(table.parts, below, strict=True))
            yield Transition(rows, parts, tuple(range(len(parts))))

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from (part.space.key for table in self.tables.of_space(key) for part in table.parts)

    def may_take(self, key: Key, classes: Ints) -> Ints:
        # Their parts may take memory of any level.
        levels = np.zeros(len(classes), dtype=np.int64)
        for _, rows, _ in self._on(key, classes):
            levels[rows] = bits(range(len(self.relaxed.target.levels)))
        return levels

    def _on(self, key: Key, classes: Ints) -> Iterator[tuple[PipelineTable, Ints, list[Ints]]]:
        """Yield pipelines, the rows of class tuples, [n, operands], that they apply to, and the tuples of parts."""
        for dtypes, tables in self.tables.of_key(key):
            there = np.all(self._dtype_of[classes] == [self._dtypes.get(dtype, -1) for dtype in dtypes], axis=1)
            for table in tables:
                parts = [self._part(classes, part, self.new_classes(table)) for part in table.parts]
                seen = there & np.all([np.all(part >= 0, axis=1) for part in parts], axis=0)
                rows = np.flatnonzero(seen)
                if len(rows):
                    yield table, rows, [part[rows] for part in parts]

    def new_classes(self, table: PipelineTable) -> Classes:
        """Return the classes of the new tensors of a pipeline."""
        numbers = [int(row[row >= 0][0]) for row in table.new_states[0]]
        return tuple(int(self.relaxed.states.cls[self.tables.numbers[number]]) for number in numbers)

    def _part(self, classes: Ints, part: PipelinePart, new_classes: Classes) -> Ints:
        """Return class tuples of a part, [n, operands], -1 where an operand has no such view."""
        states = self.relaxed.states
        operands = classes.shape[1]
        below = np.empty((len(classes), len(part.args)), dtype=np.int64)
        for position, (arg, dim_map) in enumerate(zip(part.args, part.dim_maps, strict=True)):
            if arg >= operands:
                below[:, position] = new_classes[arg - operands]
                continue
            below[:, position] = classes[:, arg]
            if dim_map is not None:
                seen = [attrs.evolve(cls, rank=len(dim_map)) for cls in states.classes]
                under = np.array([states.class_numbers.get(cls, -1) for cls in seen], dtype=np.int64)
                below[:, position] = under[classes[:, arg]]
        return below

    def on(self, bounds: SpaceBounds) -> list[PipelineClasses]:
        """Return all pipelines on a space."""
        key = bounds.space.key
        if key not in self._packed:
            self._packed[key] = [
                PipelineClasses(table, self.new_classes(table), rows, self._numbers(table, below))
                for table, rows, below in self._on(key, bounds.classes)
            ]
        return self._packed[key]

    def _numbers(self, table: PipelineTable, below: list[Ints]) -> npt.NDArray[np.int32]:
        parts = zip(table.parts, below, strict=True)
        numbers = [self.relaxed.by_key[part.space.key].number(tuples) for part, tuples in parts]
        return np.stack(numbers, axis=1).astype(np.int32)

    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        found = [self._pipeline(bounds, pipeline) for pipeline in self.on(bounds)]
        return {"pipelines": len(found), "pipeline": found}

    def _pipeline(self, bounds: SpaceBounds, pipeline: PipelineClasses) -> dict[str, Any]:
        table, below = pipeline.table, [self.relaxed.by_key[part.space.key] for part in pipeline.table.parts]
        solvable = np.all([own.solvable[part] for own, part in zip(below, pipeline.parts.T, strict=True)], axis=0)
        solvable &= bounds.solvable[pipeline.rows]
        rows = pipeline.rows[solvable]
        steps = [np.stack([*row, *(part.shape for part in table.parts)]) for row in table.new_states]
        shapes = np.flatnonzero(np.any([np.all(step >= 0, axis=0) for step in steps], axis=0))
        cost = np.zeros(len(shapes))
        for cls, tensors in zip(pipeline.new_classes, table.tensors, strict=True):
            cost += 0 if table.free else self.relaxed.cheapest[cls][tensors[shapes]]
        parts: list[dict[str, Any]] = []
        for part, numbers in zip(table.parts, pipeline.parts.T, strict=True):
            held = self._held(pipeline, part, shapes)
            parts.append(
                {
                    "space": self.relaxed.index[part.space.key],
                    "holding": len(held),
                    "level": [*held],
                    "held": [*held.values()],
                    "tuple": numbers[solvable],
                    "shape": part.shape[shapes],
                    "times": np.ones(len(shapes)),
                }
            )
        return {
            "tuples": len(rows),
            "tuple": rows,
            "parts": len(parts),
            "part": parts,
            "first": np.searchsorted(shapes, np.arange(bounds.space.count + 1)),
            "cost": cost,
        }

    def _held(self, pipeline: PipelineClasses, part: PipelinePart, shapes: Ints) -> dict[int, Ints]:
        """Return the least bytes, [shapes], that are held while a part runs, by level."""
        held: dict[int, Ints] = {}
        for tensor in part.holds:
            cls = pipeline.new_classes[tensor]
            level, amount = int(self.relaxed.level_of[cls]), self.relaxed.smallest[cls]
            amounts = np.minimum(amount[pipeline.table.tensors[tensor][shapes]], NEVER)
            held[level] = np.minimum(held.get(level, 0) + amounts, NEVER)
        return held
