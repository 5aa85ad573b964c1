"""Loops in the relaxed problem: they keep the classes of operands and all limits, and most cost nothing themselves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from morello.search.arrays import Floats, Ints
from morello.search.bounds.parallel import ParallelRelaxer, is_parallel
from morello.search.bounds.relaxed import Classes, Node, Relaxed, Relaxer, SpaceBounds, StepBounds
from morello.search.tables.loops import LoopTable, LoopTables
from morello.search.tables.shapes import Key, Space

#: For each body of a loop the shape of its tiles, [shapes], -1 for none, and its trips, [shapes].
Bodies = list[tuple[Ints, Ints]]


class LoopBounds(StepBounds):
    """Loops, and other steps that treat operand states alike."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.by_key = relaxed.tables.of(LoopTables).by_key

    def ways(self, key: Key, classes: Classes) -> Iterator[tuple[Node, ...]]:
        for loop in self.by_key[key]:
            nodes = [(part.space.key, tuple(classes[arg] for arg in part.args)) for part in loop.parts]
            always = [bool(np.all(part.shape[loop.valid] >= 0)) for part in loop.parts]
            yield tuple(nodes)
            if any(always):
                yield tuple(node for node, needed in zip(nodes, always, strict=True) if needed)

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from (part.space.key for loop in self.by_key[key] for part in loop.parts if part.space.key != key)

    def may_take(self, key: Key, classes: Classes) -> set[int]:
        return set()

    def relaxer(self, bounds: SpaceBounds) -> Relaxer:
        return _LoopRelaxer(self, bounds)

    def within(self, space: Space) -> Iterator[Bodies]:
        """Yield the loops inside a space that matter.

        In the relaxed problem loops cost nothing and keep class tuples, so that a loop over a smaller tile is no
        better than one over the largest whose tiles and rest are looped over in turn, if the one size divides the
        other. Loops for which that does not hold are kept all.
        """
        largest: dict[int, tuple[Ints, Ints]] = {}
        for loop in self.by_key[space.key]:
            if any(part.space is not space for part in loop.parts):
                continue
            dim = _looped_dim(space, loop)
            if dim is None:
                yield [(np.where(loop.valid, part.shape, -1), part.times) for part in loop.parts]
                continue
            if dim not in largest:
                largest[dim] = np.full((2, space.count), -1), np.zeros((2, space.count), dtype=np.int64)
            shapes, times = largest[dim]
            size = space.sizes[dim]
            larger = loop.valid & ((shapes[0] < 0) | (size[loop.parts[0].shape] > size[shapes[0]]))
            shapes[:, larger] = -1
            for position, part in enumerate(loop.parts):
                shapes[position, larger], times[position, larger] = part.shape[larger], part.times[larger]
        for shapes, times in largest.values():
            yield [*zip(shapes, times, strict=True)]

    def leaving(self, space: Space) -> list[LoopTable]:
        """Return the steps that lead to other spaces."""
        return [loop for loop in self.by_key[space.key] if any(part.space is not space for part in loop.parts)]


class _LoopRelaxer(Relaxer):
    def __init__(self, loops: LoopBounds, bounds: SpaceBounds):
        self._relaxed, self._bounds = loops.relaxed, bounds
        self._within = [*loops.within(bounds.space)]
        leaving = loops.leaving(bounds.space)
        self._parallel = ParallelRelaxer.of(
            [loop for loop in leaving if is_parallel(loop, bounds.space)], bounds, loops.relaxed
        )
        self._leaving = [loop for loop in leaving if not is_parallel(loop, bounds.space)]

    def relax(self, rows: Ints, block: Floats) -> None:
        for bodies in self._within:
            self._loop(bodies, rows, block)
        for loop in self._leaving:
            self._leave(loop, rows, block)
        for parallel in self._parallel:
            parallel.relax(rows, block)

    def _loop(self, bodies: Bodies, rows: Ints, block: Floats) -> None:
        (main, times), *further = bodies
        there = np.flatnonzero(main[rows] >= 0)
        if not len(there):
            return
        values, cells = self._bounds.values, rows[there]
        looped = values[main[cells]] * times[cells][:, None]
        for rest, repeated in further:
            has = rest[cells] >= 0
            inside = cells[has]
            looped[has] += values[rest[inside]] * repeated[inside][:, None]
        block[there] = np.minimum(block[there], looped)

    def _leave(self, loop: LoopTable, rows: Ints, block: Floats) -> None:
        """Take a step to other spaces: what its parts cost under the same limits."""
        there = np.flatnonzero(loop.valid[rows])
        cells = rows[there]
        for columns in self._bounds.solvable_columns() if len(there) else ():
            if not self._relaxed.apply_to(loop.suits, columns.classes):
                continue
            total = np.broadcast_to(loop.cost[cells][:, None].astype(np.float64), (len(there), columns.count)).copy()
            for part in loop.parts:
                below = self._relaxed.by_key[part.space.key]
                child = below.columns_of(tuple(columns.classes[arg] for arg in part.args))
                has = part.shape[cells] >= 0
                costs = below.values[np.ix_(part.shape[cells][has], child.under(columns.codes))]
                total[has] += part.times[cells][has][:, None] * costs
            block[there, columns.slice] = np.minimum(block[there, columns.slice], total)


def _looped_dim(space: Space, loop: LoopTable) -> int | None:
    """Return the dimension of a loop that cuts one into tiles of a power of two and costs nothing itself, else None."""
    cells = np.flatnonzero(loop.valid)
    if np.any(loop.cost[cells]) or any(part.args != tuple(range(len(space.operands))) for part in loop.parts):
        return None
    main = loop.parts[0].shape[cells]
    cut = [dim for dim, size in enumerate(space.sizes) if np.any(size[main] != size[cells])]
    if len(cut) != 1:
        return None
    size, tile = space.sizes[cut[0]][cells], space.sizes[cut[0]][main]
    if np.any(tile & (tile - 1)) or np.any(loop.parts[0].times[cells] != size // tile):
        return None
    left = size % tile
    if len(loop.parts) == 1:
        return None if np.any(left) else cut[0]
    rest = loop.parts[1].shape[cells]
    same_rest = np.where(rest >= 0, space.sizes[cut[0]][rest], 0) == left
    return cut[0] if np.all(same_rest) and np.all(loop.parts[1].times[cells][rest >= 0] == 1) else None
