"""Operations: each module of this package with a list `OPERATIONS` adds them to the Spec language."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from morello.errors import SpecError
from morello.ir.ops.base import Operand, Operation, operand
from morello.ir.ops.compose import Arranged, Compose, ComposeStage, Piece, arranged

__all__ = [
    "BY_NAME",
    "Arranged",
    "Compose",
    "ComposeStage",
    "Operand",
    "Operation",
    "Piece",
    "arranged",
    "by_name",
    "operand",
]

#: Morello's own operations. Those of plugins are in `Registry.operations` and `Target.operations`.
BY_NAME: Mapping[str, Operation] = MappingProxyType(
    {
        op.name: op
        for module in pkgutil.iter_modules(__path__)
        for op in getattr(importlib.import_module(f"{__name__}.{module.name}"), "OPERATIONS", ())
    }
)


def by_name(name: str) -> Operation:
    """Return Morello's own operation called `name`. Raises SpecError for an unknown name."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise SpecError(f"unknown operation {name!r}", f"operations are {', '.join(sorted(BY_NAME))}") from None
