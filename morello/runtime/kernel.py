"""A compiled implementation as a Python callable."""

from __future__ import annotations

import threading
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import cffi
import numpy as np

from morello import schedule
from morello.codegen.threads import MAX_THREADS
from morello.errors import ArgumentError, EmitError, ToolchainError, remedy
from morello.host import missing_features
from morello.ir.impl import Figures, Impl, figures
from morello.ir.limits import Limits
from morello.ir.program import Program
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.runtime.arguments import Argument, arguments_of, check_apart
from morello.runtime.arrays import ALIGNMENT, empty, workspace_bytes
from morello.runtime.build import build
from morello.runtime.cache import is_whole
from morello.runtime.machine import default_threads
from morello.runtime.toolchain import Compiler, find_compiler, thread_flags


@attrs.frozen
class Loaded:
    """The emitted function in this process, and the C types of its parameters."""

    ffi: cffi.FFI
    function: Any
    types: tuple[Any, ...]


class Kernel:
    """A function on numpy arrays, built from C when it is first called.

    `kernel(*arrays)` takes one array per operand, in the order of `program.signature`, writes the outputs in place and
    returns None. Outputs that are not read may be left out, all of them: they are then allocated and returned,
    a single one as an array, several as a tuple. No array is copied, and other threads run meanwhile; a kernel
    may be called from several threads at once. `compiler` may be a command, as for `find_compiler`.

    Where the program has parallel loops, `kernel(*arrays, threads=N)` shares them among N threads: by default
    MORELLO_THREADS, or as many as there are CPUs for this process. Results are the same bits for any number.

    Arrays are checked first: see `morello.runtime.arrays` for what they look like. Calls raise ArgumentError for
    arrays that do not fit or a CPU that lacks features, and ToolchainError where the C cannot be built.
    """

    def __init__(self, impl: Impl, target: Target, program: Program, compiler: Compiler | str | None = None):
        self.impl = impl
        self.target = target
        self.program = program
        self._compiler = compiler
        self._lock = threading.Lock()
        self._local = threading.local()
        _check_parameters(program, impl.spec, target)

    def __repr__(self) -> str:
        return f"<Kernel {self.program.name}: {self.spec.op} for {self.target.name}>"

    @property
    def spec(self) -> Spec:
        return self.impl.spec

    @property
    def source(self) -> str:
        """Return the C source."""
        return self.program.source

    @property
    def header(self) -> str:
        """Return the C header that declares the function."""
        return self.program.header

    @property
    def schedule(self) -> str:
        """Return the schedule that makes this implementation of its Spec, as it is written in a Spec file."""
        return "\n".join(schedule.lines(schedule.schedule_of(self.impl)))

    @cached_property
    def _figures(self) -> Figures:
        return figures(self.impl)

    @property
    def cost(self) -> int:
        """Return cost under the target's model. Raises SpecError for an unfinished implementation."""
        return self._figures.cost

    @property
    def peak(self) -> Limits:
        """Peak memory in bytes per level, fastest first. Raises SpecError for an unfinished implementation."""
        return self._figures.peak

    @cached_property
    def compiler(self) -> Compiler:
        """Return the C compiler that builds it. Raises ToolchainError if there is none."""
        return self._compiler if isinstance(self._compiler, Compiler) else find_compiler(self._compiler)

    @property
    def files(self) -> dict[str, str]:
        """Source and header by file name."""
        header = f"{self.program.name}.h"
        return {f"{self.program.name}.c": self.program.including(header), header: self.header}

    @cached_property
    def library(self) -> Path:
        """Return the shared object, built if need be. Raises ToolchainError."""
        return build(self.files, self.flags, self.compiler)

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags: the target's, and those for threads if there are parallel loops."""
        return (*self.program.flags, *(thread_flags(self.compiler) if self.program.parallel else ()))

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Return what each operand asks of its array, in the order of a call."""
        return arguments_of(self.spec, self.program.signature, self.target)

    def __call__(self, *arrays: np.ndarray, threads: int | None = None) -> Any:
        count = self.threads(threads)
        given, fresh = self._complete(arrays)
        addresses = [argument.address(array) for argument, array in zip(self.arguments, given, strict=True)]
        check_apart(self.arguments, given)
        loaded = self.load()
        loaded.function(*self._c_values(loaded, given, addresses, count))
        return fresh[0] if len(fresh) == 1 else tuple(fresh) or None

    def threads(self, asked: int | None = None) -> int:
        """Return how many threads a call uses that asks for so many: 1 without parallel loops. Raises ArgumentError."""
        if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int | np.integer)):
            raise ArgumentError(f"threads is {asked!r}", "it is a number")
        if asked is not None and not 1 <= asked <= MAX_THREADS:
            raise ArgumentError(f"{asked} threads", f"there are 1 to {MAX_THREADS}")
        if not self.program.parallel:
            return 1
        return default_threads() if asked is None else int(asked)

    def _complete(self, arrays: tuple[np.ndarray, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Return one array per operand, and those among them that were left out and allocated."""
        if len(arrays) == len(self.arguments):
            return list(arrays), []
        needed = [argument.name for argument in self.arguments if argument.reads]
        if len(arrays) != len(needed):
            without = f", or {len(needed)} without outputs" if len(needed) < len(self.arguments) else ""
            raise ArgumentError(
                f"{self.spec.op} takes {len(self.arguments)} arrays{without}, got {len(arrays)}",
                f"its operands are {', '.join(argument.name for argument in self.arguments)}",
            )
        waiting = iter(arrays)
        given, fresh = [], []
        for argument in self.arguments:
            if argument.reads:
                given.append(next(waiting))
            else:
                tensor = self.spec.operands[argument.operand]
                given.append(empty(tensor, max(ALIGNMENT, argument.alignment)))
                fresh.append(given[-1])
        return given, fresh

    def load(self) -> Loaded:
        """Return the function, built and loaded once. Raises ToolchainError, and ArgumentError for a lesser CPU."""
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> Loaded:
        missing = missing_features((*self.target.info.cpu_features, *self.program.cpu_features))
        if missing:
            raise ArgumentError(
                f"this machine's CPU lacks {', '.join(missing)}, which code for {self.target.name} needs",
                "run it on another machine, or compile for a target that this one supports",
            )
        ffi = cffi.FFI()
        ffi.cdef(f"{self.program.prototype};")
        try:
            if not is_whole(self.library):
                del self.library  # removed or damaged since it was built: it is built again
            function = getattr(ffi.dlopen(str(self.library)), self.program.name)
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                f"{self.library} cannot be loaded: {error}", "delete the file; it is built again on the next call"
            ) from error
        return Loaded(ffi, function, tuple(ffi.typeof(function).args))

    def _c_values(self, loaded: Loaded, arrays: list[np.ndarray], addresses: list[int], threads: int) -> list[Any]:
        """Return the arguments of one call of the function."""
        values: list[Any] = []
        for argument, array, address in zip(self.arguments, arrays, addresses, strict=True):
            values.append(loaded.ffi.cast(loaded.types[len(values)], address))
            values += argument.form.outer_strides(array)
        if self.program.workspace_for(threads):
            values.append(loaded.ffi.cast(loaded.types[len(values)], self.workspace(threads).ctypes.data))
        if self.program.parallel:
            values.append(threads)
        return values

    def workspace(self, threads: int = 1) -> np.ndarray:
        """Return the calling thread's scratch memory for the function, in bytes, where it runs on so many threads."""
        needed = self.program.workspace_for(threads)
        if getattr(self._local, "workspace", np.empty(0)).size < needed:
            self._local.workspace = workspace_bytes(needed)
        return self._local.workspace


def _check_parameters(program: Program, spec: Spec, target: Target) -> None:
    """Raise EmitError if the emitter's parameters are not the Spec's operands."""
    operands, hint = spec.operands, remedy(target.origins.get("emitter", target.name))
    if len(program.parameters) != len(operands):
        raise EmitError(f"{program.name} has {len(program.parameters)} parameters for {len(operands)} operands", hint)
    if sorted(program.signature.operands) != [*range(len(operands))]:
        raise EmitError(f"{program.name}: its parameters are not the operands of its Spec, one for each", hint)
    for parameter in program.parameters:
        tensor = operands[parameter.operand]
        layout = tensor.state.layout
        strides = 0 if layout is None else len(layout.dims) - tensor.state.contig
        if parameter.strides != strides:
            raise EmitError(
                f"{program.name}: {parameter.name} takes {parameter.strides} strides, its Spec has {strides}", hint
            )
