"""Linear programs, also with integers and with exact solutions, all solved by HiGHS."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from math import inf
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from morello.errors import MorelloError
from morello_bounds.linear import Row, dot, solved

#: An array, or sequences of exact or inexact numbers.
Numbers: TypeAlias = npt.ArrayLike | Sequence[Any]
#: Constraints with less slack than this are equalities.
TIGHT = 1e-7
#: A sum of variables, each times a factor.
Sum = Mapping[int, float]


def minimum(costs: Numbers, rows: Numbers, right: Numbers) -> npt.NDArray[np.float64]:
    """Return about the x ≥ 0 of least costs · x with rows · x ≥ right. Raises MorelloError without an optimum."""
    costs, rows, right = (np.asarray(one, dtype=float) for one in (costs, rows, right))
    answer = linprog(costs, A_ub=-rows, b_ub=-right, method="highs-ds")
    if answer.status != 0:
        raise MorelloError(f"a linear program has no optimum: {answer.message}", "this is a bug: please report it")
    return answer.x


def exact_minimum(costs: Row, rows: Sequence[Row], right: Row) -> tuple[Fraction, ...]:
    """Return the exact vertex that `minimum` is near. Raises MorelloError without one."""
    near = minimum(costs, rows, right)
    units = np.eye(len(near), dtype=int).tolist()
    everything = [*zip(rows, right, strict=True), *((unit, 0) for unit in units)]
    slacks = [float(np.dot(np.array(row, dtype=float), near)) - float(bound) for row, bound in everything]
    tight = [
        one for one, slack in zip(everything, slacks, strict=True) if abs(slack) <= TIGHT * max(1.0, abs(float(one[1])))
    ]
    x = solved([row for row, _ in tight], [bound for _, bound in tight])
    if x is None or any(dot(row, x) < bound for row, bound in everything):
        raise MorelloError("a linear program has no exact vertex", "this is a bug: please report it")
    return x


@attrs.define
class IntegerProgram:
    """A program to minimize: variables with bounds, rows with bounds, and costs."""

    _upper: list[float] = attrs.field(factory=list[float], init=False)
    _whole: list[bool] = attrs.field(factory=list[bool], init=False)
    _costs: list[float] = attrs.field(factory=list[float], init=False)
    _rows: list[tuple[Sum, float, float]] = attrs.field(factory=list[tuple[Sum, float, float]], init=False)

    def variable(self, upper: float = inf, *, whole: bool = False, cost: float = 0.0) -> int:
        """Return a new variable from 0 to `upper`, by number."""
        self._upper.append(upper)
        self._whole.append(whole)
        self._costs.append(cost)
        return len(self._costs) - 1

    def charge(self, terms: Sum, factor: float) -> None:
        """Add `factor` times a sum to the costs."""
        for one, value in terms.items():
            self._costs[one] += factor * value

    def bound(self, terms: Sum, least: float = -inf, most: float = inf) -> None:
        """Bound a sum."""
        self._rows.append((terms, least, most))

    def solve(self, nodes: int) -> npt.NDArray[np.float64] | None:
        """Return the best variables found, if any, within a limit of nodes: it is reproducible, unlike seconds."""
        places = [(row, one, value) for row, (terms, *_) in enumerate(self._rows) for one, value in terms.items()]
        rows, columns, values = zip(*places, strict=True)
        matrix = csr_array((values, (rows, columns)), shape=(len(self._rows), len(self._costs)))
        # scipy declares these as floats.
        upper: Any = self._upper
        sides: list[Any] = [[row[1] for row in self._rows], [row[2] for row in self._rows]]
        with _silenced():
            answer = milp(
                self._costs,
                integrality=self._whole,
                bounds=Bounds(0, upper),
                constraints=LinearConstraint(matrix, *sides),
                options={"node_limit": nodes},
            )
        # Reaching the limit of nodes has no status.
        if answer.status not in (0, 1, 2) and "limit" not in answer.message:
            raise MorelloError(f"an integer program fails: {answer.message}", "this is a bug: please report it")
        return answer.x


@contextmanager
def _silenced() -> Generator[None]:
    """Discard output that C code writes: HiGHS prints some solutions to stdout, whatever its options say."""
    flush = ctypes.CDLL(None).fflush
    sys.stdout.flush()
    flush(None)
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def added(*sums: Sum, factor: float = 1.0) -> dict[int, float]:
    """Return the sum of several, times a factor."""
    total: dict[int, float] = {}
    for one in sums:
        for at, value in one.items():
            total[at] = total.get(at, 0.0) + factor * value
    return total
