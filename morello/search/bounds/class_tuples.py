"""Class tuples: what bounds know of the operands of a Spec, and the limits that they are told apart by."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np

from morello.search.arrays import Bools, Floats32, Ints
from morello.search.tables.limits import LimitCodes
from morello.search.tables.shapes import Space

Classes = tuple[int, ...]

#: Codes of class tuples above this are no integers of 64 bits.
_MOST_CODES = 1 << 62


def limit_steps(limit_codes: LimitCodes) -> Ints:
    """Return numbers of limits as bounds tell them apart, [levels, codes]: larger ones for larger limits.

    Limits that are no powers of two count as the next larger limit that is one, which only lowers bounds. Search takes
    as many Specs apart as if they were told apart, and bounds take a half to three quarters of the time and memory.
    """
    steps = np.zeros((len(limit_codes.counts), max(limit_codes.counts)), dtype=np.int64)
    for level, count in enumerate(limit_codes.counts):
        sizes = [int(size) for size in limit_codes.bytes(level, np.arange(count))]
        told = np.array([size & (size - 1) == 0 for size in sizes])
        told[-1] = True
        # A limit that is not told apart has the number of the next that is.
        steps[level, :count] = np.cumsum(told) - told
        steps[level, count:] = steps[level, count - 1]
    return steps


def bits(levels: Iterable[int]) -> int:
    """Return some levels as one number, a bit per level."""
    return sum(1 << level for level in levels)


class SpaceBounds:
    """The class tuples of one space, and their bounds: `values`, [shapes + 1, width + 1], in units of cost.

    Bounds are rounded down to 24 bits: search takes as many Specs apart as with 53, and half the memory for them.
    The last row and column are infinite, for what cannot be. Class tuples are numbered as they are met: `classes`,
    [tuples, operands], has them all, and `tuples` their numbers. `full`, [tuples], is the column of full limits.
    `per_level`, [tuples, levels + 1], is the first column of the bounds for the limits of one level while the others
    are full, -1: none; its last entry is the only column of a class tuple without such bounds. `after`, per operand
    [tuples, all classes], is the class tuple with another class of that operand, -1: none.
    """

    def __init__(self, space: Space, classes: int):
        self.space = space
        self.classes: Ints = np.zeros((0, len(space.operands)), dtype=np.int64)
        self._count = classes
        self.tuples: dict[Classes, int] = {}
        #: The class tuples that may have programs, [tuples]: kernels take the others in no way.
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
        """Give class tuples columns: `counts`, [tuples, levels], of each per_level, 0 for none.

        Those that have no programs share the infinite one.
        """
        lone = self.solvable & ~counts.any(axis=1)
        sizes = np.where(self.solvable[:, None], np.concatenate([counts, lone[:, None]], axis=1), 0)
        ends = np.cumsum(sizes).reshape(sizes.shape)
        self.width = int(ends.max(initial=0))
        self.full = np.where(self.solvable, ends[:, -1] - 1, self.width)
        self.per_level = np.where(sizes > 0, ends - sizes, -1)

    def codes(self, classes: Ints) -> Any:
        """Return a number, [n], for each of some class tuples, [n, operands]."""
        return classes.astype(self._weights.dtype) @ self._weights

    def enter(self, classes: Ints) -> Ints:
        """Number class tuples, [n, operands], and return those that are new, in the order of their numbers."""
        codes, first = np.unique(self.codes(classes), return_index=True)
        first = first[self._find(codes)[1]]
        new = classes[np.sort(first)]
        self.classes = np.concatenate([self.classes, new])
        known: Any = self.codes(self.classes)
        self._numbers = np.argsort(known)
        self._codes = known[self._numbers]
        return new

    def number(self, classes: Ints) -> Ints:
        """Return the numbers, [n], of class tuples, [n, operands]; -1 for those that there are not."""
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
        """Return the places of codes, [n], among those that are known, and which are not."""
        if not len(self._codes):
            return np.zeros(len(codes), dtype=np.int64), np.ones(len(codes), dtype=np.bool_)
        place = np.minimum(np.searchsorted(np.asarray(self._codes), np.asarray(codes)), len(self._codes) - 1)
        found: Any = self._codes[place]
        return place, np.asarray(found != codes, dtype=np.bool_)
