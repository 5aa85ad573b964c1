"""Lower bounds: the cost of every Spec if layouts and contiguity were forgotten and the cheapest case assumed.

The optimum of the relaxed problem (`relaxed.py`) is never more than that of any Spec it stands for. It is solved
exactly, for all shapes and for the limits that matter most.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import attrs
import numpy as np
import numpy.typing as npt

from morello.kernels.target import Target
from morello.rewrites.tile import Tile
from morello.search.bounds.parallel import SharedLoops
from morello.search.bounds.relaxed import Classes, Columns, MoveClass, Relaxed, SpaceBounds
from morello.search.tables.kernels import KernelRow
from morello.search.tables.operand_states import NEVER, States
from morello.search.tables.pipelines import Stages
from morello.search.tables.shapes import Key, Space, Spaces, StructuralStep, is_moved

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Threads that share the work.
THREADS = min(4, os.cpu_count() or 1)
#: No program costs less: each has a microkernel, and each microkernel costs at least this.
LEAST = 1.0


@attrs.frozen
class _Planned:
    """A move of class tuple `columns`, whose operand is of class `cls`.

    `table[which[shape]]` are the columns that its own lead to; `depends` are the first columns of the class tuples
    that its cost depends on.
    """

    columns: Columns
    move: MoveClass
    cls: int
    table: Ints
    which: Ints
    depends: tuple[int, ...]


class Bounds(Relaxed):
    """Lower bounds on the cost of every Spec below the goals, and the moves between state classes.

    `trivial` bounds say only that every program costs something: all that is known where rewrites may do anything.
    """

    def __init__(
        self,
        goals: Sequence[tuple[Key, Classes]],
        spaces: Spaces,
        states: States,
        stages: Stages,
        kernels: dict[Key, list[KernelRow]],
        target: Target,
        *,
        trivial: bool = False,
    ):
        super().__init__(goals, spaces, states, stages, kernels, target)
        for bounds in self.by_key.values() if trivial else ():
            bounds.values = np.full((bounds.space.count + 1, bounds.width + 1), LEAST)
        #: The spaces that steps of each lead to.
        self.below = {key: dict.fromkeys(self._below(key)) for key in self.by_key}
        #: Spaces, each after those that its steps lead to.
        self.order = self._order()
        own = {
            key
            for key in self.by_key
            if any(part.space.key == key for stage in self.stages.below(key) for part in stage.parts)
        }
        stale = set() if trivial else {*self.order}
        # One pass does it, unless stages lead round in a circle: then what it led to was not known the first time.
        while stale:
            for key in self.order:
                if key in stale:
                    stale.remove(key)
                    if self._solve(self.by_key[key]):
                        stale |= {one for one in self.order if key in self.below[one] and (one != key or key in own)}

    def _below(self, key: Key) -> Iterator[Key]:
        """The spaces that steps of one lead to."""
        yield from (part.space.key for step in self.spaces.steps[key] for part in step.parts)
        yield from (part.space.key for stage in self.stages.below(key) for part in stage.parts)
        for one in self.spaces.by_key[key].operands if is_moved(key.op, self.target) else ():
            yield self.move_key[len(one.dims), key.serial]

    def _order(self) -> list[Key]:
        """Spaces in an order in which each comes after those that its steps lead to, itself aside."""
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

    def _solve(self, bounds: SpaceBounds) -> bool:
        """Fill in the values of one space, smaller shapes first. Returns whether any changed."""
        space, before = bounds.space, bounds.values
        # One more column and row, for what cannot be.
        values = np.full((space.count + 1, bounds.width + 1), np.inf)
        bounds.values = values
        # Neither kernels nor stages depend on smaller shapes; stages that lead to this space go by what it was before.
        self._apply_kernels(values, bounds)
        self._apply_stages(values, bounds, before)
        loops = [*self.loops(space)]
        others = [step for step in self.spaces.steps[space.key] if any(part.space is not space for part in step.parts)]
        shared = SharedLoops([step for step in others if isinstance(step.step, Tile)], self, bounds)
        others = [step for step in others if not isinstance(step.step, Tile)]
        plan = [*self._move_plan(bounds)]

        def fill(rows: Ints) -> None:
            block = values[rows]
            for (main, times), *further in loops:
                at = np.flatnonzero(main[rows] >= 0)
                if len(at):
                    cells = rows[at]
                    looped = values[main[cells]] * times[cells][:, None]
                    for rest, repeated in further:
                        there = rest[cells] >= 0
                        inside = cells[there]
                        looped[there] += values[rest[inside]] * repeated[inside][:, None]
                    block[at] = np.minimum(block[at], looped)
            for step in others:
                self._apply(step, rows, block, bounds)
            if shared:
                shared.relax(rows, block)
            values[rows] = block
            self._relax_moves(plan, rows, values, space)

        # Shapes of a layer do not depend on each other, and numpy lets other threads run.
        with ThreadPoolExecutor(THREADS) as pool:
            for rows in space.layers():
                list(pool.map(fill, np.array_split(rows, min(THREADS, len(rows)))))
        return not np.array_equal(before, values)

    def _apply_kernels(self, values: Floats, bounds: SpaceBounds) -> None:
        """What the cheapest kernel costs, per shape and column."""
        for row in self.kernels[bounds.space.key]:
            number = bounds.tuples.get(tuple(int(self.states.cls[state]) for state in row.states))
            if number is None:
                continue
            columns = bounds.columns[number]
            fits = np.ones(columns.count, dtype=np.bool_)
            for level, need in enumerate(row.needs):
                fits &= self.axes.bytes(level, columns.numbers[:, level]) >= need
            cells = np.flatnonzero(row.cost < np.inf)
            at = columns.first + np.flatnonzero(fits)
            values[np.ix_(cells, at)] = np.minimum(values[np.ix_(cells, at)], row.cost[cells][:, None])

    def loops(self, space: Space) -> Iterator[list[tuple[Ints, Ints]]]:
        """The loops that matter: for each body the shape of its tiles, -1 for none, and its trips.

        In the relaxed problem loops cost nothing and keep class tuples, so that a loop over a smaller tile is no
        better than one over the largest whose tiles and rest are looped over in turn, if the one size divides the
        other. Loops for which that does not hold are kept all.
        """
        steps = [step for step in self.spaces.steps[space.key] if all(part.space is space for part in step.parts)]
        best: dict[int, tuple[Ints, Ints]] = {}
        for step in steps:
            dim = _looped_dim(space, step)
            if dim is None:
                yield [(np.where(step.valid, part.shape, -1), part.times) for part in step.parts]
                continue
            if dim not in best:
                best[dim] = np.full((2, space.count), -1), np.zeros((2, space.count), dtype=np.int64)
            shapes, times = best[dim]
            size = space.sizes[dim]
            better = step.valid & ((shapes[0] < 0) | (size[step.parts[0].shape] > size[shapes[0]]))
            shapes[:, better] = -1
            for position, part in enumerate(step.parts):
                shapes[position, better], times[position, better] = part.shape[better], part.times[better]
        for shapes, times in best.values():
            yield [*zip(shapes, times, strict=True)]

    def _apply(self, step: StructuralStep, rows: Ints, block: Floats, bounds: SpaceBounds) -> None:
        """A step to other spaces: what its parts cost under the same limits."""
        cells = rows[step.valid[rows]]
        at = np.flatnonzero(step.valid[rows])
        for columns in bounds.columns if len(at) else ():
            if not self.suit(step.suits, columns.classes):
                continue
            total = np.broadcast_to(step.cost[cells][:, None].astype(np.float64), (len(at), columns.count)).copy()
            for part in step.parts:
                below = self.by_key[part.space.key]
                child = below.columns[below.tuples[tuple(columns.classes[arg] for arg in part.args)]]
                column = child.first + columns.numbers @ child.strides
                has = part.shape[cells] >= 0
                costs = below.values[np.ix_(part.shape[cells][has], column)]
                total[has] += part.times[cells][has][:, None] * costs
            here = slice(columns.first, columns.first + columns.count)
            block[at, here] = np.minimum(block[at, here], total)

    def _apply_stages(self, values: Floats, bounds: SpaceBounds, before: Floats) -> None:
        """Stages: what new tensors cost and take at least, and parts with the memory that is left."""
        for columns in bounds.columns:
            for one in self.staged(bounds.space.key, columns.classes):
                cells = np.flatnonzero(one.valid)
                own = np.zeros(len(cells))
                used = []
                for cls, tensors in zip(one.fresh, one.stage.tensors, strict=True):
                    own += self.cheapest[cls][tensors[cells]]
                    used.append((self.states.classes[cls].level, self.smallest[cls][tensors[cells]]))
                total = np.repeat(own[:, None], columns.count, axis=1)
                for part, classes in zip(one.stage.parts, one.parts, strict=True):
                    below = self.by_key[part.space.key]
                    known = before if below is bounds else below.values
                    if not known.size:
                        total[:] = np.inf
                        break
                    child = below.columns[below.tuples[classes]]
                    column = self._columns_left(columns, child, [used[tensor] for tensor in part.holds], below.width)
                    total += known[part.shape[cells][:, None], column]
                here = slice(columns.first, columns.first + columns.count)
                values[cells, here] = np.minimum(values[cells, here], total)

    def _columns_left(self, columns: Columns, child: Columns, used: Sequence[tuple[int, Ints]], never: int) -> Ints:
        """Columns of the child, [shapes, columns], while bytes of levels are held; `never` where they do not fit."""
        plain = child.first + columns.numbers @ child.strides
        held: dict[int, Ints] = {}
        for level, amount in used:
            held[level] = np.minimum(held.get(level, 0) + np.minimum(amount, NEVER), NEVER)
        if not held:
            return plain[None]
        column: Ints = plain[None]
        for level, amount in held.items():
            amounts, which = np.unique(amount, return_inverse=True)
            before = columns.numbers[:, level][None]
            left = self.axes.lower(level, before, amounts[:, None])
            shift = (left - before) * child.strides[level]
            column = np.where((left < 0)[which] | (column == never), never, column + shift[which])
        return column

    def _move_plan(self, bounds: SpaceBounds) -> Iterator[_Planned]:
        """Moves between classes, those of operands in the fastest levels first, with the column each leads to."""
        key = bounds.space.key
        ordered = sorted(bounds.columns, key=lambda one: sum(self.states.classes[cls].level for cls in one.classes))
        for columns in ordered:
            for operand, cls in enumerate(columns.classes):
                for move in self.move_classes(key, operand, cls):
                    if move.into == cls:
                        continue
                    into = (*columns.classes[:operand], move.into, *columns.classes[operand + 1 :])
                    child = bounds.columns[bounds.tuples[into]]
                    amounts, which = np.unique(move.bytes, return_inverse=True)
                    table = self._columns_after(columns, child, move.level, amounts, bounds.width)
                    # Copies of a Move's operands are Moves themselves.
                    copies = [] if move.view or not key.op.moves_data else [(cls, move.into), (move.into, cls)]
                    depends = [
                        child.first,
                        *(bounds.columns[bounds.tuples[two]].first for two in copies if two in bounds.tuples),
                    ]
                    yield _Planned(columns, move, cls, table, which, tuple(depends))

    def _columns_after(self, columns: Columns, child: Columns, level: int, amounts: Ints, never: int) -> Ints:
        """Per amount taken of a level: the column of the child for each column; `never` where it does not fit."""
        numbers = np.repeat(columns.numbers[None], len(amounts), axis=0)
        left = self.axes.lower(level, columns.numbers[:, level][None], np.minimum(amounts, NEVER)[:, None])
        numbers[:, :, level] = np.maximum(left, 0)
        return np.where(left < 0, never, child.first + numbers @ child.strides)

    def _relax_moves(self, plan: Sequence[_Planned], rows: Ints, values: Floats, space: Space) -> None:
        """Improve `rows` by moves, until none does: those of what a move leads to go again when that has changed."""
        clock = 0
        changed: dict[int, int] = {}
        tried: dict[int, int] = {}
        again = True
        while again:
            again = False
            for index, one in enumerate(plan):
                if index in tried and tried[index] >= max(changed.get(below, 0) for below in one.depends):
                    continue
                clock += 1
                tried[index] = clock
                own = one.move.cost[rows] + self.cheapest[one.cls][space.tensors[one.move.operand][rows]]
                if not one.move.view:
                    own = own + self.copies(space, one.move, one.cls, rows)
                found = values[rows[:, None], one.table[one.which[rows]]] + own[:, None]
                here = slice(one.columns.first, one.columns.first + one.columns.count)
                before = values[rows, here]
                if np.any(found < before):
                    values[rows, here] = np.minimum(found, before)
                    changed[one.columns.first] = clock
                    again = True

    def copies(self, space: Space, move: MoveClass, cls: int, rows: Ints) -> Floats:
        """What loading and storing cost at least when an operand is moved, with all memory free."""
        one = space.operands[move.operand]
        key = self.move_key[len(one.dims), space.key.serial]
        below = self.by_key[key]
        at = self.move_shapes(space, move.operand)[rows]
        total = np.zeros(len(rows))
        if one.reads:
            total += below.values[at, below.full[below.tuples[cls, move.into]]]
        if one.writes:
            total += below.values[at, below.full[below.tuples[move.into, cls]]]
        return total


def _looped_dim(space: Space, step: StructuralStep) -> int | None:
    """The dimension of a loop over tiles of a power of two along one dimension that costs nothing itself, else None."""
    cells = np.flatnonzero(step.valid)
    if np.any(step.cost[cells]) or any(part.args != tuple(range(len(space.operands))) for part in step.parts):
        return None
    main = step.parts[0].shape[cells]
    cut = [dim for dim, size in enumerate(space.sizes) if np.any(size[main] != size[cells])]
    if len(cut) != 1:
        return None
    size, tile = space.sizes[cut[0]][cells], space.sizes[cut[0]][main]
    if np.any(tile & (tile - 1)) or np.any(step.parts[0].times[cells] != size // tile):
        return None
    left = size % tile
    if len(step.parts) == 1:
        return None if np.any(left) else cut[0]
    rest = step.parts[1].shape[cells]
    fine = np.where(rest >= 0, space.sizes[cut[0]][rest], 0) == left
    return cut[0] if np.all(fine) and np.all(step.parts[1].times[cells][rest >= 0] == 1) else None
