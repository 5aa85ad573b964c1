"""A hash of everything that the answer to a Spec depends on besides the Spec."""

from __future__ import annotations

import hashlib
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from morello.db.file import FORMAT
from morello.plugins.target import Target

#: Raised whenever costs, rewrites or search change what they answer.
ENGINE_VERSION = 1


_known: WeakKeyDictionary[Target, str] = WeakKeyDictionary()


def fingerprint(target: Target) -> str:
    """Levels, weights, rewrites, layouts and microkernels of a target, the engine's version and the file's format."""
    if target not in _known:
        _known[target] = _fingerprint(target)
    return _known[target]


def _fingerprint(target: Target) -> str:
    parts: list[Any] = [FORMAT, ENGINE_VERSION, target.name, target.levels, target.weights, sorted(target.info.casts)]
    parts += [_code(target.info.layouts), [(one.keyword, _methods(one)) for one in target.rewrites]]
    for kernel in target.kernels:
        declared = (
            kernel.name,
            kernel.op_name,
            kernel.operands,
            kernel.shape,
            kernel.same,
            sorted(kernel.registers.items()),
        )
        parts.append((declared, _code(kernel.cost), _code(kernel.when)))
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _methods(rewrite: type) -> list[Any]:
    return [_code(getattr(rewrite, name)) for name in ("steps", "cases")]


def _code(function: Any, depth: int = 4) -> Any:
    """What a function does: its code and constants, and, to some depth, what it captures and calls by name."""
    if isinstance(function, partial):
        return _code(function.func, depth), repr(function.args), repr(sorted(function.keywords.items()))
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType) or not depth:
        return repr(type(function))
    captured = [cell.cell_contents for cell in function.__closure__ or ()]
    named = [function.__globals__[name] for name in _names(code) if name in function.__globals__]
    return _code_object(code), [_value(one, depth - 1) for one in (*captured, *named, *(function.__defaults__ or ()))]


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, FunctionType | MethodType | partial):
        return _code(value, depth)
    if isinstance(value, tuple):
        return [_value(one, depth) for one in value]
    return repr(value) if isinstance(value, int | float | str | None) else repr(type(value))


def _names(code: CodeType) -> list[str]:
    """The global names that a function uses, those of functions inside it included."""
    inner = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return sorted({*code.co_names, *inner})


def _code_object(constant: Any) -> Any:
    if isinstance(constant, CodeType):
        return constant.co_code.hex(), constant.co_names, [_code_object(one) for one in constant.co_consts]
    return repr(constant)
