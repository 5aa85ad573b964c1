"""Operations: every module of this package that lists `OPERATIONS` adds to the Spec language."""

from __future__ import annotations

import importlib
import pkgutil

from morello.errors import SpecError
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.compose import Arranged, Compose, Piece, Stage, arranged

__all__ = [
    "BY_NAME",
    "Arranged",
    "Compose",
    "Operand",
    "Operation",
    "Piece",
    "Stage",
    "arranged",
    "by_name",
    "operand",
    "origin",
    "register",
]

BY_NAME: dict[str, Operation] = {
    op.name: op
    for module in pkgutil.iter_modules(__path__)
    for op in getattr(importlib.import_module(f"{__name__}.{module.name}"), "OPERATIONS", ())
}


def by_name(name: str) -> Operation:
    """The operation called `name`. Raises SpecError for a name that is none."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise SpecError(f"unknown operation {name!r}", f"operations are {', '.join(sorted(BY_NAME))}") from None


#: Which plugin gave those operations that are not Morello's own.
_ORIGINS: dict[str, str] = {}


def register(op: Operation, plugin: str) -> None:
    """Make an operation of a plugin part of the language; again is no harm. Raises SpecError for a name in use."""
    taken = BY_NAME.get(op.name)
    owner = _ORIGINS.get(op.name)
    if taken is not None and (owner != plugin or taken != op):
        raise SpecError(f"the name {op.name} is taken by an operation of {owner or 'Morello'}", "give it another name")
    BY_NAME[op.name] = op
    _ORIGINS[op.name] = plugin


def origin(name: str) -> str | None:
    """The plugin that an operation comes from, None for Morello's own."""
    return _ORIGINS.get(name)
