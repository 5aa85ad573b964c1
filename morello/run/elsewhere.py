"""The C function of a program that a runner runs in a process of its own."""

from __future__ import annotations

import ctypes
import os
import struct
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NoReturn

import attrs
import numpy as np

from morello.build.library import build
from morello.build.toolchain import PTHREAD, Compiler, is_foreign, static_flags
from morello.codegen.interface import COMMON_FLAGS
from morello.errors import ToolchainError, VerificationError
from morello.ir.impl import Impl
from morello.ir.program import Program
from morello.kernels.target import Target
from morello.run.counting import counting, counting_plugin
from morello.run.function import NativeFunction
from morello.run.loop import CLOCK, loop_prototype, loop_source
from morello.run.runner import ProgramEnded, Runner, Session, find_runner, no_runner

_MAIN = Path(__file__).with_name("runner.c")
_HEADER = """\
#include <stddef.h>
#include <stdint.h>

enum {{ OPERANDS = {operands}, NUMBERS = {numbers} }};
typedef {loop};
typedef struct {{ void *function; morello_loop *loop; }} morello_program;
extern const morello_program morello_programs[];
"""
#: Empty functions do not use their parameters, and programs may be compiled with warnings as errors.
_LOOSE = '#pragma GCC diagnostic ignored "-Wunused-parameter"\n#include "programs.h"\n'
#: The head of an answer: CPU seconds, wall seconds, instructions.
_MEASURED = struct.Struct("=3d")
#: Processes that wait for calls.
_SESSIONS = 4
#: Bytes of a page: arrays of a call have the same addresses modulo these as those in this process.
_PAGE = 4096


@attrs.frozen
class Window:
    """Bytes of an operand: `data`, at `shift` bytes past a multiple of `alignment`; the array begins at `start`."""

    data: bytes
    alignment: int
    shift: int
    start: int
    returns: bool

    @property
    def head(self) -> bytes:
        return struct.pack("=5q", len(self.data), self.alignment, self.shift, self.start, self.returns)


class RunnerFunction(NativeFunction):
    """The C function of a program, called through a runner. Without one, calls raise ToolchainError."""

    def __init__(
        self,
        impl: Impl,
        target: Target,
        program: Program,
        compiler: Compiler | str | None = None,
        runner: Runner | None = None,
    ):
        super().__init__(impl, target, program, compiler)
        self.runner = runner
        self.is_elsewhere = is_foreign(target.info) or bool(runner and (runner.emulator or runner.is_remote))

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags: the target's, and those for threads if there are parallel loops."""
        return (*self.program.flags, *((PTHREAD,) if self.program.parallel else ()))

    @cached_property
    def library(self) -> Path:
        """Return the executable. Raises ToolchainError."""
        return build_program(self.files, [self.program], self.flags, self.compiler)

    def __call__(self, arrays: Sequence[np.ndarray], threads: int = 1, around: int = 0) -> None:
        """Call it on copies of fitting arrays, and copy outputs back. They are not checked.

        With `around`, copies include so many bytes on both sides of each array, and all of them are copied back.
        Raises ToolchainError if the program cannot be started, and VerificationError if it ends during the call.
        """
        windows = [
            _window(array, around, argument.writes or around > 0)
            for argument, array in zip(self.arguments, arrays, strict=True)
        ]
        session = _session(self._required(), self.library, os.getpid())
        answers = iter(self._called(windows, self.strides(arrays), threads, session)[1:])
        for array, window in zip(arrays, windows, strict=True):
            if around:
                ctypes.memmove(_span(array)[0] - around, next(answers), len(window.data))
            elif window.returns:
                array[...] = np.ndarray(array.shape, array.dtype, next(answers), window.start, array.strides)

    def timed(self, arrays: Sequence[np.ndarray], threads: int) -> Callable[[int, bool], tuple[float, float]]:
        """Return a function that calls it, or an empty function, so many times, and returns CPU and wall seconds."""
        call = self._measured(Session(self._required(), self.library), arrays, threads)
        return lambda calls, empty: call(calls, empty)[:2]

    def instructions(self, arrays: Sequence[np.ndarray]) -> int | None:
        """Return the instructions of a call on one thread, None if the runner does not count them. Raises as calls."""
        runner = self._required()
        plugin = counting_plugin(runner)
        if plugin is None:
            return None
        with tempfile.NamedTemporaryFile(prefix="morello-count-") as file:
            file.write(bytes(8))
            file.flush()
            session = Session(counting(runner, plugin, file.name), self.library, arguments=[file.name])
            call = self._measured(session, arrays, 1)
            call(1, False)  # the first call of a function may start threads
            return int(call(1, False)[2] - call(1, True)[2])

    def _measured(
        self, session: Session, arrays: Sequence[np.ndarray], threads: int
    ) -> Callable[[int, bool], tuple[float, float, float]]:
        """Return a function that calls it, or an empty function, so many times on arrays that a session gets now.

        It returns CPU seconds, wall seconds and instructions.
        """
        self._called([_window(array, 0, False) for array in arrays], self.strides(arrays), threads, session, calls=0)

        def call(calls: int, empty: bool) -> tuple[float, float, float]:
            return _MEASURED.unpack(self._called((), (), threads, session, calls, empty)[0])

        return call

    def _required(self) -> Runner:
        if self.runner is None:
            raise no_runner(self.target.info)
        return self.runner

    def load(self) -> NoReturn:
        """Raise ToolchainError: nothing of it is in this process."""
        raise ToolchainError(f"{self.program.name} runs elsewhere", "call it on numpy arrays")

    def _called(
        self,
        windows: Sequence[Window],
        strides: Sequence[int],
        threads: int,
        session: Session,
        calls: int = 1,
        empty: bool = False,
    ) -> list[bytes]:
        """Call it on windows, or on those of the last request without any; return the answer."""
        try:
            return session.call(*exchange(self.program, self.number, windows, strides, threads, calls, empty))
        except ProgramEnded as end:
            said = end.result.excerpt()
            lines = [f"{self.program.name} through `{self.runner}` {end.how}", *([said] if said else [])]
            raise VerificationError("\n".join(lines), end.hint) from end


@lru_cache(_SESSIONS)
def _session(runner: Runner, program: Path, owner: int) -> Session:
    """Return the session of an executable in a process."""
    return Session(runner, program)


def exchange(
    program: Program,
    number: int,
    windows: Sequence[Window],
    strides: Sequence[int],
    threads: int,
    calls: int = 1,
    empty: bool = False,
) -> tuple[list[bytes], list[int]]:
    """Return the request that calls function `number` of an executable, and the sizes of the parts of its answer.

    Without windows, the call is on those of the last request.
    """
    workspace = program.workspace_for(threads)
    others = [*([0] if workspace else []), *([threads] if program.parallel else []), *program.last_numbers]
    numbers = [*strides, *others] if windows else []
    head = (number, empty, calls, len(windows), len(numbers), workspace, len(strides))
    request = [struct.pack("=7q", *head), *(one.head for one in windows), struct.pack(f"={len(numbers)}q", *numbers)]
    returned = [len(one.data) for one in windows if one.returns]
    return [*request, *(one.data for one in windows)], [_MEASURED.size, *returned]


def build_program(
    files: Mapping[str, str],
    programs: Sequence[Program],
    flags: Sequence[str],
    compiler: Compiler,
    base: Sequence[str] | None = None,
) -> Path:
    """Return the path of an executable that calls `programs`, whose C is in `files`, for a Session.

    `base` are the first flags, by default those of Morello's C in a program without shared libraries. Raises
    ToolchainError.
    """
    most = max(len(program.parameters) for program in programs)
    numbers = max(sum(one.strides for one in program.parameters) + 3 for program in programs)
    table = ", ".join(f"{{(void *){program.name}, loop{index}}}" for index, program in enumerate(programs))
    loops = "".join(loop_source(program, f"loop{index}") for index, program in enumerate(programs))
    sources = {
        **files,
        "programs.h": _HEADER.format(operands=most, numbers=numbers, loop=loop_prototype("morello_loop")),
        "loops.c": f"{_LOOSE}{CLOCK}{loops}\nconst morello_program morello_programs[] = {{{table}}};\n",
        "main.c": _MAIN.read_text(encoding="utf-8"),
    }
    return build(sources, flags, compiler, (*COMMON_FLAGS, *static_flags(compiler)) if base is None else base)


def function_of(
    impl: Impl,
    target: Target,
    program: Program,
    compiler: Compiler | str | None = None,
    runner: Runner | str | None = None,
) -> NativeFunction:
    """Return the function of a program: in this process, or through a runner if there is one, see `find_runner`.

    It needs one if the target is for another architecture. Raises ToolchainError for a runner that does not exist.
    """
    found = runner if isinstance(runner, Runner) else find_runner(target.info, runner)
    if found is None and not is_foreign(target.info):
        return NativeFunction(impl, target, program, compiler)
    return RunnerFunction(impl, target, program, compiler, found)


def _span(array: np.ndarray) -> tuple[int, int]:
    """Return the addresses of an array's first byte in memory, and of the byte after its last."""
    spans = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low, high = (sum(limit(0, span) for span in spans) for limit in (min, max))
    return array.ctypes.data + low, array.ctypes.data + high + array.itemsize


def _window(array: np.ndarray, around: int, returns: bool) -> Window:
    low, high = _span(array)
    first = low - around
    data = ctypes.string_at(first, high + around - first)
    return Window(data, _PAGE, first % _PAGE, array.ctypes.data - first, returns)
