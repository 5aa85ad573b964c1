"""Marshal the tables and bounds of search into the model of `_engine.h`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from morello.ir.tensor import DimMap
from morello.search.arrays import Bools, Ints
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.bounds.pipelines import PipelineBounds
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.structs import Pointer, Structs
from morello.search.tables.kernels import KernelTable, KernelTables
from morello.search.tables.loops import LoopGroup, LoopTables, grouped
from morello.search.tables.moves import MoveTables
from morello.search.tables.pipelines import PipelinePart, PipelineTable
from morello.search.tables.shapes import Key, Space


class Marshaller(Structs):
    """The tables and bounds of one search, as arrays and structs of C.

    `relevant`, [levels of the operand, levels], marks the limits that matter to an operand. `kernel_costs` has, per
    space and table of kernels, the number of the cost of each state tuple, [n].
    """

    def __init__(self, bounds: Bounds, relevant: Bools):
        super().__init__()
        self._bounds, self._relevant = bounds, relevant
        self.kernel_costs: dict[Key, list[tuple[KernelTable, Ints]]] = {}
        #: The fields that a space has in both models, converted once.
        self.shared = {key: self.fields("Space", self._shared(own)) for key, own in bounds.by_key.items()}

    def model(self, *, generic: bool, exhaustive: bool, recalls: bool) -> Pointer:
        """Return the model of Specs.

        `generic`: there are generic rewrites; `exhaustive`: no bound excludes a program; `recalls`: Python may have
        answers of earlier searches.
        """
        states, loops = self._bounds.states, self._bounds.tables.of(LoopTables)
        relevant = np.array([self._bounds.limit_codes.mask(row) for row in self._relevant.tolist()], dtype=np.uint64)
        fields = {
            **self.common(),
            "spaces": len(self._bounds.by_key),
            "states": len(states),
            "generic": generic,
            "exhaustive": exhaustive,
            "recalls": recalls,
            "cls": states.cls,
            "relevant": relevant[states.level],
            "cost": states.cost,
            "bytes": states.bytes,
            "cheapest": self._bounds.cheapest,
            "smallest": self._bounds.smallest,
            "kind": [tiles.kinds for tiles in loops.tile],
            "tile": [tiles.made for tiles in loops.tile],
        }
        self._fields = self.fields("Model", fields)
        self._spaces = [self.fields("Space", self._space(own)) for own in self._bounds.by_key.values()]
        return self.struct("Model", {**self._fields, "space": self._spaces})

    def refined(
        self, layouts: LayoutBounds, abstraction: Mapping[str, Any], by_operand: Callable[[Key], dict[str, Any]]
    ) -> Pointer:
        """Return the model with bounds by layout and an abstract model (`Abstraction.fields`)."""
        spaces = zip(self._bounds.by_key, self._spaces, strict=True)
        space = [{**fields, **grid_fields(layouts, key), **by_operand(key)} for key, fields in spaces]
        return self.struct("Model", {**self._fields, **abstraction, "space": space})

    def common(self) -> dict[str, Any]:
        """Return the fields that the model of Specs and the abstract model share."""
        codes = self._bounds.limit_codes
        return {
            "classes": len(self._bounds.states.classes),
            "levels": len(codes.counts),
            "width": max(len(own.space.operands) for own in self._bounds.by_key.values()),
            "counts": codes.counts,
            "values": codes.values,
            "steps": [*self._bounds.limit_steps],
            "shift": codes.shifts,
            "full": codes.full_word,
            "guard": codes.guard,
        }

    def _space(self, own: SpaceBounds) -> dict[str, Any]:
        tables = self._bounds.of(PipelineBounds).tables
        return {
            **self.shared[own.space.key],
            "closed_operand": -1,
            **self._kernels(own.space),
            **self._moves(own),
            **self.pipelines(own, self._fresh_states, tables.under),
        }

    def _shared(self, own: SpaceBounds) -> dict[str, Any]:
        space = own.space
        groups = [self._loops(own, group) for group in grouped(self._bounds.tables.of(LoopTables).by_key[space.key])]
        return {
            "shapes": space.count,
            "operands": len(space.operands),
            "tensor": space.tensors,
            "width": own.width + 1,
            "bounds": own.values,
            "column": own.full,
            "per_level": own.per_level[:, :-1],
            "after": own.after,
            "groups": len(groups),
            "group": groups,
            **self._costs_of_kernels(space),
        }

    def _costs_of_kernels(self, space: Space) -> dict[str, Any]:
        tables = self._bounds.tables.of(KernelTables).by_key[space.key]
        sets = {table.shapes.tobytes(): table.shapes for table in tables}
        places = np.full((len(sets), space.count), -1)
        for row, shapes in zip(places, sets.values(), strict=True):
            row[shapes] = np.arange(len(shapes))
        number = {content: place for place, content in enumerate(sets)}
        own = np.array([number[table.shapes.tobytes()] for table in tables], dtype=np.int64)
        counts = np.array([len(table.costs) for table in tables], dtype=np.int64)
        lengths = np.repeat(np.array([len(table.shapes) for table in tables], dtype=np.int64), counts)
        starts = (np.cumsum(counts) - counts).tolist()
        self.kernel_costs[space.key] = [
            (table, start + table.which) for table, start in zip(tables, starts, strict=True)
        ]
        return {
            "cost_shapes": np.repeat(own, counts),
            "cost_first": np.cumsum(lengths) - lengths,
            "shape_place": places,
            "set_first": np.cumsum([0, *map(len, sets.values())]),
            "set_shape": np.concatenate([np.zeros(0, dtype=np.int64), *sets.values()]),
            "cost_values": self._bounds.tables.of(KernelTables).costs[space.key],
        }

    def _kernels(self, space: Space) -> dict[str, Any]:
        operands = len(space.operands)
        rows = [np.zeros((0, operands + 3), dtype=np.int64)]
        for table, costs in self.kernel_costs[space.key]:
            needs = self._bounds.limit_codes.least(table.needs)
            if needs is not None:
                of_table = np.broadcast_to([needs, table.priority], (len(costs), 2))
                rows.append(np.column_stack([table.states, costs, of_table]))
        kernels = np.concatenate(rows)
        kernels = kernels[np.lexsort(kernels[:, :operands].T[::-1])]
        return {
            "kernels": len(kernels),
            "kernel_states": kernels[:, :operands],
            "kernel_first": np.arange(len(kernels) + 1),
            "kernel_costs": kernels[:, -3],
            "kernel_needs": kernels[:, -2],
            "kernel_priority": kernels[:, -1],
        }

    def _loops(self, own: SpaceBounds, group: LoopGroup) -> dict[str, Any]:
        parts = [
            {
                "space": self._bounds.index[part.space.key],
                "operands": len(part.args),
                "args": part.args,
                "tuples": self._bounds.by_key[part.space.key].number(own.classes[:, list(part.args)]),
                "shape": part.shape,
                "times": part.times,
                "cut": np.stack(self._bounds.tables.of(LoopTables).cuts(own.space, part, group.shape), axis=-1),
            }
            for part in group.parts
        ]
        return {
            "parts": len(parts),
            "part": parts,
            "fits": self._bounds.apply_to(group.loop.suits, own.classes),
            "first": group.first,
            "cost": group.cost,
            "priority": group.priority,
        }

    def _moves(self, own: SpaceBounds) -> dict[str, Any]:
        moves: list[dict[str, Any]] = []
        first = [0]
        for operand, column in enumerate(own.classes.T):
            there = set(column.tolist())
            for cls in range(len(self._bounds.states.classes)):
                if cls in there:
                    found = self._bounds.of(MoveBounds).classes(own.space.key, operand, cls)
                    moves += [self._move(own, move, cls) for move in found]
                first.append(len(moves))
        return {"move_first": first, "move": moves}

    def _move(self, own: SpaceBounds, move: MoveClass, cls: int) -> dict[str, Any]:
        seen = self._bounds.tables.of(MoveTables).seen
        return {
            **self._bounds.of(MoveBounds).shared(own.space, move, cls),
            "view": move.view,
            "steps": len(move.table.steps),
            "priority": move.table.priorities,
            "keeps": move.table.keeps,
            "into": move.table.into,
            "seen": seen[self._bounds.target.levels[move.level].name] if move.view else None,
        }

    def pipelines(
        self,
        own: SpaceBounds,
        fresh: Callable[[PipelineTable], dict[str, Any]],
        under: Mapping[tuple[int, DimMap], Ints],
    ) -> dict[str, Any]:
        """Return the pipelines of a space.

        `fresh` returns the fields of a table for new tensors, `under` has the states of a rank under other dimensions.
        """
        pipelines = self._bounds.of(PipelineBounds).on(own)
        entries = [np.zeros((3, 0), dtype=np.int64)]
        for number, pipeline in enumerate(pipelines):
            rows = pipeline.rows
            entries.append(np.stack([rows, np.full(len(rows), number), np.arange(len(rows))]))
        tuples, tables, rows = np.concatenate(entries, axis=1)
        order = np.argsort(tuples, kind="stable")
        fields = [
            {
                "parts": len(pipeline.table.parts),
                "tensors": len(pipeline.table.tensors),
                "part": [self._pipeline_part(own.space, part, under) for part in pipeline.table.parts],
                "tensor": pipeline.table.tensors,
                "free": pipeline.table.free,
                "tuples": pipeline.parts,
                "levels": self._bounds.level_of[list(pipeline.new_classes)],
                **fresh(pipeline.table),
            }
            for pipeline in pipelines
        ]
        return {
            "pipeline": fields,
            "pipeline_first": np.searchsorted(tuples[order], np.arange(len(own.tuples) + 1)),
            "pipeline_table": tables[order],
            "pipeline_row": rows[order],
        }

    def _fresh_states(self, table: PipelineTable) -> dict[str, Any]:
        numbers = self._bounds.of(PipelineBounds).tables.numbers
        fresh = [np.where(row >= 0, numbers[row], -1) for rows in table.new_states for row in rows]
        return {"steps": len(table.priorities), "fresh": fresh, "priority": table.priorities}

    def _pipeline_part(
        self, space: Space, part: PipelinePart, under: Mapping[tuple[int, DimMap], Ints]
    ) -> dict[str, Any]:
        return {
            "space": self._bounds.index[part.space.key],
            "operands": len(part.args),
            "holding": len(part.holds),
            "args": part.args,
            "seen": [
                None if dim_map is None else under[len(space.operands[arg].dims), dim_map]
                for arg, dim_map in zip(part.args, part.dim_maps, strict=True)
            ],
            "holds": part.holds,
            "shape": part.shape,
        }


def grid_fields(layouts: LayoutBounds, key: Key) -> dict[str, Any]:
    """Return the bounds by pattern of a space, no fields without them."""
    grid = layouts.by_key.get(key)
    if grid is None:
        return {}
    destinations = grid.sets[1]
    return {
        "grid": grid.values,
        "first": grid.first,
        "set": [sets.of for sets in grid.sets],
        "place": [sets.place for sets in grid.sets],
        "patterns": destinations.place.shape[1],
        "places": destinations.counts,
    }
