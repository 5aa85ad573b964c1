"""Hashes of values by what is in them: data, functions with all that they hold, classes, and objects of any kind."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Any

import attrs
import numpy as np

from morello.db.sources import package, package_of
from morello.errors import PluginError

#: Packages that count by the names of what is used of them: what comes with Python, and what Morello is built on.
_GIVEN = (sys.stdlib_module_names - {"__main__"}) | {"attr", "attrs", "ml_dtypes", "numpy"}
#: Modules whose objects are data; what modules hold of others are tools, such as loggers.
_DATA = {"array", "builtins", "collections", "decimal", "fractions", "functools", "numpy", "operator"}


class Home(Enum):
    """A module's way to count.

    One of Morello counts with all of Morello's sources, one of a library with its name or version, a plugin's own with
    the sources of its package. Functions of a module that has lost its sources count with their bytecode.
    """

    CORE = auto()
    LIBRARY = auto()
    OWN = auto()
    LOST = auto()


class Values:
    """Hashes values. Equal ones have the same hash in every process, and in every version of Python.

    Functions and classes are known by their place in the sources; `packages` collects what packages these are of, and
    a hash of each, or its version. `own` are packages that count with their sources also where they have a version.
    """

    def __init__(self, own: Iterable[str] = ()):
        self.packages = {name: package(name) for name in sorted(own)}
        self._own = set(self.packages)
        self._homes: dict[str, Home] = {}
        self._done: dict[int, tuple[bytes, Any]] = {}
        self._open: dict[int, int] = {}

    def of(self, value: Any) -> bytes:
        """Return the hash of a value. Raises PluginError for one whose content cannot be told."""
        kind = type(value)
        if value is None or value is ... or value is NotImplemented or kind in (bool, int, str, complex):
            return _plain(kind.__name__, repr(value))
        if kind in (bytes, bytearray):
            return _mix("bytes", bytes(value))
        if kind is float:
            return _mix("float", value.hex())
        known = self._done.get(id(value))
        if known is not None:
            return known[0]
        if id(value) in self._open:
            # A value that is part of itself: how far up it is met again says which one it is.
            return _mix("again", str(len(self._open) - self._open[id(value)]))
        self._open[id(value)] = len(self._open)
        try:
            digest = _mix(*self._parts(value))
        finally:
            del self._open[id(value)]
        # Kept with the value, so that no other one gets its id meanwhile.
        self._done[id(value)] = digest, value
        return digest

    def _parts(self, value: Any) -> Iterator[str | bytes]:
        kind = type(value)
        if kind in _BY_TYPE:
            return _BY_TYPE[kind](self, value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, Enum):
            return iter(("member", self.of(kind), value.name))
        if isinstance(value, np.ndarray | np.generic):
            return self._array(value)
        if isinstance(value, functools.partial):
            return iter(("partial", *map(self.of, (value.func, value.args, value.keywords))))
        if attrs.has(kind):
            return self._fields(value, [field.name for field in attrs.fields(kind)])
        if dataclasses.is_dataclass(kind):
            return self._fields(value, [field.name for field in dataclasses.fields(kind)])
        if hasattr(value, "__wrapped__") and kind.__module__ == "functools":
            return iter(("cached", self.of(value.__wrapped__)))
        return self._object(value)

    def _sequence(self, value: Any) -> Iterator[str | bytes]:
        yield type(value).__name__
        if all(type(one) is int for one in value):
            # Rows of tables: hashed one by one, they would take most of the time of all values.
            yield repr([*value])
        else:
            yield from map(self.of, value)

    def _set(self, value: Any) -> Iterator[str | bytes]:
        yield "set"
        yield from sorted(map(self.of, value))

    def _mapping(self, value: Any) -> Iterator[str | bytes]:
        yield "mapping"
        yield from sorted(self.of(key) + self.of(one) for key, one in value.items())

    def _span(self, value: Any) -> Iterator[str | bytes]:
        yield type(value).__name__
        yield from map(self.of, (value.start, value.stop, value.step))

    def _array(self, value: Any) -> Iterator[str | bytes]:
        array = np.asarray(value)
        yield from ("array", type(value).__name__, str(array.dtype), str(array.shape))
        if array.dtype.hasobject:
            yield self.of(array.tolist())
        else:
            yield array.astype(array.dtype.newbyteorder("<")).tobytes()

    def _fields(self, value: Any, names: list[str]) -> Iterator[str | bytes]:
        yield "fields"
        yield self.of(type(value))
        for name in names:
            # Fields that are set later may be missing.
            yield self.of(getattr(value, name, NotImplemented))

    def _object(self, value: Any) -> Iterator[str | bytes]:
        """Yield any other object, by what a copy of it would be made of."""
        try:
            parts = value.__reduce_ex__(4)
        except Exception as error:
            raise _unknown(value) from error
        yield "object"
        yield self.of(type(value))
        for part in parts if isinstance(parts, tuple) else (parts,):
            yield self.of(_state(part, type(value)) if part is not None else None)

    def _module(self, value: types.ModuleType) -> Iterator[str | bytes]:
        self._home(value.__name__)
        return iter(("module", value.__name__))

    def _tool(self, value: Any) -> Iterator[str | bytes]:
        """Return nothing for what holds no rule: weak references are for caches, locks for taking turns."""
        return iter(("tool", type(value).__name__))

    def _builtin(self, value: Any) -> Iterator[str | bytes]:
        """Yield a function that is written in C: its name, and what it is a method of."""
        owner, module = getattr(value, "__self__", None), getattr(value, "__module__", None) or ""
        self._home(module)
        yield from ("builtin", module, getattr(value, "__qualname__", value.__name__))
        yield from map(self.of, (None if isinstance(owner, types.ModuleType) else owner, _of_class(value)))

    def _method(self, value: types.MethodType) -> Iterator[str | bytes]:
        return iter(("method", self.of(value.__func__), self.of(value.__self__)))

    def _descriptor(self, value: Any) -> Iterator[str | bytes]:
        yield type(value).__name__
        yield from (self.of(getattr(value, name, None)) for name in ("fget", "fset", "fdel", "func", "__func__"))

    def _function(self, value: types.FunctionType) -> Iterator[str | bytes]:
        # Decorators give functions the names of others: these are its own.
        code, module = value.__code__, value.__globals__.get("__name__", "")
        home = self._home(module)
        yield from ("function", module, code.co_qualname)
        if home is Home.LOST or (home is Home.OWN and code.co_filename != _file(module)):
            yield self.of(_code(code))
        elif module.partition(".")[0] not in _GIVEN:
            yield self.of(_place(code))
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        yield self.of({name: _held(cell) for name, cell in cells})
        yield from map(self.of, (value.__defaults__, value.__kwdefaults__, vars(value)))
        if home in (Home.OWN, Home.LOST):
            names = [name for name in _used(code) if name in value.__globals__]
            yield self.of({name: self._global(value.__globals__[name]) for name in names})

    def _global(self, value: Any) -> Any:
        """Return what counts of a value that a module holds: all of it, if it is data, a function or a class."""
        kind = type(value)
        counts = isinstance(value, type) or kind.__module__ in _DATA or self._home(kind.__module__) is not Home.LIBRARY
        return value if counts else NotImplemented

    def _class(self, value: type) -> Iterator[str | bytes]:
        yield from ("class", value.__module__, value.__qualname__)
        if self._home(value.__module__) in (Home.CORE, Home.LIBRARY):
            return
        yield from map(self.of, value.__bases__)
        if issubclass(value, Enum):
            yield self.of([(one.name, one.value) for one in value])
        for name, one in sorted(vars(value).items()):
            # What classes of the library keep of themselves differs between versions of Python.
            own = _is_written(one) if _is_dunder(name) or issubclass(value, Enum) else not isinstance(one, _SLOTS)
            if own and name != "_abc_impl":
                yield from (name, self.of(one))

    def _home(self, module: str | None) -> Home:
        """Return how a module counts, and note its package."""
        name = module or ""
        if name not in self._homes:
            self._homes[name] = self._noted(name)
        return self._homes[name]

    def _noted(self, module: str) -> Home:
        top = module.partition(".")[0]
        if top == "morello":
            return Home.CORE
        if top in _GIVEN:
            return Home.LIBRARY
        name = package_of(module)
        if name is None:
            return Home.LOST
        version = None if name in self._own else getattr(sys.modules.get(top), "__version__", None)
        if name not in self.packages:
            self.packages[name] = f"version {version}" if version else package(name)
        return Home.LIBRARY if version else Home.OWN


_Parts = Callable[[Values, Any], Iterator[str | bytes]]
_TOOLS = (
    weakref.ReferenceType,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
    type(threading.Lock()),
    type(threading.RLock()),
)
_BUILTINS = (
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    np.ufunc,
)
_BY_TYPE: dict[type, _Parts] = {
    **dict.fromkeys((tuple, list), Values._sequence),
    **dict.fromkeys((set, frozenset), Values._set),
    **dict.fromkeys((dict, types.MappingProxyType), Values._mapping),
    **dict.fromkeys((range, slice), Values._span),
    **dict.fromkeys(_TOOLS, Values._tool),
    **dict.fromkeys(_BUILTINS, Values._builtin),
    **dict.fromkeys((property, staticmethod, classmethod, functools.cached_property), Values._descriptor),
    types.ModuleType: Values._module,
    types.MethodType: Values._method,
    types.FunctionType: Values._function,
}
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)


@functools.lru_cache(1 << 14)
def _plain(kind: str, text: str) -> bytes:
    # Kept, as most that targets are made of are a few numbers and names, again and again.
    return _mix(kind, text)


def _mix(*parts: str | bytes) -> bytes:
    data = [part if isinstance(part, bytes) else part.encode("utf-8", "backslashreplace") for part in parts]
    return hashlib.sha256(b"".join([b"%d %b" % (len(one), one) for one in data])).digest()


def _unknown(value: Any) -> PluginError:
    kind = type(value)
    return PluginError(
        f"answers depend on an object of {kind.__module__}.{kind.__qualname__}, whose content cannot be told",
        "let functions of targets hold plain data: numbers, texts, arrays, tuples, lists, dicts, or attrs classes",
    )


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_written(value: Any) -> bool:
    """Return True for an attribute of a class that is a method written by its author: others follow from the fields."""
    function = getattr(value, "__func__", value)
    if not isinstance(function, types.FunctionType):
        return False
    home = function.__globals__.get("__name__", "").partition(".")[0]
    return home not in _GIVEN and not function.__code__.co_filename.startswith(("<attrs", "<string>"))


def _of_class(value: Any) -> Any:
    return getattr(value, "__objclass__", None)


def _state(part: Any, kind: type) -> Any:
    """Return a part of what makes a copy, without what the class works out once and keeps."""
    if isinstance(part, Iterator):
        return list(part)
    if isinstance(part, tuple):
        return tuple(_state(one, kind) if isinstance(one, dict) else one for one in part)
    if not isinstance(part, dict):
        return part
    kept = {
        name for one in kind.__mro__ for name, own in vars(one).items() if isinstance(own, functools.cached_property)
    }
    return {name: one for name, one in part.items() if name not in kept}


def _file(module: str) -> str | None:
    return getattr(sys.modules.get(module), "__file__", None)


def _held(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return NotImplemented


def _used(code: types.CodeType) -> list[str]:
    """Return the names that a function, or one inside it, may find in its module."""
    inner = [name for one in code.co_consts if isinstance(one, types.CodeType) for name in _used(one)]
    return sorted({*inner, *(name for name in code.co_names if not _is_dunder(name))})


def _place(code: types.CodeType) -> Any:
    """Return the place of a function in its file. Only lambdas can share their name with another one in a line."""
    if code.co_name != "<lambda>":
        return code.co_firstlineno
    places = [(line, column) for line, _, column, end in code.co_positions() if line and column is not None and end]
    return min(places) if places else _code(code)


def _code(code: types.CodeType) -> tuple[Any, ...]:
    """Return what a function does, in the words of this version of Python."""
    inner = [_code(one) if isinstance(one, types.CodeType) else one for one in code.co_consts]
    return code.co_code, code.co_names, code.co_varnames, inner
