"""A hash of everything that the answer to a Spec depends on besides the Spec."""

from __future__ import annotations

import hashlib
from types import CodeType
from typing import Any

from morello.plugins.target import Target

#: Raised whenever costs, rewrites or search change what they answer.
ENGINE_VERSION = 1


def fingerprint(target: Target) -> str:
    """Levels, weights, rewrites, layouts and microkernels of a target, and the engine's version."""
    parts: list[Any] = [ENGINE_VERSION, target.name, target.levels, target.weights, sorted(target.info.casts)]
    parts += [_code(target.info.layouts), [(one.keyword, _methods(one)) for one in target.rewrites]]
    for kernel in target.kernels:
        declared = (
            kernel.name,
            kernel.op,
            kernel.operands,
            kernel.shape,
            kernel.same,
            sorted(kernel.registers.items()),
        )
        parts.append((declared, _code(kernel.cost), _code(kernel.when)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _methods(rewrite: type) -> list[Any]:
    return [_code(getattr(rewrite, name)) for name in ("steps", "cases")]


def _code(function: Any, depth: int = 2) -> Any:
    """What a function does, as far as its code, constants and captured values tell."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType):
        return repr(type(function))
    constants = [_code_object(one) for one in code.co_consts]
    captured = [
        _code(cell.cell_contents, depth - 1) if callable(cell.cell_contents) and depth else repr(cell.cell_contents)
        for cell in getattr(function, "__closure__", None) or ()
    ]
    return code.co_code.hex(), code.co_names, constants, captured


def _code_object(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        return constant.co_code.hex(), constant.co_names, [_code_object(one) for one in constant.co_consts]
    return repr(constant)
