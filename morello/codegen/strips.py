"""Loops over packed layouts: split in two, over strips and within them, so that offsets need no division."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from morello.ir.index import IndexExpr, Quotient, Remainder, Symbol, as_index

#: Returns the offsets of all operands in memory at given counters by dimension.
Offsets = Callable[[Mapping[int, IndexExpr]], Sequence[IndexExpr]]


@attrs.frozen
class Counters:
    """Counters of nested loops, outermost first, and the number of the tile they give by dimension."""

    loops: tuple[Symbol, ...]
    tiles: Mapping[int, IndexExpr]


def along_strips(counters: Mapping[int, Symbol], offsets: Offsets, fresh: Callable[[int], str]) -> Counters:
    """Return loops over dimensions, split at strips where that simplifies offsets.

    `fresh` returns the name of another counter for a dimension.
    """
    tiles: dict[int, IndexExpr] = {dim: as_index(counter) for dim, counter in counters.items()}
    loops: list[Symbol] = []
    for dim, counter in counters.items():
        around = IndexExpr()
        while steps := _steps(dim, counter, around, tiles, offsets):
            outer = Symbol(counter.name, _extent(counter) // steps)
            counter = Symbol(fresh(dim), steps)
            loops.append(outer)
            around = around + as_index(outer) * steps
            tiles[dim] = around + as_index(counter)
        loops.append(counter)
    return Counters(tuple(loops), tiles)


def _steps(dim: int, counter: Symbol, around: IndexExpr, tiles: Mapping[int, IndexExpr], offsets: Offsets) -> int:
    """Return the number of steps of the inner loop if a split simplifies offsets, else 0."""
    before = [division for offset in offsets(tiles) for division in offset.divisions()]
    for steps in sorted({_period(division, counter) for division in before}, reverse=True):
        if steps > 1 and _extent(counter) % steps == 0:
            # Any names will do.
            outer, inner = Symbol(counter.name, _extent(counter) // steps), Symbol(f"{counter.name} within", steps)
            split = {**tiles, dim: around + as_index(outer) * steps + as_index(inner)}
            if sum(1 for offset in offsets(split) for _ in offset.divisions()) < len(before):
                return steps
    return 0


def _period(division: Quotient | Remainder, counter: Symbol) -> int:
    """Return the period of a division in steps of a counter; 0 if it has none."""
    for monomial, factor in division.inner.terms:
        if len(monomial) == 1 and factor > 0 and division.by % factor == 0:
            (atom,) = monomial
            steps = int(atom == counter) or (_period(atom, counter) if isinstance(atom, Quotient) else 0)
            if steps:
                return division.by // factor * steps
    return 0


def _extent(counter: Symbol) -> int:
    assert counter.extent is not None
    return counter.extent
