"""Lower bounds that know of layouts the innermost dimension, and whether values lie in one run.

Those of `bounds.py` forget layouts, so that to lay a tensor out anew seems to cost no more than to copy it. Here
operands are told apart by their pattern, and memory limits are forgotten instead, but for what the others say of each
Spec that is met on the way.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.numbers import ceil_div, product
from morello.search.bounds.relaxed import MoveClass
from morello.search.bounds.solve import Bounds
from morello.search.layout_bounds.patterns import TWIN, Pattern, Patterns, Run, blurred
from morello.search.tables.pipelines import Axes, Stage, StagePart
from morello.search.tables.shapes import Key, Space, StructuralStep, is_moved

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Spaces that would have more bounds than this do without.
_MOST = 160_000_000
#: Elements that are worked on at once.
_CHUNK = 1 << 21
#: As many as stay in cache.
_NEAR = 1 << 16


@attrs.define(eq=False)
class Grid:
    """The bounds of one space: `values[shape, pattern of operand 0, ...]`, with a last shape for what cannot be.

    `kinds` are the patterns of each operand; `place[operand][pattern]` is where it is among them, -1: nowhere. If the
    grid is not `fine`, one pattern stands for all of its class.
    """

    space: Space
    fine: bool
    kinds: list[list[int]]
    place: list[Ints]
    values: Floats

    @property
    def width(self) -> int:
        return product(map(len, self.kinds))

    def look(self, shape: Ints, places: Sequence[Ints]) -> Floats:
        """Bounds of shapes at places, in arrays that broadcast; infinite where there is no such place."""
        fine = np.ones(1, dtype=np.bool_)
        for one in places:
            fine = fine & (one >= 0)
        return np.where(fine, self.values[(shape, *places)], np.inf)


class LayoutBounds:
    """Bounds that know patterns, where layouts matter more than limits do: of Moves, and of what is taken apart with
    only some of its operands in registers, down to the end. Spaces that are not serial, or too large, do without.
    """

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        self.states = bounds.states
        self.patterns = Patterns(bounds.states)
        self.grids: dict[Key, Grid] = {}
        self.wanted = self._wanted()
        for key in bounds.order:
            self.grids[key] = self._grid(key)
        for key in bounds.order:
            if self.grids[key].fine:
                Filler(self, self.grids[key]).fill()

    def low(self, key: Key, states: Ints, shape: Ints) -> Floats:
        """Lower bounds on Specs of one space with operands in these states, [n, operands]."""
        grid = self.grids[key]
        places = (place[self.patterns.of[one]] for place, one in zip(grid.place, states.T, strict=True))
        return grid.values[(shape, *places)]

    def _wanted(self) -> set[Key]:
        """The spaces whose bounds should know patterns."""
        keys = self.bounds.by_key
        some = [key for key in keys if any(map(key.op.search_hints.to_registers, range(len(keys[key].space.operands))))]
        waiting = [key for key in some if not key.op.search_hints.all_to_registers]
        found = {key for key in keys if key.op.moves_data}
        while waiting:
            key = waiting.pop()
            if key not in found:
                found.add(key)
                waiting += self.bounds.below[key]
        return found

    def _kinds(self, key: Key) -> list[list[int]]:
        """Per operand of a space, the patterns that tensors of its classes and shapes can have."""
        own = self.bounds.by_key[key]
        found = []
        for operand, tensors in enumerate(own.space.tensors):
            there = np.any(self.patterns.cost[:, np.unique(tensors)] < np.inf, axis=1)
            # There are none in a space that no step leads to.
            classes = {each[operand] for each in own.tuples}
            kinds = [number for number, one in enumerate(self.patterns.all) if one.cls in classes and there[number]]
            found.append(sorted(kinds, key=lambda number: self.patterns.all[number].cls))
        return found

    def _grid(self, key: Key) -> Grid:
        """The bounds of `bounds.py` under full limits."""
        own, patterns, kinds = self.bounds.by_key[key], self.patterns.all, self._kinds(key)
        fine = key in self.wanted and all(kinds) and key.serial and own.space.count * product(map(len, kinds)) <= _MOST
        if fine:
            place = [{number: at for at, number in enumerate(operand)} for operand in kinds]
        else:
            kinds = [[*{patterns[number].cls: number for number in operand}.values()] for operand in kinds]
            classes = [{patterns[number].cls: at for at, number in enumerate(operand)} for operand in kinds]
            place = [{number: at.get(one.cls, -1) for number, one in enumerate(patterns)} for at in classes]
        # An operand that cannot be, whatever the shape, has the one place -1, which is infinite.
        columns = np.full([len(operand) or 1 for operand in kinds], own.width, dtype=np.int64)
        for point in itertools.product(*(range(len(operand)) for operand in kinds)):
            found = own.tuples.get(tuple(patterns[operand[at]].cls for operand, at in zip(kinds, point, strict=True)))
            if found is not None:
                columns[point] = own.full[found]
        rows = [np.array([at.get(number, -1) for number in range(len(patterns))], dtype=np.int64) for at in place]
        return Grid(own.space, fine, kinds, rows, own.values[:, columns])


class Filler:
    """Fills in the bounds of one space, when those of all others that its steps lead to are known."""

    def __init__(self, owner: LayoutBounds, grid: Grid):
        self.owner, self.bounds, self.states, self.patterns = owner, owner.bounds, owner.states, owner.patterns
        self.grid, self.space, self.key = grid, grid.space, grid.space.key
        self.rank = len(grid.kinds)
        self.floor = grid.values
        moved = self.rank if is_moved(self.key.op, self.bounds.target) else 0
        self.moves = [Moves(self, operand) for operand in range(moved)]
        #: Per operand, the places of patterns that differ in nothing but their classes.
        self.alike: list[dict[Pattern, Ints]] = []
        for kinds in grid.kinds:
            ways = [attrs.evolve(self.patterns.all[kind], cls=0) for kind in kinds]
            self.alike.append(
                {way: np.array([at for at, own in enumerate(ways) if own == way]) for way in dict.fromkeys(ways)}
            )

    def fill(self) -> None:
        """Work out all bounds, those of smaller shapes first."""
        values = np.full(self.floor.shape, np.inf)
        self.grid.values = values
        for row in self.bounds.kernels[self.key]:
            self._kernel(row.states, row.cost)
        for (key, dtypes), stages in self.bounds.stages.steps.items():
            for stage in stages if key == self.key else ():
                self._stage(stage, [dtype.name for dtype in dtypes])
        steps = self.bounds.spaces.steps[self.key]
        loops = [*self.bounds.loops(self.space)]
        others = [step for step in steps if any(part.space is not self.space for part in step.parts)]
        for layer in self.space.layers():
            for rows in _chunks(layer, len(layer) * self.grid.width, _CHUNK):
                block = values[rows]
                for parts in loops:
                    self._loop(parts, rows, block)
                for step in others:
                    self._step(step, rows, block)
                np.maximum(block, self.floor[rows], out=block)
                self._move(rows, block)
                self._blur(rows, block)
                values[rows] = block

    def _move(self, rows: Ints, block: Floats) -> None:
        """Improve bounds by moves of the operands, which do not depend on each other."""
        again = True
        while again:
            # Only copies of this very space, which may cost less then, make further moves worth while.
            before = block.copy() if self.key.op.moves_data else block
            for moves in self.moves:
                moves.relax(rows, block)
            again = before is not block and not np.array_equal(before, block)

    def along(self, operand: int, index: Ints) -> Ints:
        """An array of [n, patterns of the operand] such that it broadcasts with [n, patterns of operand 0, ...]."""
        shape = [len(index), *[1] * self.rank]
        shape[1 + operand] = index.shape[1]
        return index.reshape(shape)

    def _kernel(self, states: Sequence[int], cost: Floats) -> None:
        cells = np.flatnonzero(cost < np.inf)
        places = []
        for kinds, state in zip(self.grid.kinds, states, strict=True):
            own = int(self.patterns.of[state])
            fits = [at for at, kind in enumerate(kinds) if own in self.patterns.stands[kind]]
            places.append(np.array(fits, dtype=np.int64))
        at = np.ix_(cells, *places)
        values = self.grid.values
        values[at] = np.minimum(values[at], cost[cells].reshape(-1, *[1] * self.rank))

    def _loop(self, parts: Sequence[tuple[Ints, Ints]], rows: Ints, block: Floats) -> None:
        at = np.flatnonzero(parts[0][0][rows] >= 0)
        if not len(at):
            return
        total = np.zeros((len(at), *block.shape[1:]))
        args = tuple(range(self.rank))
        for shape, times in parts:
            has = np.flatnonzero(shape[rows[at]] >= 0)
            cells = rows[at[has]]
            total[has] += self._scaled(times[cells], self._below(self.grid, args, cells, shape[cells]))
        block[at] = np.minimum(block[at], total)

    def _step(self, step: StructuralStep, rows: Ints, block: Floats) -> None:
        at = np.flatnonzero(step.valid[rows])
        if not len(at):
            return
        total = np.zeros((len(at), *block.shape[1:])) + step.cost[rows[at]].reshape(-1, *[1] * self.rank)
        for part in step.parts:
            has = np.flatnonzero(part.shape[rows[at]] >= 0)
            cells = rows[at[has]]
            below = self._below(self.owner.grids[part.space.key], part.args, cells, part.shape[cells])
            total[has] += self._scaled(part.times[cells], below)
        block[at] = np.minimum(block[at], total)

    def _scaled(self, times: Ints, costs: Floats) -> Floats:
        return times.reshape(-1, *[1] * self.rank) * costs

    def _below(self, grid: Grid, args: Sequence[int], cells: Ints, shape: Ints) -> Floats:
        """The bounds of parts of some shapes, whose operands are tiles of those that `args` says."""
        first, second = zip(*(self._tiles(grid, at, arg, cells, shape) for at, arg in enumerate(args)), strict=True)
        shape = shape.reshape(-1, *[1] * self.rank)
        values = grid.values[(shape, *first)]
        # Where it is not known which of two patterns tiles have, the lower bound holds.
        unsure = [
            np.any(one != other, axis=tuple(range(1, one.ndim))) for one, other in zip(first, second, strict=True)
        ]
        for chosen in itertools.product(*((False, True) if np.any(where) else (False,) for where in unsure)):
            if any(chosen):
                both = np.all([where for where, other in zip(unsure, chosen, strict=True) if other], axis=0)
                rows = np.flatnonzero(both)
                places = [pair[other][rows] for *pair, other in zip(first, second, chosen, strict=True)]
                values[rows] = np.minimum(values[rows], grid.values[(shape[rows], *places)])
        return values

    def _tiles(self, grid: Grid, position: int, arg: int, cells: Ints, shape: Ints) -> tuple[Ints, Ints]:
        """Places of the patterns of an operand of a part, along the operand `arg` that it is a tile of: two for each,
        mostly the same.
        """
        tensors = self.states.tensors[len(self.space.operands[arg].dims)].dims
        whole, tile = tensors[:, self.space.tensors[arg][cells]], tensors[:, grid.space.tensors[position][shape]]
        kinds = np.array(self.grid.kinds[arg])
        index = np.full((2, len(cells), len(kinds)), -1, dtype=np.int64)
        for pattern, columns in self.alike[arg].items():
            for run, where in pattern.tiled(whole, tile):
                if not np.any(where):
                    continue
                at = np.ix_(np.flatnonzero(where), columns)
                places = self._places(grid, position, kinds[columns], run)
                index[0][at] = np.where(index[0][at] < 0, places, index[0][at])
                index[1][at] = np.where(places < 0, index[1][at], places)
        return self.along(arg, index[0]), self.along(arg, index[1])

    def _places(self, grid: Grid, operand: int, kinds: Ints, run: Run) -> Ints:
        """Where patterns are whose values lie so, or those that they are not told apart from."""
        first, second = (grid.place[operand][self.patterns.lying[kinds, one]] for one in (run, TWIN[run]))
        return np.where(first < 0, second, first)

    def _blur(self, rows: Ints, block: Floats) -> None:
        """Give DENSE and FULL the same bounds where they are not told apart."""
        for operand, kinds in enumerate(self.grid.kinds):
            rank = len(self.space.operands[operand].dims)
            same = np.flatnonzero(blurred(self.states.tensors[rank].dims[:, self.space.tensors[operand][rows]]))
            aside = np.moveaxis(block, 1 + operand, 1)
            for at, kind in enumerate(kinds):
                twin = int(self.grid.place[operand][self.patterns.lying[kind, TWIN[self.patterns.all[kind].run]]])
                if twin > at:
                    aside[same, at] = aside[same, twin] = np.minimum(aside[same, at], aside[same, twin])

    def _stage(self, stage: Stage, dtypes: Sequence[str]) -> None:
        """A stage, for every combination of patterns that its new tensors can have."""
        own = [
            np.array([at for at, kind in enumerate(kinds) if self._dtype(kind) == dtype], dtype=np.int64)
            for kinds, dtype in zip(self.grid.kinds, dtypes, strict=True)
        ]
        values = self.grid.values
        for fresh, cost in self._fresh(stage).items():
            there = np.flatnonzero(cost < np.inf)
            for cells in _chunks(there, len(there) * self.grid.width, _CHUNK):
                total = cost[cells].reshape(-1, *[1] * self.rank)
                for part in stage.parts:
                    total = total + self._stage_part(part, fresh, cells, own)
                at = np.ix_(cells, *own)
                values[at] = np.minimum(values[at], total)

    def _dtype(self, kind: int) -> str:
        return self.states.classes[self.patterns.all[kind].cls].dtype.name

    def _fresh(self, stage: Stage) -> dict[tuple[int, ...], Floats]:
        """What new tensors cost at least, per combination of their patterns and shape."""
        found: dict[tuple[int, ...], Floats] = {}
        there = stage.parts[0].shape >= 0
        for row in stage.fresh:
            states = np.full((len(row), len(there)), -1, dtype=np.int64)
            for index, one in enumerate(row):
                states[index, one >= 0] = self.states.of_stages[one[one >= 0]]
            cells = np.flatnonzero(there & np.all(states >= 0, axis=0))
            cost = np.zeros(len(cells))
            for state, tensors in zip(states, stage.tensors, strict=True):
                cost += self.states.cost[state[cells], tensors[cells]]
            kinds = self.patterns.of[states[:, cells]]
            for one in _columns(kinds) if len(cells) else ():
                mine = np.all(kinds == one[:, None], axis=0)
                known = found.setdefault(tuple(one.tolist()), np.full(self.space.count, np.inf))
                known[cells[mine]] = np.minimum(known[cells[mine]], cost[mine])
        return found

    def _stage_part(self, part: StagePart, fresh: Sequence[int], cells: Ints, own: Sequence[Ints]) -> Floats:
        grid = self.owner.grids[part.space.key]
        if grid is self.grid:
            # Its own bounds are not known yet.
            grid = attrs.evolve(grid, values=self.floor)
        places = []
        for position, (arg, axes) in enumerate(zip(part.args, part.axes, strict=True)):
            if arg >= self.rank:
                places.append(self.along(0, grid.place[position][[[fresh[arg - self.rank]]]]))
                continue
            seen = (self._seen(self.patterns.all[self.grid.kinds[arg][at]], axes) for at in own[arg])
            found = np.array([self.patterns.numbers.get(one, -1) if one else -1 for one in seen], dtype=np.int64)
            places.append(self.along(arg, np.where(found >= 0, grid.place[position][found], -1)[None]))
        return grid.look(part.shape[cells].reshape(-1, *[1] * self.rank), places)

    def _seen(self, pattern: Pattern, axes: Axes | None) -> Pattern | None:
        """A pattern under other dimensions; None where it cannot be."""
        if axes is None:
            return pattern
        seen = attrs.evolve(self.states.classes[pattern.cls], rank=len(axes))
        cls = self.states.class_numbers.get(seen)
        return None if cls is None else pattern.under(axes, cls)


class Moves:
    """The moves of one operand of a space: from which patterns to which, per shape."""

    def __init__(self, filler: Filler, operand: int):
        self.filler, self.operand = filler, operand
        self.kinds = filler.grid.kinds[operand]
        self.declared = filler.space.operands[operand]
        self.tensors = filler.space.tensors[operand]
        self.copy_shapes = filler.bounds.move_shapes(filler.space, operand)
        key = filler.bounds.move_key[len(self.declared.dims), filler.key.serial]
        self.copies = filler.owner.grids[key]
        count = len(self.kinds)
        self.offered = np.zeros((filler.states.cost.shape[1], count, count), dtype=np.bool_)
        self.view = np.zeros((count, count), dtype=np.bool_)
        place = {kind: at for at, kind in enumerate(self.kinds)}
        for at, kind in enumerate(self.kinds):
            for move in filler.bounds.move_classes(filler.key, operand, filler.patterns.all[kind].cls):
                self._enter(at, kind, move, place)
        # What does not fit a level is not moved there.
        levels = [filler.states.classes[filler.patterns.all[kind].cls].level for kind in self.kinds]
        axes = filler.bounds.axes
        room = np.array([axes.bytes(level, axes.full[level]) for level in levels])
        self.offered &= (filler.patterns.bytes[self.kinds] <= room[:, None]).T[:, None, :]

    def _enter(self, at: int, kind: int, move: MoveClass, place: dict[int, int]) -> None:
        """Enter what one pattern can become by the moves to a class of states."""
        patterns, states = self.filler.patterns, self.filler.states
        members = patterns.members[kind]
        for row, keeps in zip(move.offer.fresh, move.offer.keeps, strict=True):
            if keeps:
                made = row[members]
                for into in np.unique(patterns.of[made[made >= 0]]).tolist():
                    if into in place:
                        self.offered[:, at, place[into]] = True
                continue
            for into in np.unique(patterns.of[row[row >= 0]]).tolist():
                if into in place:
                    shapes = np.flatnonzero((row >= 0) & (patterns.of[row] == into))
                    self.offered[shapes, at, place[into]] = True
        if move.view:
            seen = states.seen[self.filler.bounds.target.levels[move.level].name][members]
            for into in np.unique(patterns.of[seen[seen >= 0]]).tolist():
                if into in place:
                    self.view[at, place[into]] = True

    def relax(self, rows: Ints, block: Floats) -> None:
        """Improve bounds by any number of these moves, one after another."""
        cost = _closed(self._cost(rows, block))
        # Few shapes at once, so that all that is worked on stays in cache.
        for part in _chunks(np.arange(len(rows)), block.size, _NEAR):
            self._relax(cost[part], block[part[0] : part[-1] + 1])

    def _relax(self, cost: Floats, block: Floats) -> None:
        count = len(self.kinds)
        aside = np.moveaxis(block, 1 + self.operand, 1)
        values = aside.reshape(len(block), count, -1)
        found = np.empty_like(values)
        possible = np.any(cost < np.inf, axis=0)
        for into in range(count):
            start = np.flatnonzero(possible[:, into])
            for run in np.split(start, 1 + np.flatnonzero(np.diff(start) > 1)) if len(start) else ():
                whole = slice(run[0], run[-1] + 1)
                moved = np.add(values[:, into : into + 1], cost[:, whole, into, None], out=found[:, whole])
                np.minimum(values[:, whole], moved, out=values[:, whole])
        aside[...] = values.reshape(aside.shape)

    def _cost(self, rows: Ints, block: Floats) -> Floats:
        """What each move of some shapes costs besides its body, [rows, from, to]."""
        patterns, copies = self.filler.patterns, self.copies
        tensors, at = self.tensors[rows], self.copy_shapes[rows]
        own = patterns.cost[self.kinds][:, tensors].T
        values = block if copies is self.filler.grid else copies.values[at]
        first, second = copies.place[0][self.kinds], copies.place[1][self.kinds]
        copied = np.zeros((len(rows), len(self.kinds), len(self.kinds)))
        if self.declared.reads:
            copied += values[:, first[:, None], second[None]]
        if self.declared.writes:
            copied += values[:, first[None], second[:, None]]
        cost = own[:, :, None] + own[:, None, :] + np.where(self.view, 0.0, copied)
        return np.where(self.offered[tensors], cost, np.inf)


def _chunks(cells: Ints, size: int, most: int) -> list[Ints]:
    """Cells that have `size` values together, so many at once that they have about as many as that."""
    return np.array_split(cells, min(len(cells), ceil_div(size, most))) if len(cells) else []


def _closed(cost: Floats) -> Floats:
    """What any number of steps costs at least, [n, from, to], given what one does."""
    for over in range(cost.shape[1]):
        np.minimum(cost, cost[:, :, over, None] + cost[:, None, over], out=cost)
    return cost


def _columns(kinds: Ints) -> Ints:
    """The columns that differ, as rows."""
    return np.unique(kinds, axis=1).T if len(kinds) else np.zeros((1, 0), dtype=np.int64)
