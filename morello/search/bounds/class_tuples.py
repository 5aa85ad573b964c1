"""Class tuples: the operands of a Spec as bounds distinguish them, and the columns of their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from morello.search.arrays import Bools, Floats32, Ints
from morello.search.tables.limits import LimitCodes
from morello.search.tables.shapes import Space

Classes = tuple[int, ...]

#: Larger codes of class tuples do not fit 64 bits.
_MOST_CODES = 1 << 62
#: Limits below this fraction of a level's largest one have a common step.
_SMALL = 8


def limit_steps(limit_codes: LimitCodes) -> Ints:
    """Return the step of each limit, [levels, codes], in ascending order.

    A limit that is not a power of two has the step of the next larger power of two, and one below an eighth of the
    largest, except 0, that of the eighth: few programs leave so little memory to a part. That only lowers bounds.
    Search expands as many Specs as with a step for each limit, and bounds take a quarter to a half of the time and
    memory.
    """
    steps = np.zeros((len(limit_codes.counts), max(limit_codes.counts)), dtype=np.int64)
    for level, count in enumerate(limit_codes.counts):
        sizes = limit_codes.values[level].tolist()
        least = sizes[-1] // _SMALL
        distinct = np.array([size & (size - 1) == 0 and (size >= least or not size) for size in sizes])
        distinct[-1] = True
        # Other limits have the step of the next distinct one.
        steps[level, :count] = np.cumsum(distinct) - distinct
        steps[level, count:] = steps[level, count - 1]
    return steps


def bits(levels: Iterable[int]) -> int:
    """Return levels as one number, a bit per level."""
    return sum(1 << level for level in levels)


class SpaceBounds:
    """The class tuples of one space, and their bounds: `values`, [shapes + 1, width + 1], in units of cost.

    Bounds are rounded down to 24 bits: search expands as many Specs as with 53, in half the memory. The last row and
    column are infinite, for impossible steps. `classes`, [tuples, operands], has all class tuples, `tuples` their
    numbers. `full`, [tuples], is the column of full limits. `per_level`, [tuples, levels + 1], is the first column of
    the bounds for the limits of one level while the others are full, -1: none; its last entry is the only column of a
    class tuple without such bounds. `after`, per operand [tuples, all classes], is the class tuple with another class
    of that operand, -1: none.
    """

    def __init__(self, space: Space, classes: int):
        self.space = space
        self.classes: Ints = np.zeros((0, len(space.operands)), dtype=np.int64)
        self._count = classes
        self.tuples: dict[Classes, int] = {}
        #: Whether class tuples may have programs, [tuples]: no steps lead from the others to kernels only.
        self.solvable: Bools = np.zeros(0, dtype=np.bool_)
        self.full: Ints = np.zeros(0, dtype=np.int64)
        self.per_level: Ints = np.zeros((0, 0), dtype=np.int64)
        self.width = 0
        self.values: Floats32 = np.zeros((0, 0), dtype=np.float32)
        weights = [classes**place for place in range(len(space.operands))]
        fits = classes ** len(weights) < _MOST_CODES
        self._weights: Any = np.array(weights, dtype=np.int64 if fits else object)
        self._codes: Any = self._weights[:0]
        self._numbers: Ints = np.zeros(0, dtype=np.int64)

    def lay_out(self, counts: Ints) -> None:
        """Assign columns to class tuples: `counts`, [tuples, levels], for each level, 0: none.

        Class tuples without programs share the infinite column.
        """
        lone = self.solvable & ~counts.any(axis=1)
        sizes = np.where(self.solvable[:, None], np.concatenate([counts, lone[:, None]], axis=1), 0)
        ends = np.cumsum(sizes).reshape(sizes.shape)
        self.width = int(ends.max(initial=0))
        self.full = np.where(self.solvable, ends[:, -1] - 1, self.width)
        self.per_level = np.where(sizes > 0, ends - sizes, -1)

    def codes(self, classes: Ints) -> Any:
        """Return a distinct code, [n], for each class tuple, [n, operands]."""
        return classes.astype(self._weights.dtype) @ self._weights

    def enter(self, classes: Ints) -> Ints:
        """Number class tuples, [n, operands]. Return the new ones, in the order of their numbers."""
        codes, first = np.unique(self.codes(classes), return_index=True)
        first = first[self._find(codes)[1]]
        new = classes[np.sort(first)]
        self.classes = np.concatenate([self.classes, new])
        known: Any = self.codes(self.classes)
        self._numbers = np.argsort(known)
        self._codes = known[self._numbers]
        return new

    def number(self, classes: Ints) -> Ints:
        """Return the numbers, [n], of class tuples, [n, operands], -1: not entered."""
        place, new = self._find(self.codes(classes))
        return np.where(new, -1, self._numbers[place]) if len(self._numbers) else np.full(len(classes), -1)

    @cached_property
    def after(self) -> list[Ints]:
        found: list[Ints] = []
        for operand in range(len(self.space.operands)):
            changed = np.repeat(self.classes, self._count, axis=0)
            changed[:, operand] = np.tile(np.arange(self._count), len(self.classes))
            found.append(self.number(changed).reshape(len(self.classes), self._count))
        return found

    def _find(self, codes: Any) -> tuple[Ints, Bools]:
        """Return the places of codes, [n], among those entered, and which codes are new."""
        if not len(self._codes):
            return np.zeros(len(codes), dtype=np.int64), np.ones(len(codes), dtype=np.bool_)
        place = np.minimum(np.searchsorted(np.asarray(self._codes), np.asarray(codes)), len(self._codes) - 1)
        found: Any = self._codes[place]
        return place, np.asarray(found != codes, dtype=np.bool_)
