"""A hash of everything that the answer to a Spec depends on besides the Spec."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from types import MethodType
from typing import Any
from weakref import WeakKeyDictionary

from morello.db.file import FORMAT
from morello.db.sources import core, package_of
from morello.db.values import Values
from morello.errors import PluginError
from morello.kernels.target import Target

_known: WeakKeyDictionary[Target, str] = WeakKeyDictionary()


def fingerprint(target: Target) -> str:
    """Return the hash of a target by value, of the sources of Morello and of its plugins, and of the format.

    Raises PluginError for a target that holds what has no value.
    """
    if target not in _known:
        _known[target] = _fingerprint(target)
    return _known[target]


def _fingerprint(target: Target) -> str:
    packages = {package_of(module) for module in {_module(one) for one in _contributed(target)}}
    values = Values(name for name in packages if name and name != "morello")
    parts = [str(FORMAT), core()]
    for label, value in _rules(target):
        try:
            parts += [label, values.of(value).hex()]
        except PluginError as error:
            raise PluginError(f"target {target.name}, {label}: {error.message}", error.hint) from error
        except RecursionError as error:
            what = f"target {target.name}, {label}: what it holds is nested too deeply to tell it from others"
            raise PluginError(what, "hold tables in arrays, lists or dicts") from error
    parts += [f"{name} {found}" for name, found in sorted(values.packages.items())]
    return hashlib.sha256("\n".join(parts).encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _rules(target: Target) -> Iterator[tuple[str, Any]]:
    """Return what answers depend on of a target, in the order in which ties are broken. Costs count, C does not."""
    yield f"name {target.name}", type(target)
    yield "levels", target.levels
    yield "weights", target.weights
    yield "tables", target.tables
    yield "casts", target.info.casts
    yield "layouts", (target.info.layouts, target.info.offers)
    for name, op in target.operations.items():
        yield f"operation {name}", op
    for rewrite in target.rewrites:
        yield f"rewrite {rewrite.keyword}", rewrite
    for one in target.kernels:
        rule = (type(one), one.op, one.operands, one.shape, one.same, one.registers, one.tile_sizes, one.cost, one.when)
        yield f"microkernel {one.name}", rule


def _contributed(target: Target) -> Iterator[Any]:
    """Return what plugins contributed that has sources."""
    yield from (target.emitter, target.info.layouts, target.info.offers, *target.rewrites, *target.operations.values())
    for one in target.kernels:
        yield from (type(one), one.op, *one.cost_parts, one.emit, one.template, one.when, *one.registers.values())


def _module(value: Any) -> str:
    while isinstance(value, partial | MethodType):
        value = value.func if isinstance(value, partial) else value.__func__
    return getattr(value, "__module__", None) or ""
