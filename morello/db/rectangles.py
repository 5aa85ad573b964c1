"""Rectangles in Z^n: sets of Specs that share one value, and how they are merged.

Boxes of many tables are handled at once, as arrays, so that thousands of small tables cost no more than a large one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from morello.db.block import AnswerKind, Ints
from morello.db.tree import MANY, Tree

#: How many pairs of boxes are compared at a time.
_CHUNK = 1 << 20
#: Odd multipliers of a hash that brings boxes together which may be joined; they are then compared in full. Not numpy's
#: random numbers, as importing these takes longer than most look-ups.
_LUCK = random.Random(0)
_MULTIPLIERS = np.array([_LUCK.getrandbits(63) * 2 + 1 for _ in range(256)], dtype=np.uint64)


@attrs.frozen(eq=False)
class Boxes:
    """N boxes with A axes: sizes first, then limits. Both corners of a box are part of it.

    The value of a box is its kind, cost per point of the iteration space, and step; an EXACT box starts at its peak.
    """

    table: Ints  # [N], which table it belongs to
    low: Ints  # [N, A]
    high: Ints  # [N, A]
    kind: npt.NDArray[np.int8]  # [N]
    numerator: Ints  # [N]
    denominator: Ints  # [N]
    step: Ints  # [N], -1 for none
    row: Ints  # [N], where it is stored, -1 for nowhere
    foreign: npt.NDArray[np.bool_]  # [N], another's word: nobody has proven it here

    def __len__(self) -> int:
        return len(self.table)

    @property
    def axes(self) -> int:
        return self.low.shape[1]

    @property
    def settled(self) -> npt.NDArray[np.bool_]:
        """Return which of N boxes answer their Specs, rather than bounding their costs."""
        return self.kind != AnswerKind.LOWER

    def take(self, which: Ints | npt.NDArray[np.bool_]) -> Self:
        return type(self)(*(getattr(self, field.name)[which] for field in attrs.fields(type(self))))


def joined(parts: Sequence[Boxes]) -> Boxes:
    """Return all boxes of `parts`, of which there is at least one."""
    return Boxes(*(np.concatenate([getattr(one, field.name) for one in parts]) for field in attrs.fields(Boxes)))


def merged(boxes: Boxes, rank: int) -> Boxes:
    """Return boxes that say the same of the same Specs, mostly fewer: joined greedily along one axis after another.

    The first `rank` axes are sizes. A joined box that is one of the given ones keeps its row.
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
    """Return numbers [N] that boxes share if they belong to one table and have one value, the peak included.

    Boxes that are no EXACT ones start at limit 0, so that comparing where boxes start compares peaks only.
    """
    columns = [
        boxes.table,
        boxes.kind,
        boxes.foreign,
        boxes.step,
        boxes.numerator,
        boxes.denominator,
        *boxes.low[:, rank:].T,
    ]
    stacked = np.stack([column.astype(np.int64) for column in columns], axis=1)
    order = np.lexsort(stacked.T)
    changes = (stacked[order[1:]] != stacked[order[:-1]]).any(axis=1)
    numbers = np.empty(len(boxes), dtype=np.int64)
    numbers[order] = np.concatenate([[0], np.cumsum(changes)])[: len(boxes)]
    return numbers


def _join(boxes: Boxes, value: Ints, axis: int) -> tuple[Boxes, Ints]:
    """Join the boxes that differ along `axis` only and overlap or touch there."""
    others = [other for other in range(boxes.axes) if other != axis]
    columns = np.concatenate([value[:, None], boxes.low[:, others], boxes.high[:, others]], axis=1)
    # Overflow is what a hash is made of.
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
    whole = (low == low[first][run]) & (high == top[run])
    row = np.maximum.reduceat(np.where(whole, boxes.row[order], -1), first)
    kept = boxes.take(order[first])
    highs = kept.high.copy()
    highs[:, axis] = top
    return attrs.evolve(kept, high=highs, row=row), value[order[first]]


def pairs(boxes: Boxes, mine: npt.NDArray[np.bool_]) -> Iterator[tuple[Ints, Ints]]:
    """Yield pairs i != j (box numbers) of one table that intersect, with i one of `mine` [N], boxes sorted by table."""
    starts = np.flatnonzero(np.diff(boxes.table, prepend=boxes.table[:1] - 1))
    sizes = np.diff(starts, append=len(boxes))
    small = np.repeat(sizes <= MANY, sizes)
    table = np.repeat(np.arange(len(sizes)), sizes)
    asking = np.flatnonzero(mine & small)
    counts = sizes[table[asking]]
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(asking):
        until = max(begin + 1, int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + _CHUNK, side="right")))
        i = np.repeat(asking[begin:until], counts[begin:until])
        offsets = np.repeat(ends[begin:until] - counts[begin:until], counts[begin:until])
        j = starts[table[i]] + np.arange(len(i)) + (ends[begin - 1] if begin else 0) - offsets
        yield _intersecting(boxes, i, j)
        begin = until
    for start, size in zip(starts[sizes > MANY], sizes[sizes > MANY], strict=True):
        rows = np.arange(start, start + size)
        tree = Tree(boxes.low[rows], boxes.high[rows])
        asks = rows[mine[rows]]
        for begin in range(0, len(asks), MANY):
            some = asks[begin : begin + MANY]
            query, found = tree.intersecting(boxes.low[some], boxes.high[some])
            yield _intersecting(boxes, some[query], rows[found])


def _intersecting(boxes: Boxes, i: Ints, j: Ints) -> tuple[Ints, Ints]:
    keep = i != j
    for axis in range(boxes.axes):
        i, j = i[keep], j[keep]
        low, high = boxes.low[:, axis], boxes.high[:, axis]
        keep = (low[i] <= high[j]) & (low[j] <= high[i])
    return i[keep], j[keep]


def inside(boxes: Boxes, i: Ints, j: Ints) -> npt.NDArray[np.bool_]:
    """Return where box i lies in box j, elementwise for N pairs."""
    return np.all((boxes.low[j] <= boxes.low[i]) & (boxes.high[i] <= boxes.high[j]), axis=1)


def _exceeds(boxes: Boxes, i: Ints, j: Ints) -> npt.NDArray[np.bool_]:
    """Return where the cost per point of box i exceeds that of box j, elementwise for N pairs."""
    mine = boxes.numerator[i].astype(object) * boxes.denominator[j]
    return (mine > boxes.numerator[j].astype(object) * boxes.denominator[i]).astype(bool)


def settle(boxes: Boxes, rank: int, new: npt.NDArray[np.bool_], searched: npt.NDArray[np.bool_]) -> tuple[Boxes, Ints]:
    """Leave out boxes that others make superfluous; and pairs [M, 2] of the given boxes that contradict each other.

    Two boxes contradict each other if they answer one Spec differently, or one bounds it above the other's answer.
    Only pairs with one of the `new` boxes are looked at. The boxes are sorted by table. Another's word makes no answer
    superfluous that was proven here, and what is stored of it gives way to new boxes that search has found: `searched`.
    """
    superfluous = np.zeros(len(boxes), dtype=bool)
    contradictions: list[Ints] = []
    settled, exact = boxes.settled, boxes.kind == AnswerKind.EXACT
    for i, j in pairs(boxes, new):
        # Both directions, as j need not be new.
        i, j = np.concatenate([i, j]), np.concatenate([j, i])
        cost = (boxes.numerator[i] == boxes.numerator[j]) & (boxes.denominator[i] == boxes.denominator[j])
        wrong = settled[i] & settled[j] & ~((boxes.kind[i] == boxes.kind[j]) & cost) & (i < j)
        bounding = np.flatnonzero(~settled[i] & exact[j] & ~cost)
        wrong[bounding] |= _exceeds(boxes, i[bounding], j[bounding])
        for mine, other in ((i, j), (j, i)):
            refuted = wrong & searched[mine] & boxes.foreign[other] & ~new[other]
            superfluous[other[refuted]] = True
            wrong &= ~refuted
        contradictions.append(np.stack([i[wrong], j[wrong]], axis=1))
        within = inside(boxes, i, j) & (boxes.foreign[i] | ~boxes.foreign[j])
        i, j, cost = i[within], j[within], cost[within]
        superfluous[i[~settled[i] & settled[j]]] = True
        both = np.flatnonzero(~settled[i] & ~settled[j])
        weaker = cost[both] | _exceeds(boxes, j[both], i[both])
        superfluous[i[both[weaker]]] = True
        peak = (boxes.low[i, rank:] == boxes.low[j, rank:]).all(axis=1)
        same = settled[i] & (boxes.kind[i] == boxes.kind[j]) & cost & (boxes.step[i] == boxes.step[j]) & peak
        superfluous[i[same]] = True
    return boxes.take(~superfluous), np.concatenate([*contradictions, np.empty((0, 2), dtype=np.int64)])
