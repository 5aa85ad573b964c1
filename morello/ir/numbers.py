"""Arithmetic that reads the same for one Spec (Python ints) and for a batch of Specs (int64 arrays).

Rewrites and microkernels are written with these helpers, so one definition serves the recursion over
single Specs and an engine that evaluates whole blocks of Specs at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Num: TypeAlias = int | npt.NDArray[np.int64]
Mask: TypeAlias = bool | npt.NDArray[np.bool_]
#: Which cells of a batch are meant; `None` is all of them, and the only value for a single Spec.
CellIndices: TypeAlias = npt.NDArray[np.intp] | None


@overload
def product(numbers: Iterable[int]) -> int: ...
@overload
def product(numbers: Iterable[Num]) -> Num: ...
def product(numbers: Iterable[Num]) -> Num:
    """Return the product; 1 when there are no numbers."""
    result: Num = 1
    for number in numbers:
        result = result * number
    return result


@overload
def ceil_div(a: int, b: int) -> int: ...
@overload
def ceil_div(a: Num, b: Num) -> Num: ...
def ceil_div(a: Num, b: Num) -> Num:
    """Return a / b, rounded up."""
    return -(-a // b)


def choose(condition: Mask, yes: Num, no: Num) -> Num:
    """Return `yes if condition else no`, cell by cell for arrays."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def take(number: Num, cells: CellIndices) -> Num:
    """Return the numbers of the given cells; what is the same for the whole batch stays a plain int."""
    return number[cells] if cells is not None and isinstance(number, np.ndarray) else number


def is_batch(numbers: Iterable[Num]) -> bool:
    return any(isinstance(number, np.ndarray) for number in numbers)


def partition(codes: Sequence[Num]) -> Iterator[tuple[tuple[int, ...], CellIndices]]:
    """Group the cells of a batch that agree on all of `codes`; a single Spec is one group.

    What a rewrite does to *labels* (layouts, contiguity) depends on the numbers of a Spec only through a
    few small codes, so a batch falls into few groups within which only numbers differ.
    """
    if not is_batch(codes):
        yield tuple(map(int, codes)), None
        return
    # Numbers that all cells share split no group.
    columns = {place: code for place, code in enumerate(codes) if isinstance(code, np.ndarray)}
    shapes = {column.shape for column in columns.values()}
    shape = np.broadcast_shapes(*shapes)
    if len(shapes) > 1:
        columns = {place: np.broadcast_to(column, shape) for place, column in columns.items()}
    group = np.zeros(shape, dtype=np.int64)
    count = 1 if group.size else 0
    for column in columns.values():
        # Groups so far are numbered in order, and split by one more code: numbers stay small.
        kind, kinds = _ranked(column)
        if count == 1:
            group, count = kind, kinds
        elif kinds > 1:
            group, count = _ranked(group * kinds + kind)
    first = np.zeros(count, dtype=np.int64)
    first[group[::-1]] = np.arange(group.size)[::-1]
    for index, at in enumerate(first):
        numbers = (columns[place][at] if place in columns else code for place, code in enumerate(codes))
        yield tuple(map(int, numbers)), np.flatnonzero(group == index) if count > 1 else np.arange(group.size)


def _ranked(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.int64], int]:
    """Return the rank of each value among the distinct ones, and how many these are."""
    if not values.size:
        return np.zeros(0, dtype=np.int64), 0
    low, high = int(values.min()), int(values.max())
    if low == high:
        return np.zeros(values.shape, dtype=np.int64), 1
    if high - low > 4 * values.size + 64:
        distinct, rank = np.unique(values, return_inverse=True)
        return rank.astype(np.int64), len(distinct)
    # Of small numbers, to mark those that occur is faster than to sort.
    there = np.zeros(high - low + 1, dtype=np.bool_)
    there[values - low] = True
    numbers = np.cumsum(there) - 1
    return numbers[values - low], int(numbers[-1]) + 1
