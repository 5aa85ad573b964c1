"""Marshal the abstract problem: patterns for states, no limits, and transition closures in place of moves."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from morello.search.arrays import Ints, distinct_numbers
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds, TransitionClosure
from morello.search.solve.marshal import Marshaller, grid_fields
from morello.search.solve.operand_bounds import OperandBounds
from morello.search.tables.pipelines import PipelineTable, PipelineTables
from morello.search.tables.shapes import Space
from morello.search.tables.tiles import Kinds

#: Kernel rows that are expanded at once.
_AT_ONCE = 1 << 12


class Abstraction:
    """The abstract model, as fields of the model of Specs.

    In place of each space it has a chain, one for each operand, with the transition closure of that operand, and a last
    one with all other steps. The first of each has the number of the space itself. Moves, whose bounds are computed
    beforehand, and spaces without closures are leaves.
    """

    def __init__(self, packing: Marshaller, bounds: Bounds, layouts: LayoutBounds):
        self._packing, self._bounds, self._layouts = packing, bounds, layouts
        self.by_operand = OperandBounds(layouts)
        self._patterns = layouts.patterns

    def fields(self) -> dict[str, Any]:
        """Return the fields to add to the model of Specs."""
        packing, patterns = self._packing, self._patterns
        cls = [pattern.cls for pattern in patterns.all]
        # Many patterns share the kinds of their tiles.
        known: dict[tuple[int, int], Kinds] = {}
        kinds: list[Kinds] = []
        for cuttable, tiles in zip(patterns.cuttable, patterns.tile, strict=True):
            key = id(cuttable), id(tiles.kinds)
            if key not in known:
                known[key] = np.where(cuttable, tiles.kinds, np.int16(-1))
            kinds.append(known[key])
        spaces: list[dict[str, Any]] = []
        others: list[dict[str, Any]] = []
        for own in self._bounds.by_key.values():
            first, *rest = self._spaces(own, len(self._bounds.by_key) + len(others))
            spaces.append(first)
            others += rest
        one = {
            **packing.common(),
            "spaces": len(spaces) + len(others),
            "states": len(patterns),
            "space": [*spaces, *others],
            "cls": cls,
            "relevant": np.zeros(len(patterns)),
            "cost": patterns.cost,
            "bytes": patterns.bytes,
            "kind": kinds,
            "tile": [tiles.made for tiles in patterns.tile],
            **self._naming(np.arange(len(patterns)), patterns.join),
        }
        return {**self._naming(patterns.of, patterns.join), "abstract": [packing.fields("Model", one)]}

    def _naming(self, of: Ints, join: Ints) -> dict[str, Any]:
        """Return the fields that map states to patterns."""
        joined = [self._patterns.joined[self._patterns.rank(number)] for number in range(len(self._patterns))]
        return {"pattern": of, "join": join, "joined": joined}

    def _spaces(self, own: SpaceBounds, after: int) -> list[dict[str, Any]]:
        """Return the abstract spaces in place of one; those after the first are numbered from `after` on."""
        key, packing = own.space.key, self._packing
        no_moves = np.zeros(len(own.space.operands) * len(self._bounds.states.classes) + 1)
        shared = {**packing.shared[key], "closed_operand": -1, "move_first": no_moves}
        plain = {**shared, "groups": 0, "kernels": 0, "pipeline_first": np.zeros(len(own.tuples) + 1)}
        if key not in self._layouts.closures:
            return [{**plain, **grid_fields(self._layouts, key), "leaf": 1}]
        kernels, states = self._kernels(own.space)
        by_operand = self.by_operand.fields(own, states, packing)
        spaces = [
            {**plain, **by_operand, "closed_operand": operand, "closure": self._closure(changes, after + operand)}
            for operand, changes in enumerate(self._layouts.closures[key])
        ]
        pipelines = packing.pipelines(own, self._fresh, self._patterns.seen)
        return [*spaces, {**shared, **by_operand, **kernels, **pipelines}]

    def _closure(self, changes: TransitionClosure, space: int) -> dict[str, Any]:
        return {
            "space": space,
            "places": int(changes.place.max(initial=-1)) + 1,
            "place": changes.place,
            "row": changes.row,
            "first": changes.first,
            "into": changes.into,
            "cost": changes.cost,
        }

    def _kernels(self, space: Space) -> tuple[dict[str, Any], Ints]:
        """Return the kernels by patterns of the states that they take, the cheapest of each; and these patterns."""
        costs = self._packing.kernel_costs[space.key]
        pairs = [np.column_stack([table.states, numbers]) for table, numbers in costs]
        every = np.concatenate([np.zeros((0, len(space.operands) + 1), dtype=np.int64), *pairs])
        # Each row becomes many, most of them duplicates.
        parts = np.split(every, range(_AT_ONCE, len(every), _AT_ONCE))
        rows = _distinct(np.concatenate([self._standing(part) for part in parts]))
        first = np.flatnonzero(np.any(np.diff(rows[:, :-1], axis=0, prepend=-1) != 0, axis=1))
        states = rows[first, :-1]
        fields = {
            "kernels": len(first),
            "kernel_states": states,
            "kernel_first": np.append(first, len(rows)),
            "kernel_costs": rows[:, -1],
            "kernel_needs": np.zeros(len(first)),
            "kernel_priority": np.zeros(len(first)),
        }
        return fields, states

    def _standing(self, rows: Ints) -> Ints:
        """Return the distinct rows, sorted, with each pattern of a state in its place."""
        state, pattern = np.nonzero(self._patterns.members.T)
        start = np.searchsorted(state, np.arange(len(self._patterns.of) + 1))
        for operand in range(rows.shape[1] - 1):
            own, counts = rows[:, operand], np.diff(start)[rows[:, operand]]
            place = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = np.repeat(rows, counts, axis=0)
            rows[:, operand] = pattern[np.repeat(start[own], counts) + place]
            rows = _distinct(rows)
        return rows

    def _fresh(self, table: PipelineTable) -> dict[str, Any]:
        """Return the patterns of new tensors, one step for all that make the same."""
        numbers = self._bounds.tables.of(PipelineTables).numbers
        distinct: dict[bytes, list[Ints]] = {}
        for rows in table.new_states:
            found: list[Ints] = []
            for row, tensors in zip(rows, table.tensors, strict=True):
                states: Ints = np.where(row >= 0, numbers[row], -1)
                own = self._patterns.of[states[states >= 0]]
                rank = self._patterns.rank(int(own[0])) if len(own) else None
                found.append(states if rank is None else self._patterns.of_tensors(states, rank, tensors))
            distinct.setdefault(b"".join(one.tobytes() for one in found), found)
        steps = [*distinct.values()]
        fresh = [row for rows in steps for row in rows]
        return {"steps": len(steps), "fresh": fresh, "priority": np.arange(len(steps))}


def _distinct(rows: Ints) -> Ints:
    """Return the distinct rows of numbers, in lexicographic order."""
    sizes = [int(size) + 1 for size in rows.max(axis=0, initial=0)]
    if prod(sizes) > np.iinfo(np.int64).max:
        rows = rows[np.lexsort(rows.T[::-1])]
        return rows[np.any(np.diff(rows, axis=0, prepend=-1) != 0, axis=1)]
    # Sorting one number per row takes a tenth of the time.
    codes = distinct_numbers(np.asarray(np.ravel_multi_index([*rows.T], sizes), dtype=np.int64))
    found: Ints = np.empty((len(codes), len(sizes)), dtype=np.int64)
    for column, size in reversed([*enumerate(sizes)]):
        codes, found[:, column] = np.divmod(codes, size)
    return found
