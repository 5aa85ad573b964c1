"""The C that times calls, built once and loaded by each worker."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from morello.build.library import build
from morello.build.toolchain import find_compiler
from morello_baselines.native.base import NotOffered, Prepared
from morello_baselines.native.problems import Problem

_HERE = Path(__file__).parent


class Gemm(ctypes.Structure):
    """A product of row-major matrices in f32, and the function that does it."""

    _fields_ = (
        ("function", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "m", "k", "n")),
        *((name, ctypes.c_void_p) for name in ("a", "b", "c")),
    )


class Primitive(ctypes.Structure):
    """A primitive of oneDNN with its arguments."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("execute", "wait", "primitive", "stream")),
        ("count", ctypes.c_int64),
        ("arguments", ctypes.c_void_p),
    )


class Packed(ctypes.Structure):
    """A function of TVM with its arguments."""

    _fields_ = (("function", ctypes.c_void_p), ("arguments", ctypes.c_void_p), ("count", ctypes.c_int64))


class Work(ctypes.Structure):
    """Orders for a loop of `limits.c`, and a number that keeps it from being left out."""

    _fields_ = (
        ("steps", ctypes.c_int64),
        ("memory", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("result", ctypes.c_double),
    )


@cache
def library(name: str = "loop.c") -> ctypes.CDLL:
    """Return one of the C files next to this one, compiled. Raises ToolchainError."""
    return compiled((_HERE / name).read_text(encoding="utf-8"))


def compiled(source: str, *flags: str) -> ctypes.CDLL:
    """Return C source, compiled and loaded. Raises ToolchainError."""
    return ctypes.CDLL(str(build({"bench.c": source}, ["-march=native", *flags], find_compiler())))


def timer(function: Any, context: ctypes.Structure, wall: bool) -> Callable[[int], float]:
    """Return a function that calls `function(context)` n times from C, and gives the seconds that took."""
    loop = library().bench_time
    loop.restype = ctypes.c_double
    pointer = ctypes.cast(function, ctypes.c_void_p)

    def run(calls: int) -> float:
        return loop(pointer, ctypes.byref(context), ctypes.c_int64(calls), int(wall))

    return run


def product(problem: Problem, inputs: list[np.ndarray], function: int | None, call: Any, wall: bool) -> Prepared:
    """Return a product that `call` of the C does by a function. Raises NotOffered for other problems."""
    if problem.what != "matmul" or not problem.f32:
        raise NotOffered("only products of f32")
    c = problem.output()
    context = Gemm(function, *problem.product, *map(address, (*inputs, c)))
    return Prepared(timer(call, context, wall), lambda: c)


def address(array: np.ndarray) -> int:
    return array.ctypes.data
