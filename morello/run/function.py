"""The C function of a program, built and loaded into this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from morello.build.cache import is_intact
from morello.build.library import build
from morello.build.toolchain import Compiler, find_compiler, thread_flags
from morello.codegen.interface import RUN, RUNNER, setter_name
from morello.codegen.threads import MAX_THREADS, RUNTIME, shared_team
from morello.errors import ArgumentError, MorelloError
from morello.host import check_granted, missing_features
from morello.ir.impl import Impl
from morello.ir.program import Program
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites.pack import packed
from morello.run.arguments import Argument, arguments_of
from morello.run.arrays import workspace_bytes
from morello.run.fastcall import FastCaller, caller_of, loading
from morello.run.loop import CLOCK, loop_prototype, loop_source
from morello.run.runner import Runner

if TYPE_CHECKING:
    import cffi

#: The name of the loop that times calls.
_LOOP = "morello_time"


@attrs.frozen
class LoadedFunction:
    """The function in this process, and the C types of its parameters."""

    ffi: cffi.FFI
    function: Any
    types: tuple[Any, ...]

    @property
    def address(self) -> int:
        return int(self.ffi.cast("uintptr_t", self.function))


class _Workspace(threading.local):
    """The scratch memory of a thread."""

    def __init__(self) -> None:
        self.memory = np.empty(0, np.uint8)


class NativeFunction:
    """The C function of a program of `impl`, built when it is first needed. A call takes one fitting array per operand.

    `compiler` may be a command, as for `find_compiler`. Building raises ToolchainError. Threads may share an instance.
    """

    #: The command that runs it, if that is not this process.
    runner: Runner | None = None
    #: Whether it runs on another machine, or on an emulated one.
    is_elsewhere = False
    #: Its place among the functions of an executable.
    number = 0

    def __init__(self, impl: Impl, target: Target, program: Program, compiler: Compiler | str | None = None):
        self.impl = packed(impl)
        self.target = target
        self.program = program
        self._compiler = compiler
        self._lock = threading.Lock()
        self._workspace = _Workspace()
        self._same: NativeFunction | None = None

    @property
    def spec(self) -> Spec:
        return self.impl.spec

    @cached_property
    def compiler(self) -> Compiler:
        """Return the C compiler that builds it. Raises ToolchainError without one."""
        own = self._compiler if self._same is None else self._same.compiler
        return own if isinstance(own, Compiler) else find_compiler(own, self.target.info)

    @property
    def files(self) -> dict[str, str]:
        """Return source and header by file name."""
        header = f"{self.program.name}.h"
        return {f"{self.program.name}.c": self.program.including(header), header: self.program.header}

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags: the target's, and those for threads if there are parallel loops."""
        return (*self.program.flags, *(thread_flags(self.compiler) if self.program.parallel else ()))

    @cached_property
    def library(self) -> Path:
        """Return the shared object. Raises ToolchainError."""
        return build(self.files, self.flags, self.compiler)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Return the requirements on each operand's array, in the order of a call."""
        return arguments_of(self.spec, self.program, self.target)

    def threads(self, requested: int | None = None) -> int:
        """Return the threads that a call uses: 1 without parallel loops. Raises ArgumentError for a wrong number."""
        asked = None if requested is None else checked_threads(requested)
        if not self.program.parallel:
            return 1
        return default_threads() if asked is None else asked

    def workspace(self, threads: int = 1) -> np.ndarray:
        """Return the calling thread's scratch memory in bytes, for a call on this many threads."""
        needed = self.program.workspace_for(threads)
        if self._workspace.memory.size < needed:
            self._workspace.memory = workspace_bytes(needed)
        return self._workspace.memory

    def share(self, other: NativeFunction) -> None:
        """Use the scratch memory and the loaded C of a function of the same program, for another size, from now on."""
        self._workspace, self._same = other._workspace, other

    def numbers(self, arrays: Sequence[np.ndarray], threads: int) -> list[int]:
        """Return the parameters other than pointers to operands, in order: strides, workspace, threads, size."""
        numbers = self.strides(arrays)
        if self.program.workspace_for(threads):
            numbers.append(self.workspace(threads).ctypes.data)
        return numbers + ([threads] if self.program.parallel else []) + self.program.last_numbers

    def strides(self, arrays: Sequence[np.ndarray]) -> list[int]:
        """Return the values of all stride parameters."""
        found = list[int]()
        for parameter, argument, array in zip(self.program.parameters, self.arguments, arrays, strict=True):
            own = argument.form.outer_strides(array)
            # A dimension of size 1 has none, but a program for several sizes has its parameter.
            found += [0] * (parameter.strides - len(own)) + own
        return found

    def __call__(self, arrays: Sequence[np.ndarray], threads: int = 1, around: int = 0) -> None:
        """Call it on fitting arrays, one per operand, in the order of `arguments`. They are not checked.

        Programs that run elsewhere also get `around` bytes on both sides of each array, and all bytes are copied back.
        """
        loaded, numbers = self.load(), iter(self.numbers(arrays, threads))
        values = list[int]()
        for parameter, array in zip(self.program.parameters, arrays, strict=True):
            values += [array.ctypes.data, *(next(numbers) for _ in range(parameter.strides))]
        values += numbers
        loaded.function(*map(loaded.ffi.cast, loaded.types, values))

    def timed(self, arrays: Sequence[np.ndarray], threads: int) -> Callable[[int, bool], tuple[float, float]]:
        """Return a function that calls it, or an empty function, so many times, and returns CPU and wall seconds."""
        import cffi

        sources = {"morello_time.c": CLOCK + loop_source(self.program, _LOOP)}
        library = build({**sources, f"{self.program.name}.h": self.program.header}, self.program.flags, self.compiler)
        ffi = cffi.FFI()
        ffi.cdef(f"{loop_prototype(_LOOP)};")
        loop, loaded = getattr(ffi.dlopen(str(library)), _LOOP), self.load()
        memory = [*arrays, self.workspace(threads)]  # kept: the function may replace its workspace
        numbers, seconds = ffi.new("ptrdiff_t []", self.numbers(arrays, threads)), ffi.new("double[2]")

        def call(calls: int, empty: bool) -> tuple[float, float]:
            kernel = ffi.NULL if empty else ffi.cast("void *", loaded.address)
            pointers = ffi.new("void *[]", [ffi.cast("void *", each.ctypes.data) for each in memory])
            loop(kernel, calls, pointers, numbers, seconds)
            return seconds[0], seconds[1]

        return call

    @property
    def caller(self) -> FastCaller:
        """Return the maker of fast calls, built on first use: programs that are called once need none.

        Raises ToolchainError.
        """
        return caller_of(self.program, self.compiler)

    def load(self) -> LoadedFunction:
        """Return the loaded function. Raises ToolchainError, and ArgumentError if this CPU lacks instructions."""
        if self._same is not None:
            return self._same.load()
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> LoadedFunction:
        needed = (*self.target.info.cpu_features, *self.program.cpu_features)
        missing = missing_features(needed)
        if missing:
            raise ArgumentError(
                f"this machine's CPU lacks {', '.join(missing)}, which code for {self.target.name} needs",
                "run it on another machine, or compile for a target that this one supports",
            )
        check_granted(needed)
        import cffi  # slow to import, and only needed to run programs

        ffi = cffi.FFI()
        ffi.cdef(f"{self.program.prototype};")
        if not is_intact(self.library):
            del self.library  # removed or damaged after it was built: build it again
        with loading(self.library):
            library = ffi.dlopen(str(self.library))
            function = getattr(library, self.program.name)
            if self.program.parallel:
                ffi.cdef(f"void {setter_name(self.program.name)}({RUN});")
                getattr(library, setter_name(self.program.name))(_shared_team(self.compiler).morello_share_team)
        return LoadedFunction(ffi, function, tuple(ffi.typeof(function).args))


def team_library(compiler: Compiler) -> Path:
    """Return the library whose `morello_share_team` runs the parallel loops of all programs that a compiler built.

    With a team for each program, waiting threads of one would take CPUs from those of the next.
    """
    return build({"team.c": f"#include <stddef.h>\n{RUNTIME}{shared_team('')}"}, thread_flags(compiler), compiler)


@cache
def _shared_team(compiler: Compiler) -> Any:
    import cffi

    ffi, library = cffi.FFI(), team_library(compiler)
    ffi.cdef(f"void morello_share_team({RUNNER});")
    with loading(library):
        return ffi.dlopen(str(library))


def checked_threads(requested: int) -> int:
    """Return a number of threads. Raises ArgumentError for a wrong one."""
    if isinstance(requested, bool) or not isinstance(requested, int | np.integer):
        raise ArgumentError(f"threads is {requested!r}", "pass a number")
    if not 1 <= requested <= MAX_THREADS:
        raise ArgumentError(f"{requested} threads", f"pass a number from 1 to {MAX_THREADS}")
    return int(requested)


def default_threads() -> int:
    """Return the default threads of parallel loops: MORELLO_THREADS, or one for each CPU of this process.

    Raises MorelloError if MORELLO_THREADS is not a number of threads.
    """
    text = os.environ.get("MORELLO_THREADS")
    if text:
        if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MAX_THREADS:
            raise MorelloError(f"MORELLO_THREADS is {text!r}", f"set it to a number from 1 to {MAX_THREADS}")
        return int(text)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, MAX_THREADS)
