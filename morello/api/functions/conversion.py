"""Arrays of any library, lists and numbers as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.errors import ArgumentError
from morello.run.arrays import in_numpy

#: Types of the values of Python's numbers in numpy, and those that they get in a call without arrays.
_PYTHON_TYPES = {np.dtype(np.int64): np.dtype(np.int32), np.dtype(np.float64): np.dtype(np.float32)}
#: Operands that are copied.
_COPIED = (list, tuple, int, float, np.generic)


def as_array(array: Any) -> np.ndarray:
    """Return an array of any library as a numpy array. Raises ArgumentError for other objects."""
    found = in_numpy(array)
    if found is None:
        raise ArgumentError(f"expected an array, got {type(array).__name__}", "convert it: numpy.asarray(...)")
    return np.asarray(found)


def as_arrays(arrays: Sequence[Any], written: Sequence[Any], copy: bool) -> list[np.ndarray]:
    """Return operands and outputs in numpy; lists and numbers, which may be operands, in copies.

    Python's numbers get the type of the first array, or i32 and f32. Raises ArgumentError for other objects, and for
    what needs a copy without `copy`.
    """
    seen = {place: as_array(one) for place, one in enumerate(arrays) if not isinstance(one, _COPIED)}
    if len(seen) < len(arrays) and not copy:
        raise ArgumentError("a list or number is an operand", "pass an array, or leave out copy=False")
    like = next((one.dtype for one in seen.values()), None)
    given = [seen[place] if place in seen else _converted(one, like) for place, one in enumerate(arrays)]
    return [*given, *map(as_array, written)]


def from_lists(arrays: Sequence[Any], copy: bool) -> Sequence[Any]:
    """Return operands with lists and numbers as arrays, see `as_arrays`; arrays stay as they are."""
    if not any(isinstance(one, _COPIED) for one in arrays):
        return arrays
    made = as_arrays(arrays, (), copy)
    return [new if isinstance(one, _COPIED) else one for one, new in zip(arrays, made, strict=True)]


def _converted(given: Any, like: np.dtype | None) -> np.ndarray:
    """Return the array of a list or number."""
    if isinstance(given, list | tuple):
        for masked in (one for one in given if isinstance(one, np.ma.MaskedArray)):
            as_array(masked)
    try:
        made = np.asarray(given)
        if isinstance(given, np.generic) or made.dtype not in _PYTHON_TYPES:
            return made
        whole = made.dtype.kind == "i"
        fits = like is not None and (whole or like.kind not in "iu")
        return np.asarray(given, like if fits else _PYTHON_TYPES[made.dtype])
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise ArgumentError(f"a list is not an array: {error}", "pass one: numpy.asarray(..., dtype)") from None
