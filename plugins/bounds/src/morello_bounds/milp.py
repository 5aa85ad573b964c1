"""Mixed-integer linear programs, built row by row and solved by HiGHS."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from math import inf
from typing import Any

import attrs
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from morello.errors import MorelloError

#: A sum of variables, each times a factor.
Sum = Mapping[int, float]


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

    def solve(self, nodes: int) -> list[float] | None:
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
        return None if answer.x is None else [*map(float, answer.x)]


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


def added(*sums: Sum) -> dict[int, float]:
    """Return the sum of several."""
    total: dict[int, float] = {}
    for one in sums:
        for at, value in one.items():
            total[at] = total.get(at, 0.0) + value
    return total


def times(terms: Sum, factor: float) -> dict[int, float]:
    """Return a multiple of a sum."""
    return {at: factor * value for at, value in terms.items()}
