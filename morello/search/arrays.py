"""Types of numpy arrays, and the distinct numbers of one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ints32 = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Floats32 = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


def distinct_numbers(values: Ints) -> Ints:
    """Return the distinct numbers of an array, sorted."""
    # `np.unique` hashes them, which takes ten times as long.
    ordered = np.sort(values, axis=None)
    return ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
