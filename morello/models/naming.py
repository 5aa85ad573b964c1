"""The name of a model in C."""

from __future__ import annotations

import re

from morello.codegen.reserved import HEADERS, check_name, fault, spelled
from morello.errors import EmitError

#: The longest name: those of kernels begin with it.
_LONGEST = 40


def c_name(text: str) -> str:
    """Return a name in C for a model of any name, such as that of a file."""
    name = re.sub(r"\W+", "_", spelled(text), flags=re.ASCII).strip("_").lower()[:_LONGEST]
    return name if name and not _fault(name) else f"model_{name}".rstrip("_")


def check_model_name(name: str) -> None:
    """Raise EmitError for a name that C code and its files cannot have."""
    check_name(name)
    if reason := _fault(name):
        raise EmitError(f"{name[:_LONGEST]!r} cannot name a model: it {reason}", "choose another one with --name")


def _fault(name: str) -> str:
    if name in HEADERS:
        return f"is a header of the C library, {name}.h"
    if len(name) > _LONGEST:
        return f"is longer than {_LONGEST} letters"
    refused = fault(name)
    return refused[0] if refused else ""
