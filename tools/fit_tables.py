"""Fit the tables of polynomials by which the x86 targets compute Gelu, Tanh and Erf.

    python -m tools.fit_tables

Prints the source of `TABLES` in `morello_vectors.function_tables`. Needs scipy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from morello_vectors.function_tables import ENDS
from scipy.special import erf, ndtr

Array = npt.NDArray[np.float64]
#: Points of a fit.
_POINTS = 200


def _tail(a: Array) -> Array:
    return ndtr(-a)


def _tail_by_tanh(a: Array) -> Array:
    return 1 / (1 + np.exp(math.sqrt(8 / math.pi) * (a + 0.044715 * a**3)))


def _slope(a: Array) -> Array:
    """Return tanh(a) / a."""
    return np.where(a == 0, 1.0, np.tanh(a) / np.where(a == 0, 1.0, a))


def _slope_of_erf(a: Array) -> Array:
    """Return erf(a) / a."""
    return np.where(a == 0, 2 / math.sqrt(math.pi), erf(a) / np.where(a == 0, 1.0, a))


#: By name: the function, whether it is 0 from the table's end on, and degrees by number of intervals.
_FUNCTIONS: dict[str, tuple[Callable[[Array], Array], bool, dict[int, int]]] = {
    "gelu": (_tail, True, {8: 6, 32: 4}),
    "gelu_tanh": (_tail_by_tanh, True, {8: 7, 32: 4}),
    "tanh": (_slope, False, {8: 8, 32: 5}),
    "erf": (_slope_of_erf, False, {8: 8, 32: 5}),
}


def fitted(function: Callable[[Array], Array], end: float, to_zero: bool, intervals: int, degree: int) -> Array:
    """Return the coefficients by degree and interval, which are f32.

    Interval i is around the argument i·end/(intervals - 1), in whose units polynomials count from it. Their relative
    errors have the least squares. Coefficients are rounded one after the other, lowest degree first.
    """
    step = end / (intervals - 1)
    found = np.zeros((degree + 1, intervals))
    for at in range(intervals):
        last = to_zero and at == intervals - 1
        low, high = 0.0 if at == 0 else -0.5, 0.0 if last else 0.5
        points = (np.cos((2 * np.arange(_POINTS) + 1) * np.pi / (2 * _POINTS)) * (high - low) + high + low) / 2
        left = function((at + points) * step)
        weight = 1 / left
        if last:
            left, weight = left - function(np.array(end)), np.ones(_POINTS)
        for power in range(int(last), degree + 1):
            terms = np.stack([points**each for each in range(power, degree + 1)], axis=1)
            first, *_ = np.linalg.lstsq(terms * weight[:, None], left * weight, rcond=None)[0]
            found[power, at] = np.float32(first)
            left = left - found[power, at] * points**power
    return found


def main() -> None:
    print("TABLES = {")
    for name, (function, to_zero, degrees) in _FUNCTIONS.items():
        for intervals, degree in degrees.items():
            print(f'    ("{name}", {intervals}): (')
            for row in fitted(function, ENDS[name], to_zero, intervals, degree).astype(">f4"):
                text = row.tobytes().hex()
                lines = [text[start : start + 88] for start in range(0, len(text), 88)]
                print("\n".join(f'        "{line}"' for line in lines) + ",")
            print("    ),")
    print("}")


if __name__ == "__main__":
    main()
