"""Marshal the tables and bounds of search into the model of `_engine.h`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

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
    """Limits packed into one word: a field per level for its code, and above each field a guard bit that stays 0."""

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
        fields = [words >> np.uint64(s) & np.uint64(m) for s, m in zip(self.shifts, self.masks, strict=True)]
        return np.stack(fields, axis=-1).astype(np.int64)

    def mask(self, levels: Sequence[bool]) -> int:
        """Return a word whose fields are ones for these levels."""
        return self.pack(mask if there else 0 for mask, there in zip(self.masks, levels, strict=True))

    def least(self, needs: Sequence[int]) -> int | None:
        """Return the least limits with these bytes per level as a word, None if no limits suffice."""
        codes = [int(np.searchsorted(values, need)) for values, need in zip(self.values, needs, strict=True)]
        fits = all(code < count for code, count in zip(codes, self.counts, strict=True))
        return self.pack(codes) if fits else None

    def bytes(self, words: Any) -> Ints:
        """Return limits in bytes, [n, levels], of words, [n]."""
        codes = self.unpack(words)
        return np.stack([values[codes[..., level]] for level, values in enumerate(self.values)], axis=-1)


@attrs.frozen
class KernelCosts:
    """The costs of kernels on one space: per table the index of the cost of each of its state tuples, [n].

    `fields` are the fields of `Space` that hold these costs.
    """

    tables: list[tuple[KernelTable, Ints]]
    fields: dict[str, Any]


class Marshaller(Structs):
    """The tables and bounds of one search, as arrays and structs of C.

    `relevant`, [levels of the operand, levels], marks the limits that matter to an operand.
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

    def model(self, *, generic: bool, exhaustive: bool, recalls: bool) -> Any:
        """Return the model of Specs.

        `generic`: there are generic rewrites; `exhaustive`: no bound excludes a program; `recalls`: Python may have
        answers of earlier searches.
        """
        states, packed_limits, loops = self._states, self._packed_limits, self._bounds.tables.of(LoopTables)
        words = np.array([packed_limits.mask(row) for row in self._relevant.tolist()], dtype=np.uint64)
        fields = {
            **self.common(),
            "spaces": len(self._index),
            "states": len(states),
            "generic": generic,
            "exhaustive": exhaustive,
            "recalls": recalls,
            "space": [self.fields("Space", self._space(own)) for own in self._bounds.by_key.values()],
            "cls": states.cls,
            "relevant": words[states.level],
            "cost": states.cost,
            "bytes": states.bytes,
            "cheapest": self._bounds.cheapest,
            "smallest": self._bounds.smallest,
            "kind": [tiles.kinds for tiles in loops.tile],
            "tile": [tiles.made for tiles in loops.tile],
        }
        return self.struct("Model", fields)

    def refined(self, model: Pointer, layouts: LayoutBounds, abstraction: Mapping[str, Any]) -> Pointer:
        """Return a copy of a model with bounds by layout and an abstract model (`Abstraction.fields`)."""
        spaces = [model.space[number] for number in self._index.values()]
        space = self.copied("Space", spaces, [self.grid(layouts, key) for key in self._index])
        return self.copied("Model", [model[0]], [{**abstraction, "space": space}])

    def common(self) -> dict[str, Any]:
        """Return the fields that the model of Specs and the abstract model share."""
        packed_limits = self._packed_limits
        return {
            "classes": len(self._states.classes),
            "levels": len(packed_limits.counts),
            "width": max(len(key.op.operands(key.rank)) for key in self._index),
            "counts": packed_limits.counts,
            "values": packed_limits.values,
            "steps": [*self._bounds.limit_steps],
            "shift": packed_limits.shifts,
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
        """Return the fields of a space that both models share, given the numbers of spaces."""
        groups = [
            {**group, "part": [{**part, "space": index[below]} for below, part in parts]}
            for group, parts in self._loops[key]
        ]
        return {**self._shared[key], **self.fields("Space", {"groups": len(groups), "group": groups})}

    def _shared_fields(self, own: SpaceBounds) -> dict[str, Any]:
        space = own.space
        fields = {
            "shapes": space.count,
            "operands": len(space.operands),
            "tensor": space.tensors,
            "width": own.width + 1,
            "bounds": own.values,
            "column": own.full,
            "per_level": own.per_level[:, :-1],
            "after": own.after,
        }
        return self.fields("Space", fields)

    def grid(self, layouts: LayoutBounds, key: Key) -> dict[str, Any]:
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
            "kernel_states": states[order],
            "kernel_first": np.arange(len(order) + 1),
            "kernel_costs": np.concatenate([states[:0, 0], *(of for _, _, of in fitting)])[order],
            **costs.fields,
            "kernel_needs": np.repeat(needs, counts)[order],
            "kernel_priority": np.repeat(priorities, counts)[order],
        }

    def kernel_costs(self, key: Key) -> KernelCosts:
        """Return the costs of kernels on a space."""
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
            fields = {
                "cost_shapes": np.repeat(own, counts),
                "cost_first": np.cumsum(lengths) - lengths,
                "shape_place": places,
                "cost_values": np.concatenate(values),
            }
            self._kernel_costs[key] = KernelCosts(
                [(table, start + table.which) for table, start in zip(tables, starts.tolist(), strict=True)],
                self.fields("Space", fields),
            )
        return self._kernel_costs[key]

    def _groups(self, own: SpaceBounds) -> Iterable[tuple[dict[str, Any], list[tuple[Key, dict[str, Any]]]]]:
        """Yield groups of loops with equal kinds of parts and levels, and the space and fields of each part."""
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
                "fits": fits,
                "first": np.searchsorted(shape, np.arange(own.space.count + 1)),
                "cost": np.stack([member.cost for member in members])[step, shape],
                "priority": np.array([member.priority for member in members])[step],
            }
            yield self.fields("LoopGroup", group), parts

    def _loop_part(
        self, own: SpaceBounds, position: int, members: Sequence[LoopTable], step: Ints, shape: Ints
    ) -> tuple[Key, dict[str, Any]]:
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
        fields = {
            "operands": len(args),
            "args": args,
            "tuples": self._bounds.by_key[below.key].number(own.classes[:, list(args)]),
            "shape": tiles,
            "times": np.stack([part.times for part in parts])[step, shape],
            "cut": np.stack(cuts, axis=-1),
        }
        return below.key, self.fields("LoopPart", fields)

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
        return {"move_first": first, "move": moves}

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
            "priority": move.table.priorities,
            "keeps": move.table.keeps,
            "into": move.table.into,
            "copy_shape": bounds.copy_shapes(own.space, move.operand),
        }
        if move.view:
            fields["seen"] = tables.seen[self._bounds.target.levels[move.level].name]
        return fields

    def pipelines(
        self,
        own: SpaceBounds,
        index: Mapping[Key, int],
        fresh: Callable[[PipelineTable], dict[str, Any]],
        under: Callable[[int, DimMap], Ints],
    ) -> dict[str, Any]:
        """Return the pipelines of a space.

        `fresh` returns the fields of a table for new tensors, `under` the states of a rank under other dimensions.
        """
        rows, order, classes = self._pipeline_classes[own.space.key]
        found = [np.zeros(0, dtype=self.dtype("PipelineClass"))]
        for table, structs in classes:
            fields = {
                "parts": len(table.parts),
                "tensors": len(table.tensors),
                "part": [self._pipeline_part(own.space, part, index, under) for part in table.parts],
                "tensor": table.tensors,
                **fresh(table),
            }
            found.append(structs.copy())
            found[-1]["table"] = self.address("PipelineTable", [fields])
        return {
            "pipeline_first": np.searchsorted(rows, np.arange(len(own.tuples) + 1)),
            "pipeline": np.concatenate(found)[order],
        }

    def _pipelines_of(self, own: SpaceBounds) -> tuple[Ints, Ints, list[tuple[PipelineTable, npt.NDArray[Any]]]]:
        """Return the class tuples that pipelines apply to, their order, and the structs of each table."""
        pipelines = self._bounds.of(PipelineBounds).on(own)
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(pipeline.rows for pipeline in pipelines)])
        order = np.argsort(rows, kind="stable")
        return rows[order], order, [(pipeline.table, self._pipeline(pipeline)) for pipeline in pipelines]

    def _pipeline(self, pipeline: PipelineClasses) -> npt.NDArray[Any]:
        """Return a `PipelineClass` for each class tuple, [n], without its table."""
        tuples = np.stack(pipeline.parts, axis=1).astype(np.int32)
        levels = self._bounds.level_of[list(pipeline.new_classes)]
        found = np.zeros(len(tuples), dtype=self.dtype("PipelineClass"))
        found["tuples"] = self.address("int32_t", tuples) + np.arange(len(tuples)) * tuples.strides[0]
        found["levels"] = self.address("int32_t", levels)
        return found

    def _fresh_states(self, table: PipelineTable) -> dict[str, Any]:
        numbers = self._bounds.of(PipelineBounds).tables.numbers
        fresh = [np.where(row >= 0, numbers[row], -1) for rows in table.new_states for row in rows]
        return {
            "steps": len(table.priorities),
            "fresh": fresh,
            "priority": table.priorities,
        }

    def _states_under(self, rank: int, dim_map: DimMap) -> Ints:
        return self._bounds.of(PipelineBounds).tables.under[rank, dim_map]

    def _pipeline_part(
        self, space: Space, part: PipelinePart, index: Mapping[Key, int], under: Callable[[int, DimMap], Ints]
    ) -> dict[str, Any]:
        return {
            "space": index[part.space.key],
            "operands": len(part.args),
            "holding": len(part.holds),
            "args": part.args,
            "seen": [
                None if dim_map is None else under(len(space.operands[arg].dims), dim_map)
                for arg, dim_map in zip(part.args, part.dim_maps, strict=True)
            ],
            "holds": part.holds,
            "shape": part.shape,
        }
