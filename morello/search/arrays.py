"""Types of numpy arrays, and two structures that grow: a numbering of keys, and a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class KeyNumbers:
    """Number distinct keys (non-negative int64) from `first` on, in arrays: a hash table with open addressing."""

    def __init__(self, first: int = 0):
        self.count = first
        self._bits = 12
        self._keys: Ints = np.full(1 << self._bits, -1, dtype=np.int64)
        self._numbers: Ints = np.zeros(1 << self._bits, dtype=np.int64)
        self._first = first

    def numbers(self, keys: Ints) -> tuple[Ints, Ints]:
        """Return the number of each key, [n], and the keys that are new, in the order of their numbers."""
        while 2 * (self.count - self._first + len(keys)) > len(self._keys):
            self._grow()
        slots, new_slots = self._slots(keys)
        self._numbers[new_slots] = self.count + np.arange(len(new_slots))
        self.count += len(new_slots)
        return self._numbers[slots], self._keys[new_slots]

    def _slots(self, keys: Ints) -> tuple[Ints, Ints]:
        """Return the slot of each key, and the slots that were taken for new keys."""
        mask = len(self._keys) - 1
        slots = ((keys.astype(np.uint64) * _MULTIPLIER) >> np.uint64(64 - self._bits)).astype(np.int64)
        left = np.arange(len(keys))
        taken: list[Ints] = []
        while len(left):
            tried = slots[left]
            wanted = keys[left]
            empty = self._keys[tried] < 0
            if empty.any():
                # Of several keys for one slot the last one gets it; the others go on looking.
                self._keys[tried[empty]] = wanted[empty]
                taken.append(tried[empty])
            lost = self._keys[tried] != wanted
            left = left[lost]
            slots[left] = (slots[left] + 1) & mask
        return slots, np.unique(np.concatenate(taken)) if taken else np.zeros(0, dtype=np.int64)

    def _grow(self) -> None:
        keys, numbers = self._keys, self._numbers
        used = keys >= 0
        self._bits += 1
        self._keys = np.full(1 << self._bits, -1, dtype=np.int64)
        self._numbers = np.zeros(1 << self._bits, dtype=np.int64)
        slots, _ = self._slots(keys[used])
        self._numbers[slots] = numbers[used]


class Column:
    """An array that grows; `values` is the part in use, [count] or [count, width]."""

    def __init__(self, dtype: Any, width: int | None = None):
        self._data = np.zeros((0,) if width is None else (0, width), dtype=dtype)
        self.count = 0

    @property
    def values(self) -> npt.NDArray[Any]:
        return self._data[: self.count]

    def extend(self, rows: npt.NDArray[Any]) -> None:
        """Append rows."""
        needed = self.count + len(rows)
        if needed > len(self._data):
            grown = np.zeros((max(needed, 2 * len(self._data), 1024), *self._data.shape[1:]), dtype=self._data.dtype)
            grown[: self.count] = self.values
            self._data = grown
        self._data[self.count : needed] = rows
        self.count = needed
