"""Hand the tables and bounds of search to its compiled part, as `_engine.h` says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.tensor import DimMap
from morello.search.arrays import Bools, Ints
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.bounds.pipelines import PipelineBounds, PipelineClasses
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.solve import LayoutBounds
from morello.search.structs import Pointer, Structs
from morello.search.tables.kernels import KernelTable, KernelTables
from morello.search.tables.limits import LimitCodes
from morello.search.tables.loops import WHOLE, LoopTable, LoopTables
from morello.search.tables.moves import MoveTables
from morello.search.tables.pipelines import PipelinePart, PipelineTable
from morello.search.tables.shapes import Key, Space


class PackedLimits:
    """Limits packed into one word: per level a lane for its code, and above each lane a bit that stays 0."""

    def __init__(self, codes: LimitCodes):
        self.codes = codes
        self.counts = [int(count) for count in codes.counts]
        self.values = [np.asarray(codes.bytes(level, np.arange(n))) for level, n in enumerate(self.counts)]
        widths = [(count - 1).bit_length() for count in self.counts]
        self.shifts = [sum(widths[:level]) + level for level in range(len(widths))]
        self.masks = [(1 << width) - 1 for width in widths]
        if sum(widths) + len(widths) > 64:
            raise MorelloError(
                "the limits of this target's levels do not fit into 64 bits", "declare fewer levels, or larger units"
            )
        self.guard = sum(1 << shift + width for shift, width in zip(self.shifts, widths, strict=True))
        self.full = self.pack([count - 1 for count in self.counts])

    def pack(self, codes: Iterable[int]) -> int:
        """Return the word for one code per level."""
        return sum(int(code) << shift for code, shift in zip(codes, self.shifts, strict=True))

    def unpack(self, words: Any) -> Ints:
        """Return the codes, [n, levels], of words, [n]."""
        words = np.asarray(words, dtype=np.uint64)
        packed_limits = [words >> np.uint64(s) & np.uint64(m) for s, m in zip(self.shifts, self.masks, strict=True)]
        return np.stack(packed_limits, axis=-1).astype(np.int64)

    def mask(self, levels: Sequence[bool]) -> int:
        """Return a word whose packed_limits are ones for these levels."""
        return self.pack(mask if there else 0 for mask, there in zip(self.masks, levels, strict=True))

    def least(self, needs: Sequence[int]) -> int | None:
        """Return the least limits that have so many bytes per level, None if there are none."""
        codes = [int(np.searchsorted(values, need)) for values, need in zip(self.values, needs, strict=True)]
        fits = all(code < count for code, count in zip(codes, self.counts, strict=True))
        return self.pack(codes) if fits else None

    def bytes(self, words: Any) -> Ints:
        """Return limits in bytes, [n, levels], of words, [n]."""
        codes = self.unpack(words)
        return np.stack([values[codes[..., level]] for level, values in enumerate(self.values)], axis=-1)


@attrs.frozen
class KernelCosts:
    """The costs of kernels on one space: per table the number of the cost of each of its tuples of states, [n].

    `fields` are those of `Space` that tell of costs.
    """

    tables: list[tuple[KernelTable, Ints]]
    fields: dict[str, Any]


class Marshaller(Structs):
    """The tables and bounds of one search, as arrays and structs of C.

    `relevant` says whose limits matter to an operand, [levels of the operand, levels].
    """

    def __init__(self, bounds: Bounds, packed_limits: PackedLimits, relevant: Bools):
        super().__init__()
        self._bounds, self._packed_limits, self._relevant = bounds, packed_limits, relevant
        self._states = bounds.states
        self._index = {key: number for number, key in enumerate(bounds.by_key)}
        self._kernel_costs: dict[Key, KernelCosts] = {}
        self._shared = {key: self._shared_fields(own) for key, own in bounds.by_key.items()}
        self._loops = {key: [*self._groups(own)] for key, own in bounds.by_key.items()}
        self._pipeline_classes = {key: self._pipelines_of(own) for key, own in bounds.by_key.items()}

    def model(self, *, unknown: bool, exhaustive: bool, asks: bool) -> Any:
        """Return the whole: flags say whether there are unknown steps, every program is looked at, and Python asked."""
        states, packed_limits, loops = self._states, self._packed_limits, self._bounds.tables.of(LoopTables)
        words = np.array([packed_limits.mask(row) for row in self._relevant.tolist()], dtype=np.uint64)
        fields = {
            **self.common(),
            "spaces": len(self._index),
            "states": len(states),
            "unknown": unknown,
            "exhaustive": exhaustive,
            "asks": asks,
            "space": self.structs("Space", [self._space(own) for own in self._bounds.by_key.values()]),
            "cls": self.array(states.cls, "int32_t"),
            "relevant": self.array(words[states.level], "uint64_t"),
            "cost": self.rows(states.cost, "double"),
            "bytes": self.rows(states.bytes, "int64_t"),
            "cheapest": self.rows(self._bounds.cheapest, "double"),
            "smallest": self.rows(self._bounds.smallest, "int64_t"),
            "kind": self.rows([tiles.kinds for tiles in loops.tile], "int16_t"),
            "tile": self.rows([tiles.made for tiles in loops.tile], "int32_t"),
        }
        return self.keep(self.ffi.new("Model *", fields))

    def refined(self, model: Pointer, layouts: LayoutBounds, abstraction: Mapping[str, Any]) -> Pointer:
        """Return a model with bounds by layout, and the fields that tell of the abstract problem."""
        spaces = self.keep(self.ffi.new("Space[]", len(self._index)))
        for number, key in enumerate(self._index):
            spaces[number] = model.space[number]
            for name, value in self.grid(layouts, key).items():
                setattr(spaces[number], name, value)
        finer = self.keep(self.ffi.new("Model *", model[0]))
        finer.space = spaces
        for name, value in abstraction.items():
            setattr(finer, name, value)
        return finer

    def common(self) -> dict[str, Any]:
        """Return the fields of a model that do not depend on whether operands are in states or have patterns."""
        packed_limits = self._packed_limits
        return {
            "classes": len(self._states.classes),
            "levels": len(packed_limits.counts),
            "width": max(len(key.op.operands(key.rank)) for key in self._index),
            "counts": self.array(packed_limits.counts, "int32_t"),
            "values": self.rows(packed_limits.values, "int64_t"),
            "steps": self.rows([*self._bounds.limit_steps], "int64_t"),
            "shift": self.array(packed_limits.shifts, "int32_t"),
            "full": packed_limits.full,
            "guard": packed_limits.guard,
        }

    def _space(self, own: SpaceBounds) -> dict[str, Any]:
        key = own.space.key
        return {
            **self.shared(key, self._index),
            "closed_operand": -1,
            **self._kernels(own.space),
            **self._moves(own),
            **self.pipelines(own, self._index, self._fresh_states, self._states_under),
        }

    def shared(self, key: Key, index: Mapping[Key, int]) -> dict[str, Any]:
        """Return the fields of a space that do not depend on whether operands are in states or have patterns.

        `index` says which number a space has.
        """
        groups: list[dict[str, Any]] = []
        for group, parts in self._loops[key]:
            numbered = [{**part, "space": index[part["space"]]} for part in parts]
            groups.append({**group, "part": self.structs("LoopPart", numbered)})
        return {**self._shared[key], "groups": len(groups), "group": self.structs("LoopGroup", groups)}

    def _shared_fields(self, own: SpaceBounds) -> dict[str, Any]:
        space = own.space
        return {
            "shapes": space.count,
            "operands": len(space.operands),
            "tensor": self.rows(space.tensors, "int32_t"),
            "width": own.width + 1,
            "bounds": self.array(own.values, "float"),
            "column": self.array(own.full, "int32_t"),
            "per_level": self.array(own.per_level[:, :-1], "int32_t"),
            "after": self.rows(own.after, "int32_t"),
        }

    def grid(self, layouts: LayoutBounds, key: Key) -> dict[str, Any]:
        """Return the bounds by pattern of a space, if it has any."""
        grid = layouts.by_key.get(key)
        if grid is None:
            return {}
        destinations = grid.sets[1]
        return {
            "grid": self.array(grid.values, "double"),
            "first": self.array(grid.first, "int64_t"),
            "set": self.rows([sets.of for sets in grid.sets], "int32_t"),
            "place": self.rows([sets.place for sets in grid.sets], "int32_t"),
            "patterns": destinations.place.shape[1],
            "places": self.array(destinations.counts, "int32_t"),
        }

    def _kernels(self, space: Space) -> dict[str, Any]:
        costs = self.kernel_costs(space.key)
        kernels = [(table, self._packed_limits.least(table.needs), of) for table, of in costs.tables]
        fitting = [(table, need, of) for table, need, of in kernels if need is not None]
        counts = np.array([len(table.states) for table, _, _ in fitting], dtype=np.int64)
        states = np.concatenate(
            [np.zeros((0, len(space.operands)), dtype=np.int64), *(table.states for table, _, _ in fitting)]
        )
        order = np.lexsort(states.T[::-1])
        needs = np.array([need for _, need, _ in fitting], dtype=np.uint64)
        priorities = np.array([table.priority for table, _, _ in fitting], dtype=np.int64)
        return {
            "kernels": len(order),
            "kernel_states": self.array(states[order], "int32_t"),
            "kernel_first": self.array(np.arange(len(order) + 1), "int32_t"),
            "kernel_costs": self.array(
                np.concatenate([states[:0, 0], *(of for _, _, of in fitting)])[order], "int32_t"
            ),
            **costs.fields,
            "kernel_needs": self.array(np.repeat(needs, counts)[order], "uint64_t"),
            "kernel_priority": self.array(np.repeat(priorities, counts)[order], "int64_t"),
        }

    def kernel_costs(self, key: Key) -> KernelCosts:
        """Return all costs of kernels on a space."""
        if key not in self._kernel_costs:
            tables = self._bounds.tables.of(KernelTables).by_key[key]
            sets = {table.shapes.tobytes(): table.shapes for table in tables}
            places = np.full((len(sets), self._bounds.by_key[key].space.count), -1)
            for row, shapes in zip(places, sets.values(), strict=True):
                row[shapes] = np.arange(len(shapes))
            number = {content: place for place, content in enumerate(sets)}
            own = np.array([number[table.shapes.tobytes()] for table in tables], dtype=np.int64)
            counts = np.array([len(table.costs) for table in tables], dtype=np.int64)
            lengths = np.repeat(np.array([len(table.shapes) for table in tables], dtype=np.int64), counts)
            starts = np.cumsum(counts) - counts
            values = [np.zeros(0), *(table.costs.reshape(-1) for table in tables)]
            self._kernel_costs[key] = KernelCosts(
                [(table, start + table.which) for table, start in zip(tables, starts.tolist(), strict=True)],
                {
                    "cost_shapes": self.array(np.repeat(own, counts), "int32_t"),
                    "cost_first": self.array(np.cumsum(lengths) - lengths, "int64_t"),
                    "shape_place": self.array(places, "int32_t"),
                    "cost_values": self.array(np.concatenate(values), "double"),
                },
            )
        return self._kernel_costs[key]

    def _groups(self, own: SpaceBounds) -> Iterable[tuple[dict[str, Any], list[dict[str, Any]]]]:
        """Yield loops with the same kinds of parts that suit the same levels, entry by entry, and these parts."""
        kinds: dict[tuple[tuple[tuple[Key, tuple[int, ...]], ...], tuple[bool, ...]], list[LoopTable]] = {}
        for step in self._bounds.tables.of(LoopTables).by_key[own.space.key]:
            kind = tuple((part.space.key, part.args) for part in step.parts)
            kinds.setdefault((kind, step.suits), []).append(step)
        for (kind, suits), members in kinds.items():
            shape, step = np.nonzero(np.stack([member.valid for member in members], axis=1))
            parts = [self._loop_part(own, position, members, step, shape) for position in range(len(kind))]
            fits = self._bounds.apply_to(suits, own.classes)
            group = {
                "parts": len(parts),
                "fits": self.array(fits, "uint8_t"),
                "first": self.array(np.searchsorted(shape, np.arange(own.space.count + 1)), "int64_t"),
                "cost": self.array(np.stack([member.cost for member in members])[step, shape], "double"),
                "priority": self.array(np.array([member.priority for member in members])[step], "int64_t"),
            }
            yield group, parts

    def _loop_part(
        self, own: SpaceBounds, position: int, members: Sequence[LoopTable], step: Ints, shape: Ints
    ) -> dict[str, Any]:
        loops, space = self._bounds.tables.of(LoopTables), own.space
        parts = [member.parts[position] for member in members]
        below, args = parts[0].space, parts[0].args
        tiles = np.stack([part.shape for part in parts])[step, shape]
        cuts: list[Ints] = []
        for at, arg in enumerate(args):
            whole = space.tensors[arg][shape]
            tile = np.where(tiles >= 0, below.tensors[at][tiles], whole)
            cuts.append(loops.cut_numbers(space.operands[arg].sliding, whole, tile))
        assert WHOLE < 0
        child = self._bounds.by_key[below.key].number(own.classes[:, list(args)])
        return {
            "space": below.key,
            "operands": len(args),
            "args": self.array(args, "int32_t"),
            "tuples": self.array(child, "int32_t"),
            "shape": self.array(tiles, "int32_t"),
            "times": self.array(np.stack([part.times for part in parts])[step, shape], "double"),
            "cut": self.array(np.stack(cuts, axis=-1), "int32_t"),
        }

    def _moves(self, own: SpaceBounds) -> dict[str, Any]:
        moves: list[dict[str, Any]] = []
        first = [0]
        for operand in range(len(own.space.operands)):
            there = set(own.classes[:, operand].tolist())
            for cls in range(len(self._states.classes)):
                if cls in there:
                    found = self._bounds.of(MoveBounds).classes(own.space.key, operand, cls)
                    moves += [self._move(own, move, cls) for move in found]
                first.append(len(moves))
        return {"move_first": self.array(first, "int32_t"), "move": self.structs("MoveClass", moves)}

    def _move(self, own: SpaceBounds, move: MoveClass, cls: int) -> dict[str, Any]:
        bounds, tables = self._bounds.of(MoveBounds), self._bounds.tables.of(MoveTables)
        fields = {
            "operand": move.operand,
            "level": move.level,
            "view": move.view,
            "steps": len(move.table.steps),
            "copy_space": self._index[bounds.copy_key(own.space, move.operand)],
            "load": -1,
            "store": -1,
            **bounds.copies(own.space, move, cls),
            "cls": move.into,
            "priority": self.array(move.table.priorities, "int64_t"),
            "keeps": self.array(move.table.keeps, "uint8_t"),
            "into": self.rows(move.table.into, "int64_t"),
            "copy_shape": self.rows([bounds.copy_shapes(own.space, move.operand)], "int32_t")[0],
        }
        if move.view:
            fields["seen"] = self.rows([tables.seen[self._bounds.target.levels[move.level].name]], "int64_t")[0]
        return fields

    def pipelines(
        self,
        own: SpaceBounds,
        index: Mapping[Key, int],
        fresh: Callable[[PipelineTable], dict[str, Any]],
        under: Callable[[int, DimMap], Ints],
    ) -> dict[str, Any]:
        """Return the pipelines of a space.

        `fresh` returns the fields of a table that tell of new tensors, and `under` what states of a rank become under
        other dimensions.
        """
        rows, order, classes = self._pipeline_classes[own.space.key]
        found = [np.zeros((0, 3), dtype=np.int64)]
        for table, fields in classes:
            parts = [self._pipeline_part(own.space, part, index, under) for part in table.parts]
            struct = {
                "parts": len(parts),
                "tensors": len(table.tensors),
                "part": self.structs("PipelinePart", parts),
                "tensor": self.rows(table.tensors, "int32_t"),
            }
            pointer = self.structs("PipelineTable", [{**struct, **fresh(table)}])
            found.append(fields.copy())
            found[-1][:, 0] = int(self.ffi.cast("intptr_t", pointer))
        # There are so many that structs made one by one take seconds: here each is a row of three pointers.
        pointers = np.concatenate(found)[order]
        assert self.ffi.sizeof("PipelineClass") == 3 * pointers.itemsize
        return {
            "pipeline_first": self.array(np.searchsorted(rows, np.arange(len(own.tuples) + 1)), "int32_t"),
            "pipeline": self.ffi.cast("PipelineClass *", self.array(pointers, "int64_t")),
        }

    def _pipelines_of(self, own: SpaceBounds) -> tuple[Ints, Ints, list[tuple[PipelineTable, Ints]]]:
        """Return the class tuples that pipelines are for, their order, and the fields of each class tuple by table."""
        pipelines = self._bounds.of(PipelineBounds).on(own)
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(pipeline.rows for pipeline in pipelines)])
        order = np.argsort(rows, kind="stable")
        return rows[order], order, [(pipeline.table, self._pipeline(pipeline)) for pipeline in pipelines]

    def _pipeline(self, pipeline: PipelineClasses) -> Ints:
        """Return the fields of `PipelineClass` for each class tuple, [n, fields]: pointers all, the table's 0."""
        tuples = np.stack(pipeline.parts, axis=1).astype(np.int32)
        levels = self._bounds.level_of[list(pipeline.new_classes)]
        pointers = self.array(tuples, "int32_t"), self.array(levels, "int32_t")
        fields = np.array([[0, *(int(self.ffi.cast("intptr_t", pointer)) for pointer in pointers)]], dtype=np.int64)
        found = np.repeat(fields, len(tuples), axis=0)
        found[:, 1] += np.arange(len(tuples)) * tuples.strides[0]
        return found

    def _fresh_states(self, table: PipelineTable) -> dict[str, Any]:
        numbers = self._bounds.of(PipelineBounds).tables.numbers
        fresh = [np.where(row >= 0, numbers[row], -1) for rows in table.new_states for row in rows]
        return {
            "steps": len(table.priorities),
            "fresh": self.rows(fresh, "int32_t"),
            "priority": self.array(table.priorities, "int64_t"),
        }

    def _states_under(self, rank: int, dim_map: DimMap) -> Ints:
        return self._bounds.of(PipelineBounds).tables.under[rank, dim_map]

    def _pipeline_part(
        self, space: Space, part: PipelinePart, index: Mapping[Key, int], under: Callable[[int, DimMap], Ints]
    ) -> dict[str, Any]:
        seen = self.keep(self.ffi.new("int64_t *[]", len(part.args)))
        for at, (arg, dim_map) in enumerate(zip(part.args, part.dim_maps, strict=True)):
            if dim_map is not None:
                seen[at] = self.rows([under(len(space.operands[arg].dims), dim_map)], "int64_t")[0]
        return {
            "space": index[part.space.key],
            "operands": len(part.args),
            "holding": len(part.holds),
            "args": self.array(part.args, "int32_t"),
            "seen": seen,
            "holds": self.array(part.holds, "int32_t"),
            "shape": self.array(part.shape, "int32_t"),
        }
