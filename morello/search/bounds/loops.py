"""Loops in the relaxed problem: they keep class tuples and limits, and most have no cost of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from morello.search.arrays import Ints
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.bounds.relaxed import Relaxed, StepBounds, Transition
from morello.search.tables.loops import LoopGroup, LoopTable, LoopTables, grouped
from morello.search.tables.shapes import Key, Space

#: For each body of a loop the shape of its tiles, [shapes], -1: none, and its trips, [shapes].
Bodies = list[tuple[Ints, Ints]]


class LoopBounds(StepBounds):
    """Loops, and other steps that apply to all operand states alike."""

    def __init__(self, relaxed: Relaxed):
        super().__init__(relaxed)
        self.by_key = relaxed.tables.of(LoopTables).by_key
        self._transitions: dict[Key, list[tuple[list[tuple[Key, tuple[int, ...]]], tuple[int, ...]]]] = {}

    def transitions(self, key: Key, classes: Ints) -> Iterator[Transition]:
        if key not in self._transitions:
            self._transitions[key] = [*self._distinct(key)]
        for parts, needed in self._transitions[key]:
            below = tuple((part, classes[:, list(args)]) for part, args in parts)
            yield Transition(np.arange(len(classes)), below, needed)

    def _distinct(self, key: Key) -> Iterator[tuple[list[tuple[Key, tuple[int, ...]]], tuple[int, ...]]]:
        """Yield the parts of loops, space and operands, and the places of those that all shapes have, else of all."""
        itself = key, tuple(range(len(self.relaxed.spaces.by_key[key].operands)))
        seen: set[object] = set()
        for loop in self.by_key[key]:
            parts = [(part.space.key, part.args) for part in loop.parts]
            always = tuple(
                place for place, part in enumerate(loop.parts) if np.all(part.shape[loop.valid] >= 0)
            ) or tuple(range(len(parts)))
            if (*parts, always) not in seen and any(part != itself for part in parts):
                seen.add((*parts, always))
                yield parts, always

    def spaces_below(self, key: Key) -> Iterator[Key]:
        yield from (part.space.key for loop in self.by_key[key] for part in loop.parts if part.space.key != key)

    def may_take(self, key: Key, classes: Ints) -> Ints:
        return np.zeros(len(classes), dtype=np.int64)

    def fields(self, bounds: SpaceBounds) -> dict[str, Any]:
        loops = [
            {"parts": len(bodies), "shape": [shape for shape, _ in bodies], "times": [times for _, times in bodies]}
            for bodies in self.within(bounds.space)
        ]
        leaving = [self._leave(bounds, group) for group in grouped(self.leaving(bounds.space))]
        return {"loops": len(loops), "loop": loops, "leaving": len(leaving), "leave": leaving}

    def _leave(self, bounds: SpaceBounds, group: LoopGroup) -> dict[str, Any]:
        """Return `BoundSteps` of loops to other spaces."""
        rows = np.flatnonzero(bounds.solvable & self.relaxed.apply_to(group.loop.suits, bounds.classes))
        parts = [
            {
                "space": self.relaxed.index[part.space.key],
                "tuple": self.relaxed.by_key[part.space.key].number(bounds.classes[rows][:, list(part.args)]),
                "shape": part.shape,
                "times": part.times,
            }
            for part in group.parts
        ]
        fields: dict[str, Any] = {
            "tuples": len(rows),
            "tuple": rows,
            "parts": len(parts),
            "part": parts,
            "first": group.first,
            "cost": group.cost,
        }
        if is_parallel(group.loop, bounds.space):
            fields["serial"] = group.parts[0].space.numbers(list(bounds.space.sizes))
            fields["least"] = float(min(group.cost.tolist(), default=np.inf))
        return fields

    def within(self, space: Space) -> Iterator[Bodies]:
        """Yield the loops inside a space, without redundant ones.

        In the relaxed problem such loops cost nothing and keep class tuples. So a loop over a smaller tile gains
        nothing over one over the largest tile, with further loops over that, if the smaller size divides the larger.
        Other loops are all kept.
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


def is_parallel(loop: LoopTable, space: Space) -> bool:
    """Return whether a loop leads from a parallel space to the serial one, on tiles of the same operands."""
    serial, args = attrs.evolve(space.key, serial=True), tuple(range(len(space.operands)))
    return not space.key.serial and all(part.space.key == serial and part.args == args for part in loop.parts)


def _looped_dim(space: Space, loop: LoopTable) -> int | None:
    """Return the dimension that a loop cuts into tiles of a power of two at no cost of its own, else None."""
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
