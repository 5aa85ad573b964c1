"""Arrays and structs for the compiled parts of search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from morello.search.library import library

#: A pointer to a value or array of C: only cffi knows its type.
Pointer: TypeAlias = Any

_TYPES = {
    "int16_t": np.int16,
    "int32_t": np.int32,
    "int64_t": np.int64,
    "uint64_t": np.uint64,
    "uint8_t": np.uint8,
    "int8_t": np.int8,
    "double": np.float64,
    "float": np.float32,
}


class Structs:
    """Makes arrays and structs of C, which live as long as this does."""

    def __init__(self) -> None:
        self.ffi, self.lib = library()
        self._kept: list[object] = []
        self._pointers: dict[tuple[int, str], tuple[object, Pointer]] = {}

    def array(self, values: npt.ArrayLike, ctype: str) -> Pointer:
        """Return a pointer to values of a type of C; arrays that have it already are not copied."""
        found = np.ascontiguousarray(values, dtype=_TYPES[ctype])
        self._kept.append(found)
        return self.ffi.cast(f"{ctype} *", found.ctypes.data)

    def rows(self, arrays: Sequence[npt.ArrayLike], ctype: str) -> Pointer:
        """Return a pointer to pointers to arrays; one that comes up again is not copied again."""
        pointers: list[Pointer] = []
        for array in arrays:
            key = id(array), ctype
            if key not in self._pointers:
                self._pointers[key] = array, self.array(array, ctype)
            pointers.append(self._pointers[key][1])
        return self.keep(self.ffi.new(f"{ctype} *[]", pointers or 1))

    def keep(self, owner: Pointer) -> Pointer:
        """Return what C was given, to live as long as this does."""
        self._kept.append(owner)
        return owner

    def structs(self, kind: str, fields: Sequence[Mapping[str, object]]) -> Pointer:
        """Return a pointer to structs."""
        return self.keep(self.ffi.new(f"{kind}[]", fields or 1))
