"""Marshal Python values to C: the types of structs and arrays come from the headers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from morello.search.library import library

#: A pointer or a type of C: only cffi has a class for it.
Pointer: TypeAlias = Any
CType: TypeAlias = Any


class Structs:
    """Structs and arrays of C, which live as long as this object.

    A pointer to a number type is given as an array-like, a pointer to structs as a sequence of mappings, a pointer to
    pointers as a sequence of either, NULL as None. Arrays that have the type of C are not copied.
    """

    def __init__(self) -> None:
        self.ffi, self.lib = library()
        self._kept: list[object] = []
        #: Pointers to converted arrays. An id may be used again after its array is gone, hence the references.
        self._pointers: dict[tuple[int, str], tuple[weakref.ref[npt.NDArray[Any]], Pointer]] = {}
        self._types: dict[str, dict[str, CType]] = {}
        self._rows: dict[str, np.dtype[np.void]] = {}

    def struct(self, kind: str, fields: Mapping[str, object]) -> Pointer:
        """Return a pointer to a struct with these fields; all others are zero."""
        return self.ffi.cast(f"{kind} *", self._pointer(self.ffi.typeof(kind), [fields]))

    def rows(self, kind: str, first: Pointer, count: int) -> npt.NDArray[np.void]:
        """Return a copy of an array of structs, [count]; pointers are left out."""
        if kind not in self._rows:
            numbers = [one for one in self.ffi.typeof(kind).fields if one[1].type.kind == "primitive"]
            names, formats, offsets = zip(*((name, _dtype(one.type), one.offset) for name, one in numbers), strict=True)
            layout: Any = {"names": names, "formats": formats, "offsets": offsets, "itemsize": self.ffi.sizeof(kind)}
            self._rows[kind] = np.dtype(layout)
        return np.frombuffer(self.ffi.buffer(first, count * self.ffi.sizeof(kind)), self._rows[kind]).copy()

    def fields(self, kind: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return the fields of a struct, converted. Converted fields are left as they are."""
        if kind not in self._types:
            self._types[kind] = {name: field.type for name, field in self.ffi.typeof(kind).fields}
        return {name: self._value(self._types[kind][name], value) for name, value in fields.items()}

    def _value(self, ctype: CType, value: Any) -> Any:
        if ctype.kind == "pointer":
            return self._pointer(ctype.item, value)
        return self.fields(ctype.cname, value) if ctype.kind == "struct" else value

    def _pointer(self, item: CType, value: Any) -> Pointer:
        """Return a pointer to values of type `item`."""
        if value is None or isinstance(value, self.ffi.CData):
            return value or self.ffi.NULL
        if item.kind == "primitive":
            return self._array(item, value)
        return self.keep(self.ffi.new(f"{item.cname}[]", [self._value(item, one) for one in value] or 1))

    def _array(self, item: CType, value: Any) -> Pointer:
        key = id(value), item.cname
        source, pointer = self._pointers.get(key, (None, None))
        if source is not None and source() is value:
            return pointer
        array = self.keep(np.ascontiguousarray(value, _dtype(item)))
        pointer = self.ffi.cast(f"{item.cname} *", array.ctypes.data)
        if type(value) is np.ndarray:
            self._pointers[key] = weakref.ref(value), pointer
        return pointer

    def keep(self, owner: Any) -> Any:
        """Return an object that C refers to, and let it live as long as this one."""
        self._kept.append(owner)
        return owner


def _dtype(ctype: CType) -> np.dtype[Any]:
    """Return numpy's name of a number type."""
    return np.dtype("f4" if ctype.cname == "float" else ctype.cname.removesuffix("_t"))
