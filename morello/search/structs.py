"""Marshal Python values to C: the types of structs and arrays come from the headers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from morello.search.library import library

#: A pointer or a type of C: only cffi has a class for it.
Pointer: TypeAlias = Any
CType: TypeAlias = Any


class Structs:
    """Structs and arrays of C, which live as long as this object.

    A pointer to a number type is given as an array-like, a pointer to structs as a sequence of mappings or an array of
    `dtype`, a pointer to pointers as a sequence of either, NULL as None. Arrays that have the type of C are not copied.
    """

    def __init__(self) -> None:
        self.ffi, self.lib = library()
        self._kept: list[object] = []
        #: Pointers to converted arrays. An id may be used again after its array is gone, hence the references.
        self._pointers: dict[tuple[int, str], tuple[weakref.ref[npt.NDArray[Any]], Pointer]] = {}
        self._types: dict[str, dict[str, CType]] = {}

    def struct(self, kind: str, fields: Mapping[str, object]) -> Pointer:
        """Return a pointer to a struct with these fields; all others are zero."""
        return self.ffi.cast(f"{kind} *", self._pointer(self.ffi.typeof(kind), [fields]))

    def copied(self, kind: str, structs: Sequence[Pointer], changes: Sequence[Mapping[str, object]]) -> Pointer:
        """Return a pointer to copies of structs, each with other values of some fields."""
        copies = self._keep(self.ffi.new(f"{kind}[]", [*structs]))
        for copy, fields in zip(copies, changes, strict=True):
            for name, value in self.fields(kind, fields).items():
                setattr(copy, name, value)
        return copies + 0

    def fields(self, kind: str, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return the fields of a struct, converted."""
        types = self._types.get(kind)
        if types is None:
            types = self._types[kind] = {name: field.type for name, field in self.ffi.typeof(kind).fields}
        return {name: self._value(types[name], value) for name, value in fields.items()}

    def dtype(self, kind: str) -> np.dtype[Any]:
        """Return numpy's type for a type of C; pointers are unsigned integers."""
        return self._dtype(self.ffi.typeof(kind))

    def address(self, kind: str, values: object) -> int:
        """Return the address of the values of a pointer to `kind`."""
        return int(self.ffi.cast("intptr_t", self._pointer(self.ffi.typeof(kind), values)))

    def _dtype(self, ctype: CType) -> np.dtype[Any]:
        if ctype.kind == "pointer":
            return np.dtype(np.uintp)
        if ctype.kind == "primitive":
            return np.dtype("f4" if ctype.cname == "float" else ctype.cname.removesuffix("_t"))
        names, fields = zip(*ctype.fields, strict=True)
        formats, offsets = [self._dtype(field.type) for field in fields], [field.offset for field in fields]
        size = self.ffi.sizeof(ctype)
        return np.dtype({"names": [*names], "formats": formats, "offsets": offsets, "itemsize": size})

    def _value(self, ctype: CType, value: Any) -> Any:
        if ctype.kind == "pointer":
            return self._pointer(ctype.item, value)
        return (
            value if ctype.kind == "primitive" or isinstance(value, self.ffi.CData) else self.fields(ctype.cname, value)
        )

    def _pointer(self, item: CType, value: Any) -> Pointer:
        """Return a pointer to values of type `item`."""
        if value is None or isinstance(value, self.ffi.CData):
            return value or self.ffi.NULL
        if item.kind == "primitive" or (item.kind == "struct" and isinstance(value, np.ndarray)):
            return self._array(item, value)
        return self._keep(self.ffi.new(f"{item.cname}[]", [self._value(item, one) for one in value] or 1))

    def _array(self, item: CType, value: Any) -> Pointer:
        key = id(value), item.cname
        source, pointer = self._pointers.get(key, (None, None))
        if source is not None and source() is value:
            return pointer
        array = np.asarray(value)
        array = np.ascontiguousarray(array.view(np.uint8) if array.dtype == np.bool_ else array, self._dtype(item))
        pointer = self.ffi.cast(f"{item.cname} *", self._keep(array).ctypes.data)
        if type(value) is np.ndarray:
            self._pointers[key] = weakref.ref(value), pointer
        return pointer

    def _keep(self, owner: Any) -> Any:
        self._kept.append(owner)
        return owner
