"""Take every step on many cells at once: edges from cells to the cells of their parts.

Only edges that can belong to a program within the cells' budgets are made: first the bounds of state classes are
asked, which costs little, and then what is known of the very cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from morello.ir.ops.base import Operation
from morello.search.arrays import Bools, Floats, Ints
from morello.search.bounds.moves import MoveBounds, MoveClass
from morello.search.bounds.pipelines import PipelineBounds, PipelineClass
from morello.search.bounds.solve import Bounds
from morello.search.solve.cells import CellTable, SpecTables
from morello.search.tables.kernels import KernelTable, KernelTables
from morello.search.tables.loops import WHOLE, LoopTable, LoopTables
from morello.search.tables.moves import MoveTables
from morello.search.tables.shapes import Key

#: Elements of the arrays that a step's first test works on: small enough to stay in a core's cache.
_CHUNK = 1 << 18


@attrs.frozen
class Edges:
    """Steps taken: the cell, the step's own cost and priority, its parts' cells (0: none) and times.

    `held` are the bytes of `level` that the step holds while its parts run, None for none; where that differs from
    part to part it is in `live`, [n, parts, levels]. `needs`, [n, levels], are bytes that a step needs by itself.
    """

    parent: Ints
    cost: Floats
    priority: Ints
    child: Ints  # [parts, n]
    times: Floats  # [parts, n]
    level: int = 0
    held: Ints | None = None
    live: Ints | None = None
    needs: Ints | None = None

    def select(self, keep: Bools | Ints) -> Edges:
        """Return the edges that a mask or numbers pick."""
        held, live, needs = (None if one is None else one[keep] for one in (self.held, self.live, self.needs))
        rows = self.parent[keep], self.cost[keep], self.priority[keep], self.child[:, keep], self.times[:, keep]
        return Edges(*rows, self.level, held, live, needs)

    def memory(self, parts: int, levels: int) -> tuple[Ints, Ints]:
        """Return bytes held while each part runs, [n, parts, levels], and those that the step needs, [n, levels]."""
        count = len(self.parent)
        live = np.zeros((count, parts, levels), dtype=np.int64)
        if self.held is not None:
            live[:, :, self.level] = self.held[:, None]
        if self.live is not None:
            live[:, : self.live.shape[1]] = self.live
        return live, np.zeros((count, levels), dtype=np.int64) if self.needs is None else self.needs

    def total(self, known: Floats) -> Floats:
        """Return the cost of each step, [n], when cells cost what `known` says."""
        sums = self.cost
        for child, times in zip(self.child, self.times, strict=True):
            sums = sums + times * known[child]
        return sums


@attrs.frozen
class _Group:
    """Structural steps whose parts are of the same kind, stacked: arrays are [steps, shapes].

    `fits` says of each class tuple whether the steps apply to it, `least` is what they cost at least themselves.
    """

    priorities: Ints
    valid: Bools
    cost: Ints
    parts: tuple[_GroupPart, ...]
    fits: Bools
    least: float


@attrs.frozen
class _GroupPart:
    space: int
    args: tuple[int, ...]
    shape: Ints
    times: Ints
    pairs: tuple[Ints, ...]
    classes: Ints  # per class tuple of the space, that of the part


class SpaceExpander:
    """Expands cells of one space."""

    def __init__(self, number: int, bounds: Bounds, tables: SpecTables, cells: CellTable):
        self.number = number
        self.bounds = bounds
        self.own = tables.spaces[number]
        self.space = self.own.space
        self.tables = tables
        self.cells = cells
        self.states = bounds.states
        self.op: Operation = self.space.key.op
        self._loops = bounds.tables.of(LoopTables)
        self._pipelines = bounds.of(PipelineBounds)
        self._moves = bounds.of(MoveBounds)
        self._seen = bounds.tables.of(MoveTables).seen
        self._new_numbers, self._under = self._pipelines.tables.numbers, self._pipelines.tables.under
        self.kernels: list[KernelTable] = bounds.tables.of(KernelTables).by_key[self.space.key]
        kernels = self.kernels
        self._kernel_cost = np.stack([row.cost for row in kernels]) if kernels else np.zeros((0, self.space.count))
        self._kernel_needs = np.array([row.needs for row in kernels], dtype=np.int64).reshape(
            len(kernels), len(bounds.limit_codes.counts)
        )
        self._kernel_priorities = np.array([row.priority for row in kernels], dtype=np.int64)
        self._kernels_of: dict[tuple[int, ...], list[int]] = {}
        for index, row in enumerate(kernels):
            self._kernels_of.setdefault(row.states, []).append(index)
        self._groups = [*self._stack(self._loops.by_key[self.space.key])]
        self._class_after: dict[tuple[int, int], Ints] = {}
        self._copies: dict[tuple[int, int, int], Floats] = {}

    def expand(self, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        """Yield all steps on these cells that may lead to programs within their budgets."""
        yield from self._kernel_edges(cells, budgets)
        for group in self._groups:
            size = max(1, _CHUNK // len(group.priorities))
            at = np.flatnonzero(
                (budgets >= group.least) & group.fits[self.tables.classes.values[self.cells.table.values[cells]]]
            )
            for start in range(0, len(at), size):
                mine = at[start : start + size]
                yield from self._structural(group, cells[mine], budgets[mine])
        yield from self._pipeline_steps(cells, budgets)
        yield from self._move_steps(cells, budgets)

    def _stack(self, steps: Sequence[LoopTable]) -> Iterator[_Group]:
        kinds: dict[tuple[tuple[tuple[Key, tuple[int, ...]], ...], tuple[bool, ...]], list[LoopTable]] = {}
        for step in steps:
            kind = tuple((part.space.key, part.args) for part in step.parts)
            kinds.setdefault((kind, step.suits), []).append(step)
        for (kind, suits), members in kinds.items():
            parts = tuple(self._stack_part(position, members) for position in range(len(kind)))
            valid, cost = np.stack([step.valid for step in members]), np.stack([step.cost for step in members])
            yield _Group(
                np.array([step.priority for step in members], dtype=np.int64),
                valid,
                cost,
                parts,
                np.array([self.bounds.apply_to(suits, classes) for classes in self.own.tuples], dtype=np.bool_),
                float(np.min(cost[valid], initial=np.iinfo(np.int64).max)),
            )

    def _stack_part(self, position: int, members: Sequence[LoopTable]) -> _GroupPart:
        parts = [step.parts[position] for step in members]
        shape = np.stack([part.shape for part in parts])
        below, args = parts[0].space, parts[0].args
        pairs: list[Ints] = []
        for at, arg in enumerate(args):
            whole = np.broadcast_to(self.space.tensors[arg], shape.shape)
            tile = np.where(shape >= 0, below.tensors[at][shape], whole)
            pairs.append(self._loops.cut_numbers(self.space.operands[arg].sliding, whole, tile))
        child = self.bounds.by_key[below.key].tuples
        classes = np.array([child[tuple(row[arg] for arg in args)] for row in self.own.tuples], dtype=np.int64)
        number = self.tables.index[below.key]
        return _GroupPart(number, args, shape, np.stack([part.times for part in parts]), tuple(pairs), classes)

    def _kernel_edges(self, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        if not self.kernels:
            return
        table = self.cells.table.values[cells]
        operands = len(self.space.operands)
        distinct, which = np.unique(table, return_inverse=True)
        rows = [
            self._kernels_of.get(tuple(row), ()) for row in self.tables.states.values[distinct][:, :operands].tolist()
        ]
        width = max(map(len, rows), default=0)
        chosen = np.array([[*row, *[-1] * (width - len(row))] for row in rows], dtype=np.int64).reshape(
            len(rows), width
        )
        shape, limits = self.cells.shape.values[cells], self.cells.limits.values[cells]
        for column in chosen.T:
            row = column[which]
            cost = np.where(row >= 0, self._kernel_cost[row, shape], np.inf)
            fine = cost <= budgets
            for level in range(limits.shape[1]):
                need = self._kernel_needs[row, level]
                if need.any():
                    fine &= need <= self.cells.limit_codes.bytes(level, limits[:, level])
            row = row[fine]
            none = np.zeros((0, len(row)))
            if len(row):
                child, needs = none.astype(np.int64), self._kernel_needs[row]
                yield Edges(cells[fine], cost[fine], self._kernel_priorities[row], child, none, needs=needs)

    def _structural(self, group: _Group, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        shape = self.cells.shape.values[cells]
        table = self.cells.table.values[cells]
        limits = self.cells.limits.values[cells].astype(np.int64)
        classes = self.tables.classes.values[table]
        total = np.where(group.valid[:, shape], group.cost[:, shape].astype(np.float64), np.inf)
        for part in group.parts:
            child = part.shape[:, shape]
            costs = self.cells.bound(part.space, part.classes[classes], child, limits)
            total += np.where(child >= 0, part.times[:, shape] * costs, 0.0)
        step, at = np.nonzero(total <= budgets)
        if not len(step):
            return
        states = self.tables.states.values[table[at]]
        keep = np.ones(len(step), dtype=np.bool_)
        made: list[tuple[Ints, Ints]] = []
        for part in group.parts:
            child = part.shape[step, shape[at]]
            columns: list[Ints] = []
            for position, arg in enumerate(part.args):
                pair = part.pairs[position][step, shape[at]]
                state = np.where(pair == WHOLE, states[:, arg], self._loops.tile[states[:, arg], pair])
                keep &= (state >= 0) | (child < 0)
                columns.append(state)
            made.append((child, np.stack(columns, axis=-1)))
        step, at = step[keep], at[keep]
        numbers: list[Ints] = []
        times: list[Ints] = []
        for part, (child, tiles) in zip(group.parts, made, strict=True):
            numbers.append(self._cells(part.space, tiles[keep], child[keep], limits[at]))
            times.append(part.times[step, shape[at]])
        cost = group.cost[step, shape[at]].astype(np.float64)
        edges = Edges(cells[at], cost, group.priorities[step], np.stack(numbers), np.stack(times).astype(np.float64))
        yield edges.select(edges.total(self.cells.low.values) <= budgets[at])

    def _pipeline_steps(self, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        """Take pipelines, for the cells of each class tuple together."""
        if not any(True for _ in self._pipelines.tables.of_space(self.space.key)):
            return
        classes = self.tables.classes.values[self.cells.table.values[cells]]
        for number in np.unique(classes).tolist():
            mine = np.flatnonzero(classes == number)
            for pipeline in self._pipelines.classes(self.space.key, [*self.own.tuples][int(number)]):
                size = max(1, _CHUNK // len(pipeline.table.priorities))
                for start in range(0, len(mine), size):
                    at = mine[start : start + size]
                    yield from self._pipeline(pipeline, cells[at], budgets[at])

    def _pipeline(self, pipeline: PipelineClass, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        """Take the steps of one table on cells whose operands are of the same classes; arrays are [steps, cells]."""
        table = pipeline.table
        shape = self.cells.shape.values[cells]
        fresh = [np.stack(rows)[:, shape] for rows in zip(*table.new_states, strict=True)]
        limits = self.cells.limits.values[cells].astype(np.int64)
        total = np.where(table.parts[0].shape[shape] >= 0, np.zeros((len(table.priorities), len(cells))), np.inf)
        used: list[tuple[int, Ints, Ints]] = []
        for states, tensors, cls in zip(fresh, table.tensors, pipeline.new_classes, strict=True):
            numbers = np.where(states >= 0, self._new_numbers[states], -1)
            total += np.where(states >= 0, self.states.cost[numbers, tensors[shape]], np.inf)
            used.append((self.states.classes[cls].level, numbers, self.states.bytes[numbers, tensors[shape]]))
        own = total.copy()
        lowered: list[Ints] = []
        for part, classes in zip(table.parts, pipeline.parts, strict=True):
            left = np.broadcast_to(limits, (*total.shape, limits.shape[-1])).copy()
            for level in {used[tensor][0] for tensor in part.holds}:
                held = sum(used[tensor][2] for tensor in part.holds if used[tensor][0] == level)
                left[..., level] = self.cells.limit_codes.lower(level, limits[:, level], held)
            fits = np.all(left >= 0, axis=-1)
            lowered.append(np.maximum(left, 0))
            number = np.asarray(self.bounds.by_key[part.space.key].tuples[classes])
            costs = self.cells.bound(self.tables.index[part.space.key], number, part.shape[shape], lowered[-1])
            total += np.where(fits, costs, np.inf)
        step, at = np.nonzero(total <= budgets)
        if len(step):
            picked = [numbers[step, at] for _, numbers, _ in used]
            held = [amount[step, at] for _, _, amount in used]
            limits = [left[step, at] for left in lowered]
            yield from self._pipeline_edges(pipeline, cells[at], budgets[at], step, own[step, at], picked, held, limits)

    def _pipeline_edges(
        self,
        pipeline: PipelineClass,
        cells: Ints,
        budgets: Floats,
        step: Ints,
        cost: Floats,
        fresh: Sequence[Ints],
        held: Sequence[Ints],
        limits: Sequence[Ints],
    ) -> Iterator[Edges]:
        states = self.tables.states.values[self.cells.table.values[cells]]
        shape = self.cells.shape.values[cells]
        operands = self.space.operands
        columns: list[Ints] = []
        for part in pipeline.table.parts:
            made: list[Ints] = []
            for arg, dim_map in zip(part.args, part.dim_maps, strict=True):
                state = states[:, arg] if arg < len(operands) else fresh[arg - len(operands)]
                made.append(state if dim_map is None else self._under[len(operands[arg].dims), dim_map][state])
            columns.append(np.stack(made, axis=-1))
        keep = np.flatnonzero(np.all(np.concatenate(columns, axis=1) >= 0, axis=1))
        child: list[Ints] = []
        live = np.zeros((len(keep), len(columns), limits[0].shape[-1]), dtype=np.int64)
        for position, (part, below, left) in enumerate(zip(pipeline.table.parts, columns, limits, strict=True)):
            number = self.tables.index[part.space.key]
            child.append(self._cells(number, below[keep], part.shape[shape[keep]], left[keep]))
            for tensor in part.holds:
                live[:, position, self.states.classes[pipeline.new_classes[tensor]].level] += held[tensor][keep]
        times = np.ones((len(child), len(keep)))
        priorities = np.array(pipeline.table.priorities, dtype=np.int64)[step[keep]]
        edges = Edges(cells[keep], cost[keep], priorities, np.stack(child), times, live=live)
        yield edges.select(edges.total(self.cells.low.values) <= budgets[keep])

    def _cells(self, space: int, states: Ints, shape: Ints, limits: Ints) -> Ints:
        """Numbers of the cells with these states and shapes; 0 where the shape is -1."""
        has = shape >= 0
        numbers = np.zeros(len(shape), dtype=np.int64)
        if has.any():
            table = self.tables.numbers(space, states[has])
            numbers[has] = self.cells.numbers(table, shape[has], limits[has])
        return numbers

    def _move_steps(self, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        states = self.tables.states.values[self.cells.table.values[cells]]
        for operand in range(len(self.space.operands)):
            classes = self.states.cls[states[:, operand]]
            for cls in np.unique(classes).tolist():
                mine = np.flatnonzero(classes == cls)
                for move in self._moves.classes(self.space.key, operand, cls):
                    for start in range(0, len(mine), _CHUNK // 16):
                        at = mine[start : start + _CHUNK // 16]
                        yield from self._move(move, cls, cells[at], budgets[at])

    def _move(self, move: MoveClass, cls: int, cells: Ints, budgets: Floats) -> Iterator[Edges]:
        shape, table = self.cells.shape.values[cells], self.cells.table.values[cells]
        state = self.tables.states.values[table, move.operand]
        tensor = self.space.tensors[move.operand][shape]
        limits = self.cells.limits.values[cells].astype(np.int64)
        classes = self._after(move)[self.tables.classes.values[table]]
        own = self.states.cost[state, tensor]
        copies = self._copied(move, cls)[shape]
        # The cheapest state of the class, before any one state is looked at.
        left = self.cells.limit_codes.lower(move.level, limits[:, move.level], move.bytes[shape])
        fine = left >= 0
        best = self._bound_after(move, classes, shape, limits, np.maximum(left, 0))
        fine &= own + move.cost[shape] + best + (0 if move.view else copies) <= budgets
        at = np.flatnonzero(fine)
        if not len(at):
            return
        shape, state, tensor, limits, own = shape[at], state[at], tensor[at], limits[at], own[at]
        classes, copies, cells, budgets = classes[at], copies[at], cells[at], budgets[at]
        fresh = np.stack(
            [row[state] if keeps else row[tensor] for row, keeps in zip(move.table.into, move.table.keeps, strict=True)]
        )
        used = self.states.bytes[fresh, tensor]
        left = self.cells.limit_codes.lower(move.level, limits[:, move.level], used)
        valid = (fresh >= 0) & (fresh != state) & (left >= 0)
        view = np.zeros(fresh.shape, dtype=np.bool_)
        if move.view:
            view = fresh == self._seen[self.bounds.target.levels[move.level].name][state]
        rest = self._bound_after(move, classes, shape, limits, np.maximum(left, 0))
        cost = own + self.states.cost[fresh, tensor]
        step, at = np.nonzero(valid & (cost + rest + np.where(view, 0.0, copies) <= budgets))
        if len(step):
            yield self._move_edges(move, cells[at], budgets[at], step, fresh[step, at], left[step, at], view[step, at])

    def _move_edges(
        self, move: MoveClass, cells: Ints, budgets: Floats, step: Ints, fresh: Ints, left: Ints, view: Bools
    ) -> Edges:
        table, shape = self.cells.table.values[cells], self.cells.shape.values[cells]
        operand, one = move.operand, self.space.operands[move.operand]
        states = self.tables.states.values[table][:, : len(self.space.operands)]
        limits = self.cells.limits.values[cells].astype(np.int64)
        limits[:, move.level] = left
        state, tensor = states[:, operand].copy(), self.space.tensors[operand][shape]
        after = states.copy()
        after[:, operand] = fresh
        child = [self._cells(self.number, after, shape, limits)]
        times = [np.ones(len(cells))]
        copied = np.where(view, -1, self._moves.copy_shapes(self.space, operand)[shape])
        key = self._moves.copy_key(self.space, operand)
        for wanted, pair in ((one.reads, (state, fresh)), (one.writes, (fresh, state))):
            if wanted and not view.all():
                child.append(self._cells(self.tables.index[key], np.stack(pair, axis=-1), copied, limits))
                times.append((~view).astype(np.float64))
        cost = self.states.cost[state, tensor] + self.states.cost[fresh, tensor]
        held = self.states.bytes[fresh, tensor]
        edges = Edges(cells, cost, move.table.priorities[step], np.stack(child), np.stack(times), move.level, held)
        return edges.select(edges.total(self.cells.low.values) <= budgets)

    def _bound_after(self, move: MoveClass, classes: Ints, shape: Ints, limits: Ints, left: Ints) -> Floats:
        lowered = np.broadcast_to(limits, (*left.shape, limits.shape[-1])).copy()
        lowered[..., move.level] = left
        return self.cells.bound(self.number, classes, shape, lowered)

    def _after(self, move: MoveClass) -> Ints:
        """Return the class tuple after the move, per class tuple before it."""
        key = move.operand, move.into
        if key not in self._class_after:
            tuples = self.own.tuples
            into = [(*row[: move.operand], move.into, *row[move.operand + 1 :]) for row in tuples]
            self._class_after[key] = np.array([tuples.get(row, -1) for row in into], dtype=np.int64)
        return self._class_after[key]

    def _copied(self, move: MoveClass, cls: int) -> Floats:
        """Return what loading and storing cost at least, [shapes]."""
        key = move.operand, cls, move.into
        if key not in self._copies:
            self._copies[key] = self._moves.copy_costs(self.space, move, cls, np.arange(self.space.count))
        return self._copies[key]
