"""Boxes: ranges of sizes and limits, whose Specs share one answer. Arrays hold the boxes of many tables at once.

Sizes and limits are coordinates in which Specs that search meets next to each other are neighbours. A size that is a
power of two becomes its exponent, any other size n becomes 64 + n: 3 is not between 2 and 4. A limit becomes its index
among the values that limits of its level can have.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt

from morello.db.answers import LARGEST_COST, AnswerKind, Ints
from morello.errors import MorelloError, SpecError
from morello.ir.limits import LimitGrid

#: Coordinates of sizes that are no powers of two begin here. The largest size is 2^47.
_OTHERS = 64
#: Larger volumes are set to this one, so that all of them are integers of 64 bits.
_LARGEST_VOLUME = 1 << 62
#: Pairs of boxes that are compared at a time.
_CHUNK = 1 << 20
#: The most pairs of boxes that contradict each other: they grow with the square of the boxes.
MOST_PAIRS = 100
#: The most pairs of boxes that intersect. It takes seconds to find as many.
_MOST_INTERSECTIONS = 1 << 24
#: Up to this number of boxes, and of pairs, comparing all takes less time than an R-tree.
_FEW, _FEW_PAIRS = 1000, 1 << 24
#: Odd multipliers of a hash that groups boxes which may be joined. Importing numpy.random would take longer.
_RANDOM = random.Random(0)
_MULTIPLIERS = np.array([_RANDOM.getrandbits(63) * 2 + 1 for _ in range(256)], dtype=np.uint64)


def of_sizes(sizes: Ints) -> Ints:
    """Return coordinates of sizes, which are at least 1, elementwise."""
    exponents = (np.frexp(sizes.astype(np.float64))[1] - 1).astype(np.int64)
    return np.where(sizes & (sizes - 1) == 0, exponents, _OTHERS + sizes)


def to_sizes(coordinates: Ints) -> Ints:
    """Return sizes of coordinates, elementwise."""
    return np.where(coordinates < _OTHERS, np.left_shift(np.int64(1), coordinates & 63), coordinates - _OTHERS)


def of_limits(limits: Ints, grids: Sequence[LimitGrid]) -> Ints:
    """Return coordinates of limits [N, levels] in bytes. Raises SpecError unless they are in normal form."""
    result = np.empty_like(limits)
    for level, grid in enumerate(grids):
        result[:, level] = grid.index(limits[:, level])
        odd = (result[:, level] < 0) | (grid.array[result[:, level]] != limits[:, level])
        if odd.any():
            raise SpecError(
                f"limits {limits[np.argmax(odd)].tolist()} are not in normal form",
                "Target.spec brings limits into normal form",
            )
    return result


def to_limits(coordinates: Ints, grids: Sequence[LimitGrid]) -> Ints:
    """Return bytes [N, levels] of coordinates [N, levels]."""
    return np.stack([grid.array[coordinates[:, level]] for level, grid in enumerate(grids)], axis=1)


def volumes(shapes: Ints) -> Ints:
    """Return the points [N] of the iteration spaces of shapes [N, rank], at most 2^62."""
    large = np.prod(shapes.astype(np.float64), axis=1) >= _LARGEST_VOLUME
    return np.where(large, _LARGEST_VOLUME, np.prod(shapes, axis=1, dtype=np.int64))


@attrs.frozen(eq=False)
class Boxes:
    """N boxes with A axes: sizes first, then limits. Both corners belong to a box.

    The value of a box is its kind, its cost per point of the iteration space, and its step. An EXACT box starts at the
    peak of its program.
    """

    table: Ints  # [N], the number of its table
    low: Ints  # [N, A]
    high: Ints  # [N, A]
    kind: npt.NDArray[np.int8]  # [N]
    numerator: Ints  # [N], the cost per point in lowest terms
    denominator: Ints  # [N]
    step: Ints  # [N], -1 unless EXACT
    unverified: npt.NDArray[np.bool_]  # [N]
    fresh: npt.NDArray[np.bool_]  # [N], not stored as it is

    def __len__(self) -> int:
        return len(self.table)

    @property
    def axes(self) -> int:
        return self.low.shape[1]

    @property
    def settled(self) -> npt.NDArray[np.bool_]:
        """Return where a box is an answer, and no bound [N]."""
        return self.kind != AnswerKind.LOWER

    def take(self, which: Ints | npt.NDArray[np.bool_]) -> Self:
        return type(self)(*(getattr(self, field.name)[which] for field in attrs.fields(type(self))))

    def containing(self, point: Ints) -> Self:
        """Return the boxes that contain a point [A], in their order."""
        if len(self) <= _FEW:
            return self.take(np.all((self.low <= point) & (point <= self.high), axis=1))
        corner = int(self.table[0]), *point
        return self.take(np.sort(np.fromiter(self._index.intersection((*corner, *corner)), dtype=np.int64)))

    @cached_property
    def corners(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return both corners, [N, 1 + A], with the table as first axis; doubles hold coordinates up to 2^53."""
        low, high = (np.concatenate([self.table[:, None], side], axis=1) for side in (self.low, self.high))
        return np.ascontiguousarray(low, dtype=np.float64), np.ascontiguousarray(high, dtype=np.float64)

    def intersecting(self, which: Ints) -> tuple[Ints, Ints]:
        """Return pairs of the boxes `which` and all boxes of their tables that intersect them."""
        found, counts = self._index.intersection_v(*(side[which] for side in self.corners))
        return np.repeat(which, counts.astype(np.int64)), found.astype(np.int64)

    @cached_property
    def _index(self) -> Any:
        """The R*-tree of the boxes ([Beckmann1990])."""
        # Most commands read small tables only, and need not wait for this import.
        from rtree import index

        properties = index.Property(dimension=1 + self.axes, variant=index.RT_Star)
        return index.Index((np.arange(len(self)), *self.corners), properties=properties, interleaved=True)

    def costs(self, volume: Ints) -> Ints:
        """Return the costs [N] of Specs with these iteration spaces [N], one of each box."""
        return self.numerator * (volume // self.denominator)

    def matrix(self) -> Ints:
        """Return the columns of boxes of one table as [N, 2A + 5], in a fixed order."""
        columns = (self.kind, self.numerator, self.denominator, self.step, self.unverified)
        whole = np.concatenate([self.low, self.high, *(np.asarray(one, np.int64)[:, None] for one in columns)], axis=1)
        return whole[np.lexsort(whole.T[::-1])]

    @classmethod
    def of_matrix(cls, matrix: Ints) -> Self:
        """Return the boxes of table 0 that `matrix` returned. Raises ValueError for numbers that do not fit."""
        axes, size = (matrix.shape[1] - 5) // 2, len(matrix)
        kind, numerator, denominator, step, unverified = matrix[:, 2 * axes :].T
        if ((kind < 0) | (kind > 2) | (unverified < 0) | (unverified > 1)).any():
            raise ValueError("unknown kinds of answers")
        zero = np.zeros(size, dtype=np.int64)
        low, high = matrix[:, :axes], matrix[:, axes : 2 * axes]
        values = kind.astype(np.int8), numerator, denominator, step, unverified.astype(np.bool_)
        return cls(zero, low, high, *values, zero.astype(np.bool_))


def joined(parts: Sequence[Boxes]) -> Boxes:
    """Return all boxes of one or more `parts`."""
    return Boxes(*(np.concatenate([getattr(one, field.name) for one in parts]) for field in attrs.fields(Boxes)))


def boxes_fault(boxes: Boxes, grids: Sequence[LimitGrid], steps: int) -> str | None:
    """Return the rule that boxes of one table break, if any."""
    rank = boxes.axes - len(grids)
    low, high, exact = boxes.low, boxes.high, boxes.kind == AnswerKind.EXACT
    if (low > high).any() or (low < 0).any():
        return "a range ends before it begins"
    if (high[:, rank:] >= [len(grid.values) for grid in grids]).any():
        return "a limit is not one of its level"
    power = high[:, :rank] < _OTHERS
    others = (low[:, :rank] > _OTHERS) & (high[:, :rank] <= _OTHERS + (1 << 47))
    if not np.where(power, high[:, :rank] <= 47, others).all():
        return "a size is out of range"
    if low[~exact, rank:].any():
        return "an answer without a program does not hold for the limits 0"
    if ((boxes.step >= 0) != exact).any() or (boxes.step >= steps).any() or (boxes.step < -1).any():
        return "an answer has no step"
    numerator, denominator = boxes.numerator, boxes.denominator
    if (numerator < 0).any() or (denominator < 1).any() or (np.gcd(numerator, denominator) != 1).any():
        return "a cost is not a fraction in lowest terms"
    if numerator[boxes.kind == AnswerKind.NONE].any():
        return "an answer without a program has a cost"
    least, most = (volumes(to_sizes(corner[:, :rank])) for corner in (low, high))
    if (least % denominator).any() or (most % denominator).any():
        return "a cost is not whole for its sizes"
    if (numerator * (most // denominator).astype(np.float64)).max(initial=0) > LARGEST_COST:
        return f"a cost is more than {LARGEST_COST:,}"
    return None


def merged(boxes: Boxes, rank: int) -> Boxes:
    """Return boxes that give the same answers, mostly fewer: joined greedily along one axis after another.

    The first `rank` axes are sizes.
    """
    value = _values(boxes, rank)
    if value.max(initial=-1) == len(boxes) - 1:
        # Each has a value of its own.
        return boxes
    while True:
        before = len(boxes)
        for axis in reversed(range(boxes.axes)):
            boxes, value = _join(boxes, value, axis)
        if len(boxes) == before:
            return boxes


def _values(boxes: Boxes, rank: int) -> Ints:
    """Return numbers [N] that boxes share if they have one table, one value and one peak.

    Boxes that are not EXACT start at limit 0, so a comparison of the corners where boxes start compares peaks.
    """
    columns = [boxes.table, boxes.kind, boxes.unverified, boxes.step, boxes.numerator, boxes.denominator]
    stacked = np.stack([one.astype(np.int64) for one in (*columns, *boxes.low[:, rank:].T)], axis=1)
    order = np.lexsort(stacked.T)
    changes = (stacked[order[1:]] != stacked[order[:-1]]).any(axis=1)
    numbers = np.empty(len(boxes), dtype=np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(changes)])[: len(boxes)]
    return numbers


def _join(boxes: Boxes, value: Ints, axis: int) -> tuple[Boxes, Ints]:
    """Join boxes that differ along `axis` only, and overlap or touch there."""
    others = [other for other in range(boxes.axes) if other != axis]
    columns = np.concatenate([value[:, None], boxes.low[:, others], boxes.high[:, others]], axis=1)
    # The hash overflows on purpose. A collision can hide a join, never make one: neighbours are compared in full.
    together = (columns.view(np.uint64) * _MULTIPLIERS[: columns.shape[1]]).sum(axis=1, dtype=np.uint64)
    order = np.lexsort((boxes.low[:, axis], together))
    columns, low, high = columns[order], boxes.low[order, axis], boxes.high[order, axis]
    starts = np.ones(len(order), dtype=bool)
    starts[1:] = (columns[1:] != columns[:-1]).any(axis=1) | (low[1:] > high[:-1] + 1)
    first = np.flatnonzero(starts)
    if len(first) == len(order):
        return boxes, value
    top = np.maximum.reduceat(high, first)
    run = np.cumsum(starts) - 1
    # A joined box that equals a stored one is stored.
    stored = ~boxes.fresh[order] & (low == low[first][run]) & (high == top[run])
    fresh = ~np.logical_or.reduceat(stored, first)
    kept = boxes.take(order[first])
    highs = kept.high.copy()
    highs[:, axis] = top
    return attrs.evolve(kept, high=highs, fresh=fresh), value[order[first]]


def _intersections(boxes: Boxes, mine: npt.NDArray[np.bool_]) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs i != j of boxes of one table that intersect, with `mine[i]`. The boxes are sorted by table."""
    starts = np.searchsorted(boxes.table, boxes.table, side="left")
    counts = np.searchsorted(boxes.table, boxes.table, side="right") - starts
    queries = np.flatnonzero(mine)
    ends = np.cumsum(counts[queries])
    if len(queries) and ends[-1] > _FEW_PAIRS:
        for some in np.array_split(queries, 1 + int(ends[-1]) // _CHUNK):
            i, j = boxes.intersecting(some)
            yield i[i != j], j[i != j]
        return
    begin = 0
    while begin < len(queries):
        done = ends[begin - 1] if begin else 0
        until = max(begin + 1, int(np.searchsorted(ends, done + _CHUNK, side="right")))
        some = queries[begin:until]
        i = np.repeat(some, counts[some])
        j = starts[i] + np.arange(len(i)) + done - np.repeat(ends[begin:until] - counts[some], counts[some])
        keep = i != j
        for axis in range(boxes.axes):
            i, j = i[keep], j[keep]
            low, high = boxes.low[:, axis], boxes.high[:, axis]
            keep = (low[i] <= high[j]) & (low[j] <= high[i])
        yield i[keep], j[keep]
        begin = until


def _exceeds(boxes: Boxes, i: Ints, j: Ints) -> npt.NDArray[np.bool_]:
    """Return where the cost per point of box i exceeds that of box j, elementwise for N pairs."""
    mine = boxes.numerator[i].astype(object) * boxes.denominator[j]
    return (mine > boxes.numerator[j].astype(object) * boxes.denominator[i]).astype(bool)


def settle(boxes: Boxes, rank: int, searched: bool) -> tuple[Boxes, Ints]:
    """Return the boxes without superfluous ones, and pairs [M, 2] of the given boxes that contradict each other.

    With MOST_PAIRS of these it ends, and the boxes returned are not all settled. Raises MorelloError for too many
    intersections.
    Two boxes contradict each other if they answer one Spec differently, or one bounds it above the other's answer.
    Only pairs with a fresh box are compared. The boxes are sorted by table. An unverified box makes no other kind
    superfluous, and a stored one gives way to fresh answers that were `searched` for.
    """
    superfluous = np.zeros(len(boxes), dtype=bool)
    contradictions: list[Ints] = []
    settled, exact, fresh = boxes.settled, boxes.kind == AnswerKind.EXACT, boxes.fresh
    wins = fresh & (~boxes.unverified | searched)
    count = 0
    for i, j in _intersections(boxes, fresh):
        count += len(i)
        if count > _MOST_INTERSECTIONS:
            reason = f"rectangles of a table intersect more than {_MOST_INTERSECTIONS:,} times"
            raise MorelloError(reason, "store fewer at once; those that `morello db export` writes intersect little")
        # Both directions, as j need not be fresh.
        i, j = np.concatenate([i, j]), np.concatenate([j, i])
        cost = (boxes.numerator[i] == boxes.numerator[j]) & (boxes.denominator[i] == boxes.denominator[j])
        wrong = settled[i] & settled[j] & ~((boxes.kind[i] == boxes.kind[j]) & cost) & (i < j)
        bounding = np.flatnonzero(~settled[i] & exact[j] & ~cost)
        wrong[bounding] |= _exceeds(boxes, i[bounding], j[bounding])
        for winner, loser in ((i, j), (j, i)):
            refuted = wrong & wins[winner] & boxes.unverified[loser] & ~fresh[loser]
            superfluous[loser[refuted]] = True
            wrong &= ~refuted
        contradictions.append(np.stack([i[wrong], j[wrong]], axis=1))
        if sum(map(len, contradictions)) >= MOST_PAIRS:
            break
        inside = np.all((boxes.low[j] <= boxes.low[i]) & (boxes.high[i] <= boxes.high[j]), axis=1)
        inside &= boxes.unverified[i] | ~boxes.unverified[j]
        i, j, cost = i[inside], j[inside], cost[inside]
        superfluous[i[~settled[i] & settled[j]]] = True
        both = np.flatnonzero(~settled[i] & ~settled[j])
        weaker = cost[both] | _exceeds(boxes, j[both], i[both])
        superfluous[i[both[weaker]]] = True
        peak = (boxes.low[i, rank:] == boxes.low[j, rank:]).all(axis=1)
        same = settled[i] & (boxes.kind[i] == boxes.kind[j]) & cost & (boxes.step[i] == boxes.step[j]) & peak
        superfluous[i[same]] = True
    return boxes.take(~superfluous), np.concatenate([*contradictions, np.empty((0, 2), dtype=np.int64)])[:MOST_PAIRS]


def covered(low: Ints, high: Ints) -> int:
    """Return the number of points in the boxes [M, A], each counted once."""
    if len(low) <= 1:
        return int(np.prod((high - low + 1).astype(object))) if len(low) else 0
    if not low.shape[1]:
        return 1
    cuts = np.unique(np.concatenate([low[:, 0], high[:, 0] + 1]))
    total, seen = 0, dict[bytes, int]()
    for start, end in pairwise(cuts.tolist()):
        inside = (low[:, 0] <= start) & (high[:, 0] >= start)
        key = inside.tobytes()
        if key not in seen:
            seen[key] = covered(low[inside, 1:], high[inside, 1:])
        total += (end - start) * seen[key]
    return total
