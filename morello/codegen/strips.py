"""Loops over packed layouts: one over the strips and one within them, so that no offset divides by a strip's size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from morello.ir.index import Index, Symbol, as_index

#: Offsets of all operands in memory, where counters by dimension are at these values.
Offsets = Callable[[Mapping[int, Index]], Sequence[Index]]


@attrs.frozen
class Counters:
    """Counters of nested loops, outermost first, and what they make of the number of a tile by dimension."""

    loops: tuple[Symbol, ...]
    tiles: Mapping[int, Index]


def along_strips(counters: Mapping[int, Symbol], offsets: Offsets, fresh: Callable[[int], str]) -> Counters:
    """Return loops over dimensions, split where strips end if offsets are then simpler.

    `fresh` names a further counter for a dimension.
    """
    tiles: dict[int, Index] = {dim: as_index(counter) for dim, counter in counters.items()}
    loops: list[Symbol] = []
    for dim, counter in counters.items():
        around = Index()
        while steps := _steps(dim, counter, around, tiles, offsets):
            outer = Symbol(counter.name, _extent(counter) // steps)
            counter = Symbol(fresh(dim), steps)
            loops.append(outer)
            around = around + as_index(outer) * steps
            tiles[dim] = around + as_index(counter)
        loops.append(counter)
    return Counters(tuple(loops), tiles)


def _steps(dim: int, counter: Symbol, around: Index, tiles: Mapping[int, Index], offsets: Offsets) -> int:
    """Return after how many steps a counter is best split; 0 if offsets do not get simpler by it."""
    before = [division for offset in offsets(tiles) for division in offset.divisions()]
    factors = {(division.inner.factor(counter), division.by) for division in before}
    found = {by // factor for factor, by in factors if factor > 0 and by % factor == 0}
    for steps in sorted(found, reverse=True):
        if steps > 1 and _extent(counter) % steps == 0:
            # The names do not matter here.
            outer, inner = Symbol(counter.name, _extent(counter) // steps), Symbol(f"{counter.name} within", steps)
            split = {**tiles, dim: around + as_index(outer) * steps + as_index(inner)}
            if sum(1 for offset in offsets(split) for _ in offset.divisions()) < len(before):
                return steps
    return 0


def _extent(counter: Symbol) -> int:
    assert counter.extent is not None
    return counter.extent
