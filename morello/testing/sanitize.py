"""Runs emitted functions in a C program of their own, under the address and undefined-behaviour sanitizers.

The program is what a user's C project would be: it includes the emitted headers and links the emitted sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import attrs
import numpy as np

from morello.build.toolchain import PTHREAD, Compiler, static_flags
from morello.codegen.threads import KEEPS_SHARES
from morello.errors import ArgumentError, ToolchainError, VerificationError
from morello.ir.program import Parameter, Program
from morello.ir.spec import Spec
from morello.run.arrays import Form, form_of
from morello.run.elsewhere import Window, build_program, exchange
from morello.run.runner import ProgramEnded, Runner, Session
from morello.testing.batch import translation_unit, units

FLAGS = (
    # Not optimised: it compiles in a third of the time, and no access is left out that one could look at.
    *("-std=gnu11", "-g", "-O0", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
    # Of two shares that one thread does, no race would be seen.
    f"-D{KEEPS_SHARES}=1",
)
#: The default sanitizers, and those of zig, other architectures and emulators: the rest needs a runtime library.
SANITIZERS, FEWER_SANITIZERS = "address,undefined", "undefined"
#: Threads that parallel loops are shared among: theirs, as sanitizers know nothing of OpenMP's.
_THREADS = 3

#: Unused values after each step of an operand that need not be contiguous.
_GAP = 3
_LINES_SHOWN = 40
#: The least alignment of allocated memory in bytes.
_POINTER = 8
_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


@attrs.frozen
class Job:
    """A program to call once: its Spec, and one array per parameter, of the operand's shape.

    Buffers have exactly the operands' size and start at a multiple of 64 bytes for aligned operands, and of the element
    for others.
    """

    program: Program
    spec: Spec
    arrays: Sequence[np.ndarray]


@attrs.frozen
class _Buffer:
    """An operand in the program: its bytes, with gaps where the operand need not be contiguous."""

    parameter: Parameter
    form: Form
    strides: tuple[int, ...]
    alignment: int

    @property
    def numbers(self) -> list[int]:
        """Return the values of its stride parameters."""
        return [self.strides[axis] for axis in self.form.order[: self.form.free]]

    def window(self, array: np.ndarray) -> Window:
        """Return the buffer with the elements of `array`: no byte before it or after it may be accessed."""
        memory = np.zeros(self.form.extent(self.strides) * self.form.dtype.bytes, np.uint8)
        self.form.place(memory, 0, self.strides).view(array.dtype)[...] = array
        return Window(memory.tobytes(), self.alignment, 0, 0, self.parameter.writes)

    def elements(self, image: bytes) -> np.ndarray:
        """Return the array in a buffer's content, contiguous in the operand's layout."""
        memory = np.frombuffer(bytearray(image), np.uint8)
        dense = self.form.strides_with_gaps(0)
        own = self.form.place(np.empty(self.form.extent(dense) * self.form.dtype.bytes, np.uint8), 0, dense)
        own[...] = self.form.place(memory, 0, self.strides)
        return own


def default_sanitizers(compiler: Compiler, runner: Runner | None = None) -> str:
    """Return the sanitizers that a compiler has for programs of a runner."""
    fewer = compiler.triple or compiler.name == "zig cc" or (runner and runner.emulator)
    return FEWER_SANITIZERS if fewer else SANITIZERS


def run_sanitized(
    program: Program, spec: Spec, arrays: Sequence[np.ndarray], compiler: Compiler, sanitizers: str = ""
) -> list[np.ndarray]:
    """Call `program` on copies of `arrays`, see `Job`, and return the written ones.

    `sanitizers` are the compiler's names of what looks on: "thread" finds data races of parallel loops. By default
    they are those of `default_sanitizers`. Raises VerificationError with the sanitizers' report, ArgumentError for
    arrays that do not fit, ToolchainError where the compiler fails or has no sanitizers.
    """
    (result,) = run_all_sanitized([Job(program, spec, arrays)], compiler, sanitizers)
    if isinstance(result, VerificationError):
        raise result
    return result


def run_all_sanitized(
    jobs: Sequence[Job], compiler: Compiler, sanitizers: str = "", runner: Runner | None = None
) -> list[list[np.ndarray] | VerificationError]:
    """Return each job's written arrays, or what the sanitizers say of it; one C program runs all of them.

    The names of the jobs' programs differ. Raises what `run_sanitized` raises for arrays and the compiler.
    """
    buffers = [_buffers(job) for job in jobs]
    program = _built(jobs, compiler, sanitizers or default_sanitizers(compiler, runner))
    session = Session(runner or Runner(()), program, _ENVIRONMENT)
    try:
        return [_result(session, *each) for each in zip(count(), jobs, buffers)]
    finally:
        session.close()


def _buffers(job: Job) -> list[_Buffer]:
    """Return the job's buffers. Raises ArgumentError for arrays that do not fit."""
    program = job.program
    if len(job.arrays) != len(program.parameters):
        raise ArgumentError(
            f"{program.name} takes {len(program.parameters)} arrays, got {len(job.arrays)}",
            "give one for each parameter",
        )
    buffers: list[_Buffer] = []
    for parameter, array in zip(program.parameters, job.arrays, strict=True):
        tensor = job.spec.operands[parameter.operand]
        form = form_of(tensor)
        alignment = max(64 if tensor.state.aligned else tensor.state.dtype.bytes, _POINTER)
        buffers.append(_Buffer(parameter, form, form.strides_with_gaps(_GAP), alignment))
        _check(buffers[-1], array)
    return buffers


def _check(buffer: _Buffer, array: np.ndarray) -> None:
    form = buffer.form
    if array.shape != form.shape or array.dtype.itemsize != form.dtype.bytes:
        raise ArgumentError(
            f"operand {buffer.parameter.name}: expected {form.dtype.numpy.name} of shape {form.shape}, "
            f"got {array.dtype} of shape {array.shape}",
            "convert or reshape it",
        )


def _built(jobs: Sequence[Job], compiler: Compiler, sanitizers: str) -> Path:
    """Return the executable of the jobs' programs. Raises ToolchainError."""
    programs = [job.program for job in jobs]
    flags = {program.flags for program in programs}
    if len(flags) > 1:
        raise ArgumentError("programs that run together need the same flags", "run those of one target at a time")
    files = {f"{program.name}.h": program.header for program in programs}
    files |= {f"programs{number}.c": translation_unit(group) for number, group in enumerate(units(programs))}
    threads = [PTHREAD] if any(program.parallel for program in programs) else []
    static = static_flags(compiler) if sanitizers == FEWER_SANITIZERS else ()
    base = (*FLAGS, f"-fsanitize={sanitizers}", *static, *threads)
    try:
        return build_program(files, programs, flags.pop(), compiler, base)
    except ToolchainError as error:
        names = programs[0].name if len(programs) == 1 else f"{len(programs)} programs"
        raise ToolchainError(
            f"cannot build the sanitized {names}: {error.message}",
            f"{compiler.name} needs the runtime library of the sanitizers {sanitizers}, "
            "e.g. `apt install libclang-rt-dev` or gcc's libasan and libubsan",
        ) from error


def _result(
    session: Session, number: int, job: Job, buffers: Sequence[_Buffer]
) -> list[np.ndarray] | VerificationError:
    """Return the written arrays of a job, or the error that the sanitizers report."""
    windows = [buffer.window(array) for buffer, array in zip(buffers, job.arrays, strict=True)]
    strides = [stride for buffer in buffers for stride in buffer.numbers]
    try:
        answers = iter(session.call(*exchange(job.program, number, windows, strides, _THREADS))[1:])
    except ProgramEnded as end:
        if end.late is not None:
            return VerificationError(f"{job.program.name} {end.how}", end.hint)
        lines = "\n".join(f"  {line}" for line in end.result.err.strip().splitlines()[:_LINES_SHOWN])
        return VerificationError(
            f"{job.program.name} under the sanitizers {end.how}:\n{lines}",
            "the frames above name the line of the emitted C",
        )
    return [buffer.elements(next(answers)) for buffer in buffers if buffer.parameter.writes]
