"""Linear programs: HiGHS finds a vertex, which is then computed in exact arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import attrs
import numpy as np
from scipy.optimize import linprog

from morello.errors import MorelloError
from morello_bounds.linear import Row, dot, solved

#: Exact or inexact numbers.
Numbers: TypeAlias = Sequence[float | Fraction]
#: Constraints with less slack than this are taken as equalities.
_TIGHT = 1e-7


@attrs.frozen
class Solution:
    """The optimum of a linear program: its value, the variables and the dual variables, one for each row."""

    value: Fraction
    x: tuple[Fraction, ...]
    y: tuple[Fraction, ...]


def minimum(costs: Numbers, rows: Sequence[Numbers], right: Numbers) -> tuple[float, ...]:
    """Return about the x ≥ 0 of least costs · x with rows · x ≥ right. Raises MorelloError without an optimum."""
    answer = linprog(
        np.array(costs, dtype=float),
        A_ub=-np.array(rows, dtype=float),
        b_ub=-np.array(right, dtype=float),
        method="highs-ds",
    )
    if answer.status != 0:
        raise MorelloError(f"a linear program has no optimum: {answer.message}", "this is a bug: please report it")
    return tuple(map(float, answer.x))


def exact_minimum(costs: Row, rows: Sequence[Row], right: Row) -> Solution:
    """Return the exact optimum of the same program, proven by duality. Raises MorelloError if it is not found."""
    x = _vertex(rows, right, minimum(costs, rows, right))
    columns = [[-Fraction(row[at]) for row in rows] for at in range(len(costs))]
    negative = [-Fraction(cost) for cost in costs]
    y = _vertex(columns, negative, minimum([-Fraction(value) for value in right], columns, negative))
    value, dual = dot(costs, x), dot(right, y)
    if value != dual:
        raise MorelloError("a linear program has no exact optimum", "this is a bug: please report it")
    return Solution(value, x, y)


def _vertex(rows: Sequence[Row], right: Row, near: Sequence[float]) -> tuple[Fraction, ...]:
    """Return the exact vertex of rows · x ≥ right, x ≥ 0 near a point. Raises MorelloError if it does not exist."""
    units = [[int(at == place) for at in range(len(near))] for place in range(len(near))]
    everything = [*zip(rows, right, strict=True), *((unit, 0) for unit in units)]
    tight = [
        (row, bound)
        for row, bound in everything
        if abs(sum(float(a) * b for a, b in zip(row, near, strict=True)) - float(bound))
        <= _TIGHT * max(1.0, abs(float(bound)))
    ]
    x = solved([row for row, _ in tight], [bound for _, bound in tight])
    if x is None or any(dot(row, x) < bound for row, bound in everything):
        raise MorelloError("a linear program has no exact vertex", "this is a bug: please report it")
    return x
