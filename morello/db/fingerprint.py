"""The fingerprint of a target: a hash of everything on which the answer to a Spec depends."""

from __future__ import annotations

import hashlib
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from weakref import WeakKeyDictionary

from morello.db.file import FORMAT
from morello.db.sources import core, package_of, package_root, package_sources
from morello.db.values import ValueHasher, module_of
from morello.errors import PluginError
from morello.kernels.target import Target

#: Packages whose sources do not count: Python's own, and those that the core builds on.
_GIVEN = (sys.stdlib_module_names - {"__main__"}) | {"attr", "attrs", "ml_dtypes", "morello", "numpy"}
#: Where versioned distributions are installed.
_INSTALLED = ("site-packages", "dist-packages")

_known: WeakKeyDictionary[Target, tuple[str, Mapping[str, str]]] = WeakKeyDictionary()
#: Python 3.11 raises SystemError for sources that two threads parse at once.
_lock = threading.Lock()


def fingerprint(target: Target) -> str:
    """Return the hash of a target's data, of the sources of Morello and of the target's plugins, and of the format.

    Raises PluginError for a target that holds an object whose content cannot be read.
    """
    return _known_of(target)[0]


def fingerprint_parts(target: Target) -> Mapping[str, str]:
    """Return the hashes that the fingerprint of a target consists of, by names. Raises what `fingerprint` raises."""
    return _known_of(target)[1]


def _known_of(target: Target) -> tuple[str, Mapping[str, str]]:
    with _lock:
        if target not in _known:
            parts = _parts(target)
            _known[target] = _digest(f"{name} {one}" for name, one in parts.items()), parts
        return _known[target]


def _parts(target: Target) -> Mapping[str, str]:
    rules, hasher = list[str](), ValueHasher()
    for label, value in _rules(target):
        try:
            rules += [label, hasher.hash(value).hex()]
        except (TypeError, RecursionError) as error:
            what = "it holds objects nested too deeply" if isinstance(error, RecursionError) else str(error)
            hint = "let it hold plain data: numbers, texts, arrays, tuples, lists, dicts, or attrs classes"
            raise PluginError(f"target {target.name}, {label}: {what}", hint) from error
    packages = _packages(hasher.modules | {module_of(one) for one in _printers(target)})
    return {"format": str(FORMAT), "morello": core(), f"costs of {target.name}": _digest(rules), **packages}


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _rules(target: Target) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a target on which answers depend, in the order that breaks ties. Emitted C has no part."""
    yield f"name {target.name}", type(target)
    yield "levels", target.levels
    yield "weights", target.weights
    yield "tables", target.tables
    yield "kernel costs", target.kernel_costs
    yield "casts", target.info.casts
    yield "layouts", (target.info.layouts, target.info.offers)
    for name, dtype in target.dtypes.items():
        yield f"data type {name}", dtype.numpy.name
    for name, op in target.operations.items():
        yield f"operation {name}", op
    whole = target.whole or target
    if target.excluded:
        yield "excluded", target.excluded
    for rewrite in whole.rewrites:
        yield f"rewrite {rewrite.keyword}", rewrite
    for one in whole.kernels:
        # Registers may follow from the text of a template.
        text = one.template if one.registers is None and isinstance(one.template, str) else None
        takes = (one.op, one.operands, one.shape, one.same, one.when)
        yield f"microkernel {one.name}", (type(one), takes, text, one.registers, one.offered_sizes, one.call_cost)


def _printers(target: Target) -> Iterator[Any]:
    """Yield what prints C, as its package may hold rules, too."""
    yield target.emitter
    for one in target.kernels:
        yield from (one.emit, one.template)


def _packages(modules: set[str]) -> dict[str, str]:
    """Return a hash of the sources, or the version, of the packages of modules, and of those that they import."""
    found: dict[str, str] = {}
    imports: set[str] = set()
    for module in modules:
        name = None if module.partition(".")[0] in _GIVEN else package_of(module)
        if name is None and module.partition(".")[0] not in _GIVEN:
            # A prompt or a notebook: the sources are not known, so no other process may use the answers.
            found[module] = uuid.uuid4().hex
        elif name is not None and name not in found:
            sources = package_sources(name)
            found[name] = sources.hash
            imports |= sources.imports
    while imports:
        module = imports.pop()
        name = None if module.partition(".")[0] in _GIVEN else package_of(module)
        if name is not None and name not in found:
            found[name] = _release(name) or ""
            if not found[name]:
                sources = package_sources(name)
                found[name] = sources.hash
                imports |= sources.imports
    return dict(sorted(found.items()))


def _release(package: str) -> str | None:
    """Return the version of a package that was installed, None for one that is used in its source tree."""
    if not any(folder in str(package_root(package)) for folder in _INSTALLED):
        return None
    try:
        return f"version {version(package.partition('.')[0])}"
    except PackageNotFoundError:
        return None
