"""Hashes of values by their content: plain data, attrs classes, and functions with the data that they hold.

Classes and functions count by their names, since the sources of their packages are hashed as well.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import threading
import types
import weakref
from collections.abc import Iterable
from enum import Enum
from typing import Any

import attrs
import numpy as np

_BUILTINS = (
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    np.ufunc,
)
_PLAIN = (bool, int, str, complex, type(None), type(...), type(NotImplemented))
#: Objects without rules: caches and locks.
_TOOLS = (
    weakref.ReferenceType,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
    type(threading.Lock()),
    type(threading.RLock()),
)


class ValueHasher:
    """Hashes values, and collects the names of the `modules` of their classes and functions."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        #: Values are kept, so that no other gets the same id.
        self._done: dict[int, tuple[bytes, Any]] = {}
        self._open: dict[int, int] = {}

    def hash(self, value: Any) -> bytes:
        """Return a hash that is the same for equal values in every process. Raises TypeError, RecursionError."""
        if type(value) in _PLAIN:
            return f"{type(value).__name__} {value!r}".encode("utf-8", "backslashreplace")
        if id(value) in self._done:
            return self._done[id(value)][0]
        if id(value) in self._open:
            # A value that contains itself.
            return _digest("outer", str(len(self._open) - self._open[id(value)]))
        self._open[id(value)] = len(self._open)
        try:
            digest = _digest(*self._parts(value))
        finally:
            del self._open[id(value)]
        self._done[id(value)] = digest, value
        return digest

    def _parts(self, value: Any) -> Iterable[str | bytes]:
        kind = type(value)
        if isinstance(value, type):
            return "class", self._named(value), *map(self.hash, _methods_with_data(value))
        if isinstance(value, Enum):
            return "member", self._named(kind), value.name
        if isinstance(value, float | bytes | range | slice | np.dtype):
            return kind.__name__, repr(value)
        if kind in (tuple, list):
            # Rows of tables are hashed as one text, which is several times as fast.
            numbers = all(type(one) is int for one in value)
            return kind.__name__, *([repr([*value])] if numbers else map(self.hash, value))
        if isinstance(value, set | frozenset):
            return "set", *sorted(map(self.hash, value))
        if kind in (dict, types.MappingProxyType):
            return "mapping", *sorted(_digest(self.hash(key), self.hash(one)) for key, one in value.items())
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            whole = self.hash(array.tolist()) if array.dtype.hasobject else array.tobytes()
            return "array", kind.__name__, array.dtype.newbyteorder("=").str, str(array.shape), whole
        if isinstance(value, _TOOLS):
            return "tool", kind.__name__
        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            return "module", value.__name__
        if isinstance(value, types.MethodType):
            return "method", self._named(value.__func__), *map(self.hash, (value.__func__, value.__self__))
        if isinstance(value, types.FunctionType):
            cells = [_content(cell) for cell in value.__closure__ or ()]
            held = [cells, value.__defaults__, value.__kwdefaults__, vars(value)]
            return "function", self._named(value), self.hash(held)
        if isinstance(value, _BUILTINS):
            owner = getattr(value, "__self__", None)
            return "builtin", self._named(value), self.hash(None if isinstance(owner, types.ModuleType) else owner)
        fields = _fields(value)
        return "object", self.hash(kind), *itertools.chain(*((name, self.hash(one)) for name, one in fields))

    def _named(self, value: Any) -> str:
        """Return the module and name of a class or function, and note the module."""
        module = module_of(value)
        self.modules.add(module)
        return f"{module}.{getattr(value, '__qualname__', getattr(value, '__name__', ''))}"


def module_of(value: Any) -> str:
    """Return the module that a class, function or object is of; `<name>` for code without a file."""
    while isinstance(value, functools.partial | types.MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__
    if isinstance(value, types.FunctionType):
        # Decorators give functions the names of others.
        place = value.__code__.co_filename
        return place if place.startswith("<") and not place.startswith("<attrs") else value.__globals__["__name__"]
    return getattr(value, "__module__", None) or "builtins"


def _methods_with_data(value: type) -> list[types.FunctionType]:
    """Return the methods of a class that was made inside a function, where they may hold its variables."""
    if "<locals>" not in value.__qualname__:
        return []
    members = [getattr(one, "fget", None) or getattr(one, "__func__", one) for _, one in sorted(vars(value).items())]
    functions = [one for one in members if isinstance(one, types.FunctionType) and one.__closure__]
    return [one for one in functions if not one.__code__.co_filename.startswith("<")]


def _fields(value: Any) -> list[tuple[str, Any]]:
    """Return the names and data of an object. Raises TypeError for one without fields."""
    kind = type(value)
    if isinstance(value, functools.partial):
        return [("func", value.func), ("args", value.args), ("keywords", value.keywords)]
    if attrs.has(kind):
        names = [field.name for field in attrs.fields(kind)]
    elif dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
    else:
        slots = [name for one in kind.__mro__ for name in (*vars(one).get("__slots__", ()),)]
        if not slots and not hasattr(value, "__dict__"):
            raise TypeError(
                f"answers depend on an object of {kind.__module__}.{kind.__qualname__}, which has no fields"
            )
        own = [name for name in getattr(value, "__dict__", ()) if not _is_cached(kind, name)]
        names = sorted({*own, *slots} - {"__dict__", "__weakref__"})
    return [(name, getattr(value, name, NotImplemented)) for name in names]


def _is_cached(kind: type, name: str) -> bool:
    """Return True for an attribute that its class computes once."""
    return any(isinstance(vars(one).get(name), functools.cached_property) for one in kind.__mro__)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NotImplemented


def _digest(*parts: str | bytes) -> bytes:
    data = [part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace") for part in parts]
    return hashlib.sha256(b"".join([b"%d %b" % (len(one), one) for one in data])).digest()
