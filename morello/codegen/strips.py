"""Loops over packed layouts: one over the strips and one within them, so that no offset divides by a strip's size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from morello.ir.index import IndexExpr, Quotient, Remainder, Symbol, as_index

#: Offsets of all operands in memory, where counters by dimension are at these values.
Offsets = Callable[[Mapping[int, IndexExpr]], Sequence[IndexExpr]]


@attrs.frozen
class Counters:
    """Counters of nested loops, outermost first, and what they make of the number of a tile by dimension."""

    loops: tuple[Symbol, ...]
    tiles: Mapping[int, IndexExpr]


def along_strips(counters: Mapping[int, Symbol], offsets: Offsets, fresh: Callable[[int], str]) -> Counters:
    """Return loops over dimensions, split where strips end if offsets are then simpler.

    `fresh` names a further counter for a dimension.
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
    """Return after how many steps a counter is best split; 0 if offsets do not get simpler by it."""
    before = [division for offset in offsets(tiles) for division in offset.divisions()]
    for steps in sorted({_period(division, counter) for division in before}, reverse=True):
        if steps > 1 and _extent(counter) % steps == 0:
            # The names do not matter here.
            outer, inner = Symbol(counter.name, _extent(counter) // steps), Symbol(f"{counter.name} within", steps)
            split = {**tiles, dim: around + as_index(outer) * steps + as_index(inner)}
            if sum(1 for offset in offsets(split) for _ in offset.divisions()) < len(before):
                return steps
    return 0


def _period(division: Quotient | Remainder, counter: Symbol) -> int:
    """Return after how many steps of a counter a division starts anew; 0 if no number of steps does that."""
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
