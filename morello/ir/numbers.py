"""Arithmetic on the numbers of one Spec (Python ints) or of a batch of Specs (int64 arrays).

Rewrites and microkernels use these helpers, so that one definition serves single Specs and blocks of Specs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Num: TypeAlias = int | npt.NDArray[np.int64]
#: Either ints alone, or numbers of a batch.
NumT = TypeVar("NumT", int, Num)
Mask: TypeAlias = bool | npt.NDArray[np.bool_]
#: Cells of a batch; `None` for all of them, and for a single Spec.
CellIndices: TypeAlias = npt.NDArray[np.intp] | None
#: Up to this many cells are grouped faster one by one than by arrays.
_FEW = 128


def product(numbers: Iterable[NumT]) -> NumT:
    """Return the product; 1 when there are no numbers."""
    result: Any = 1
    for number in numbers:
        result = result * number
    return result


def ceil_div(a: NumT, b: NumT) -> NumT:
    """Return a / b, rounded up."""
    return -(-a // b)


def choose(condition: Mask, yes: Num, no: Num) -> Num:
    """Return `yes if condition else no`, cell by cell for arrays."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def anywhere(mask: Mask) -> bool:
    """Return True if a condition holds for a Spec, or for some of a batch; avoids numpy for a single one."""
    return bool(mask.any()) if isinstance(mask, np.ndarray) else bool(mask)


def take(number: Num, cells: CellIndices) -> Num:
    """Return the numbers of the given cells; a number that the whole batch shares stays a plain int."""
    return number[cells] if cells is not None and isinstance(number, np.ndarray) else number


def is_batch(numbers: Iterable[Num]) -> bool:
    return any(isinstance(number, np.ndarray) for number in numbers)


def partition(codes: Sequence[Num]) -> Iterator[tuple[tuple[int, ...], CellIndices]]:
    """Yield the groups of cells of a batch that agree on all of `codes`; a single Spec is one group.

    The labels (layouts, contiguity) that a rewrite makes depend on numbers only through a few small codes, so a batch
    falls into few groups that share all labels.
    """
    if not is_batch(codes):
        yield tuple(map(int, codes)), None
        return
    found, group = numbered(codes)
    if len(found) == 1:
        yield found[0], np.arange(group.size)
        return
    # Sorting 16-bit numbers is much faster.
    order = np.argsort(group.astype(np.uint16) if len(found) < 1 << 16 else group, kind="stable")
    ends = [0, *np.cumsum(np.bincount(group)).tolist()]
    for each, (first, end) in zip(found, pairwise(ends), strict=True):
        yield each, order[first:end]


def numbered(codes: Sequence[Num]) -> tuple[list[tuple[int, ...]], npt.NDArray[np.int64]]:
    """Return the distinct tuples of codes of a batch, in order, and the number of its tuple for each cell."""
    # Numbers that all cells share do not split groups.
    columns = {place: code for place, code in enumerate(codes) if isinstance(code, np.ndarray)}
    shape = np.broadcast_shapes(*(column.shape for column in columns.values()))
    columns = {place: np.broadcast_to(column, shape) for place, column in columns.items()}
    if len(shape) == 1 and shape[0] <= _FEW:
        each = [
            columns[place].tolist() if place in columns else repeat(int(code), shape[0])
            for place, code in enumerate(codes)
        ]
        rows = [*zip(*each, strict=True)]
        rank = {row: number for number, row in enumerate(sorted({*rows}))}
        return [*rank], np.array([rank[row] for row in rows], dtype=np.int64)
    group, count = _grouped([*columns.values()], shape)
    some = np.zeros(count, dtype=np.int64)
    some[group] = np.arange(group.size)
    each = [
        columns[place][some].tolist() if place in columns else [int(code)] * count for place, code in enumerate(codes)
    ]
    return [*zip(*each, strict=True)], group


def _grouped(columns: Sequence[npt.NDArray[Any]], shape: tuple[int, ...]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the rank of each cell's codes among the distinct ones, and their number."""
    group: npt.NDArray[np.int64] = np.zeros(shape, dtype=np.int64)
    count = 1
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if column.size else (0, 0)
        kinds = high - low + 1
        if count * kinds > _dense(group.size):
            group, count = _ranked(group, count)
            column, kinds = _ranked(column - low, kinds)
            low = 0
        if kinds > 1:
            group, count = group * kinds + (column - low), count * kinds
    return _ranked(group, count)


def _dense(cells: int) -> int:
    """Return the limit below which marking the numbers that occur is faster than sorting."""
    return 4 * cells + 64


def _ranked(values: npt.NDArray[Any], below: int) -> tuple[npt.NDArray[np.int64], int]:
    """Return the rank of each value, from 0 to `below`, among the distinct ones, and their number."""
    if not values.size:
        return np.zeros(0, dtype=np.int64), 0
    if below > _dense(values.size):
        distinct, rank = np.unique(values, return_inverse=True)
        return rank.astype(np.int64), len(distinct)
    there = np.zeros(below, dtype=np.bool_)
    there[values] = True
    numbers = np.cumsum(there) - 1
    return numbers[values], int(numbers[-1]) + 1
