"""Fast calls: C code compares arrays with those of a checked call, and calls the kernel if they are alike.

Checking arrays in Python takes ten times as long as many kernels. Arrays with the types, shapes and strides of checked
ones need only a check of their addresses and of write permission.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.errors import ToolchainError
from morello.ir.program import Program
from morello.run.arguments import Argument
from morello.run.arrays import Blank
from morello.run.dlpack import exchange_of, type_code

_SOURCE = Path(__file__).with_name("fastcall.c")
_HEADER = """\
#define OPERANDS {operands}
#define NUMBERS {numbers}
typedef {returns} FUNCTION({types});
#define ARGUMENTS {arguments}
"""
#: The most dimensions of an array in numpy and in `fastcall.c`.
_RANK = 64
_METH_O, _METH_FASTCALL = 0x08, 0x80
#: Functions and objects of `struct python` in `fastcall.c`, in its order.
_FUNCTIONS = (
    *("PyObject_Type", "PyObject_GetAttr", "PyCapsule_GetPointer", "PyLong_AsVoidPtr", "PyLong_FromVoidPtr"),
    *("Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyObject_CallObject", "PyTuple_New", "PyTuple_SetItem"),
    *("PyEval_SaveThread", "PyEval_RestoreThread"),
)
_OBJECTS = ("__array_struct__", "dtype", "requires_grad", True, False)


class _Python(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in _FUNCTIONS),
        *((str(value), ctypes.py_object) for value in _OBJECTS),
    )


class _Operand(ctypes.Structure):
    _fields_ = (
        *(("type", ctypes.py_object), ("dtype", ctypes.py_object), ("exchange", ctypes.c_void_p)),
        *((name, ctypes.c_ssize_t) for name in ("code", "bits", "gradients", "rank")),
        *((name, ctypes.c_ssize_t * _RANK) for name in ("shape", "strides")),
        *((name, ctypes.c_ssize_t) for name in ("low", "high", "alignment", "writes")),
    )


class _Method(ctypes.Structure):
    """PyMethodDef."""

    _fields_ = (
        *(("name", ctypes.c_char_p), ("function", ctypes.c_void_p)),
        *(("flags", ctypes.c_int), ("documentation", ctypes.c_char_p)),
    )


_PYTHON = _Python(*(ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _FUNCTIONS), *_OBJECTS)
_new_function = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)(
    ("PyCFunction_NewEx", ctypes.pythonapi)
)


@attrs.frozen
class FastCall:
    """A kernel's call on arrays like checked ones.

    `call` takes one array per operand but those that it makes, which it returns: one, or a tuple of several. It returns
    True if it makes none. It returns False and does nothing if arrays differ, are not aligned or writeable, or if an
    output may overlap another operand.
    """

    call: Callable[..., Any]
    _data: tuple[Any, ...]  # what `call` points to


class FastCaller:
    """Makes fast calls of functions that have the same parameters."""

    def __init__(self, library: Path, operands: int, numbers: int):
        self._library = ctypes.PyDLL(str(library))
        ctypes.c_void_p.in_dll(self._library, "morello_python").value = ctypes.addressof(_PYTHON)
        functions = (("morello_fastcall", _METH_FASTCALL), ("morello_address", _METH_O))
        self._call, self._address = (
            _Method(name.encode(), ctypes.cast(getattr(self._library, name), ctypes.c_void_p), flags, None)
            for name, flags in functions
        )

        class Plan(ctypes.Structure):
            _fields_ = (
                *(("kernel", ctypes.c_void_p), ("made", ctypes.c_ssize_t)),
                *((name, ctypes.py_object * operands) for name in ("allocate", "arguments")),
                *(("is_short", ctypes.c_ssize_t),),
                *(("numbers", ctypes.c_ssize_t * (numbers + 1)), ("operands", _Operand * operands)),
            )

        self._plan = Plan

    def fast_call(
        self,
        kernel: int,
        arguments: Sequence[Argument],
        arrays: Sequence[Any],
        views: Sequence[np.ndarray],
        numbers: Sequence[int],
        blanks: Sequence[Blank] = (),
    ) -> FastCall | None:
        """Return the fast call of the function at address `kernel` on arrays like these checked ones.

        `views` are the arrays in numpy, of the same ranks; `numbers` are the function's other parameters, in order.
        `blanks` make the last arrays. Returns None if the arrays' library has no fast exchange.
        """
        operands = [_operand(*each) for each in zip(arguments, arrays, views, strict=True)]
        if None in operands:
            return None
        address = _new_function(ctypes.addressof(self._address), 0, None)
        functions = [one.allocator(address) for one in blanks]
        allocate, given = tuple(one for one, _ in functions), tuple(given for _, given in functions)
        plan = self._plan(kernel, len(blanks), allocate, given, 0, tuple(numbers), tuple(operands))
        call = _new_function(ctypes.addressof(self._call), ctypes.addressof(plan), None)
        return FastCall(call, (plan, self._call, self._address))


def caller_of(program: Program, compiler: Compiler) -> FastCaller:
    """Return the maker of fast calls of a program's function. Raises ToolchainError."""
    words, operands = call_words(program, "data", "plan->numbers"), len(program.parameters)
    count = len(words) - operands
    header = _HEADER.format(
        operands=operands,
        numbers=count,
        returns="void" if program.size is None else "int",
        types=", ".join(kind for kind, _ in words),
        arguments=", ".join(f"({kind}){word}" for kind, word in words),
    )
    return _built(header, compiler, operands, count)


def call_words(program: Program, pointers: str, numbers: str) -> list[tuple[str, str]]:
    """Return the type of each parameter of a program's function in C, and the expression of its argument.

    Expressions index two C arrays: `pointers` to operands, and the `numbers` of `NativeFunction.numbers`.
    """
    words, places = list[tuple[str, str]](), itertools.count()
    for place, parameter in enumerate(program.parameters):
        pointer = f"{'' if parameter.writes else 'const '}{parameter.tensor.state.dtype.c_name} *"
        words.append((pointer, f"{pointers}[{place}]"))
        words += [("ptrdiff_t", f"{numbers}[{next(places)}]") for _ in range(parameter.strides)]
    if program.workspace_for(1):
        words.append(("void *", f"{numbers}[{next(places)}]"))
    if program.parallel:
        words.append(("int", f"{numbers}[{next(places)}]"))
    if program.size is not None:
        words.append(("int64_t", f"{numbers}[{next(places)}]"))
    return words


def _operand(argument: Argument, array: Any, view: np.ndarray) -> _Operand | None:
    """Return the description of an array for `fastcall.c`, None if its library has no fast exchange."""
    spans = [(size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True)]
    like = _Operand(
        type=type(array),
        rank=view.ndim,
        shape=view.shape,
        strides=view.strides,
        low=sum(min(0, span) for span in spans),
        high=sum(max(0, span) for span in spans) + view.itemsize,
        alignment=argument.alignment,
        writes=argument.writes,
    )
    if isinstance(array, np.ndarray):
        like.dtype = array.dtype
        return like
    like.exchange = exchange_of(type(array))
    like.code, like.bits = type_code(view.dtype)
    like.gradients = hasattr(array, "requires_grad")
    like.strides = tuple(stride // view.itemsize for stride in view.strides)
    return like if like.exchange and view.ndim <= _RANK else None


@cache
def _built(header: str, compiler: Compiler, operands: int, numbers: int) -> FastCaller:
    library = build({"fastcall.c": _SOURCE.read_text(encoding="utf-8"), "function.h": header}, (), compiler)
    with loading(library):
        return FastCaller(library, operands, numbers)


@contextmanager
def loading(library: Path) -> Iterator[None]:
    """Report errors inside as those of loading a library. Raises ToolchainError."""
    try:
        yield
    except (OSError, AttributeError, ValueError) as error:
        raise ToolchainError(
            f"{library} cannot be loaded: {error}", "delete the file; it is built again on the next call"
        ) from error
