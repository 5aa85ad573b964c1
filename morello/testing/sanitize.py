"""Runs emitted functions in a C program of their own, under the address and undefined-behaviour sanitizers.

The program is what a user's C project would be: it includes the emitted headers and links the emitted sources.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from morello.build.process import run
from morello.build.toolchain import CHOOSE_HINT, Compiler, timeout_seconds
from morello.codegen.threads import KEEPS_SHARES
from morello.errors import ArgumentError, ToolchainError, VerificationError
from morello.ir.program import Parameter, Program
from morello.ir.spec import Spec
from morello.run.arrays import Form, form_of
from morello.testing.batch import translation_unit, units

FLAGS = (
    # Not optimised: it compiles in a third of the time, and no access is left out that one could look at.
    *("-std=gnu11", "-g", "-O0", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"),
    # Of two shares that one thread does, no race would be seen.
    f"-D{KEEPS_SHARES}=1",
)
#: The default sanitizers.
SANITIZERS = "address,undefined"
#: Threads that parallel loops are shared among: theirs, as sanitizers know nothing of OpenMP's.
_THREADS = 3

#: Unused values after each step of an operand that need not be contiguous.
_GAP = 3
_LINES_SHOWN = 40
_ENVIRONMENT = {"ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1", "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1"}

_HARNESS = """\
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

{includes}

/* A buffer of exactly `bytes` bytes, so that the sanitizer sees every access past its end. */
static void *buffer(size_t bytes, size_t alignment) {{
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) {{
        fprintf(stderr, "no memory\\n");
        exit(3);
    }}
    return memory;
}}

static void transfer(int writes, long where, void *memory, size_t bytes) {{
    FILE *file = fopen("{data}", "r+b");
    size_t count = 0;
    if (file != NULL && fseek(file, where, SEEK_SET) == 0) {{
        count = writes ? fwrite(memory, 1, bytes, file) : fread(memory, 1, bytes, file);
    }}
    if (file == NULL || fclose(file) != 0 || count != bytes) {{
        fprintf(stderr, "cannot transfer %zu bytes\\n", bytes);
        exit(3);
    }}
}}

static void starts(int job) {{
    FILE *file = fopen("{progress}", "w");
    if (file == NULL || fprintf(file, "%d", job) < 0 || fclose(file) != 0) {{
        fprintf(stderr, "unknown job\\n");
        exit(3);
    }}
}}

{jobs}

static void (*const jobs[])(void) = {{{names}}};

int main(int count, char **arguments) {{
    for (int job = count > 1 ? atoi(arguments[1]) : 0; job < {number}; ++job) {{
        starts(job);
        jobs[job]();
    }}
    return 0;
}}
"""
_DATA, _PROGRESS = "operands.bin", "job.txt"


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
    """An operand in the harness: its bytes, with gaps where the operand need not be contiguous."""

    parameter: Parameter
    form: Form
    strides: tuple[int, ...]
    alignment: int
    #: Where its bytes begin in the file of all of them.
    start: int

    @property
    def bytes(self) -> int:
        return self.form.extent(self.strides) * self.form.dtype.bytes

    def arguments(self, name: str) -> list[str]:
        """Return what the function is passed for it, in C, where the buffer is called `name`."""
        order = self.form.order[: self.form.free]
        return [name, *(f"(ptrdiff_t){self.strides[axis]}" for axis in order)]

    def image(self, array: np.ndarray) -> bytes:
        """Return the buffer's content with the elements of `array`."""
        memory = np.zeros(self.bytes, np.uint8)
        self.form.place(memory, 0, self.strides).view(array.dtype)[...] = array
        return memory.tobytes()

    def elements(self, image: bytes) -> np.ndarray:
        """Return the array in a buffer's content, contiguous in the operand's layout."""
        memory = np.frombuffer(bytearray(image), np.uint8)
        dense = self.form.strides_with_gaps(0)
        own = self.form.place(np.empty(self.form.extent(dense) * self.form.dtype.bytes, np.uint8), 0, dense)
        own[...] = self.form.place(memory, 0, self.strides)
        return own


def run_sanitized(
    program: Program,
    spec: Spec,
    arrays: Sequence[np.ndarray],
    compiler: Compiler,
    sanitizers: str = SANITIZERS,
) -> list[np.ndarray]:
    """Call `program` on copies of `arrays`, see `Job`, and return the written ones.

    `sanitizers` are the compiler's names of what looks on: "thread" finds data races of parallel loops. Raises
    VerificationError with the sanitizers' report, ArgumentError for arrays that do not fit, ToolchainError where the
    compiler fails or has no sanitizers.
    """
    (result,) = run_all_sanitized([Job(program, spec, arrays)], compiler, sanitizers)
    if isinstance(result, VerificationError):
        raise result
    return result


def run_all_sanitized(
    jobs: Sequence[Job], compiler: Compiler, sanitizers: str = SANITIZERS
) -> list[list[np.ndarray] | VerificationError]:
    """Return each job's written arrays, or what the sanitizers say of it; one C program runs all of them.

    The names of the jobs' programs differ. Raises what `run_sanitized` raises for arrays and the compiler.
    """
    start, placed = 0, []
    for job in jobs:
        buffers = _buffers(job, start)
        start = max([start, *(buffer.start + buffer.bytes for buffer in buffers)])
        placed.append(buffers)
    results: list[list[np.ndarray] | VerificationError] = []
    with tempfile.TemporaryDirectory(prefix="morello-sanitize-") as name:
        folder = Path(name)
        _write(jobs, placed, folder)
        _build([job.program for job in jobs], folder, compiler, sanitizers)
        while len(results) < len(jobs):
            done, error = _execute(jobs, folder, len(results))
            results += [_outputs(buffers, folder) for buffers in placed[len(results) : done]]
            results += [error] if error else []
    return results


def _buffers(job: Job, start: int) -> list[_Buffer]:
    """Return the job's buffers; their bytes are in the file from `start` on."""
    program = job.program
    if len(job.arrays) != len(program.parameters):
        raise ArgumentError(
            f"{program.name} takes {len(program.parameters)} arrays, got {len(job.arrays)}",
            "give one for each parameter",
        )
    buffers: list[_Buffer] = []
    for index, parameter in enumerate(program.parameters):
        tensor = job.spec.operands[parameter.operand]
        form = form_of(tensor)
        alignment = 64 if tensor.state.aligned else tensor.state.dtype.bytes
        buffers.append(_Buffer(parameter, form, form.strides_with_gaps(_GAP), alignment, start))
        _check(buffers[-1], job.arrays[index])
        start += buffers[-1].bytes
    return buffers


def _write(jobs: Sequence[Job], placed: Sequence[Sequence[_Buffer]], folder: Path) -> None:
    """All that is to be compiled, and the operands' bytes."""
    with (folder / _DATA).open("wb") as file:
        for job, buffers in zip(jobs, placed, strict=True):
            file.writelines(buffer.image(array) for buffer, array in zip(buffers, job.arrays, strict=True))
    programs = [job.program for job in jobs]
    for program in programs:
        (folder / f"{program.name}.h").write_text(program.header, encoding="utf-8")
    for number, group in enumerate(units(programs)):
        (folder / f"programs{number}.c").write_text(translation_unit(group), encoding="utf-8")
    harness = _HARNESS.format(
        includes="\n".join(f'#include "{program.name}.h"' for program in programs),
        data=_DATA,
        progress=_PROGRESS,
        jobs="\n".join(_job(number, *each) for number, each in enumerate(zip(programs, placed, strict=True))),
        names=", ".join(f"job{number}" for number in range(len(jobs))),
        number=len(jobs),
    )
    (folder / "harness_main.c").write_text(harness, encoding="utf-8")


def _outputs(buffers: Sequence[_Buffer], folder: Path) -> list[np.ndarray]:
    with (folder / _DATA).open("rb") as file:
        outputs = []
        for buffer in buffers:
            if buffer.parameter.writes:
                file.seek(buffer.start)
                outputs.append(buffer.elements(file.read(buffer.bytes)))
        return outputs


def _check(buffer: _Buffer, array: np.ndarray) -> None:
    form = buffer.form
    if array.shape != form.shape or array.dtype.itemsize != form.dtype.bytes:
        raise ArgumentError(
            f"operand {buffer.parameter.name}: expected {form.dtype.numpy.name} of shape {form.shape}, "
            f"got {array.dtype} of shape {array.shape}",
            "convert or reshape it",
        )


def _job(number: int, program: Program, buffers: Sequence[_Buffer]) -> str:
    """Return the C function that calls the program."""
    lines, arguments, freed = [], [], []
    for index, buffer in enumerate(buffers):
        # Operands may be called what programs of others jobs are.
        name = f"operand{index}"
        lines.append(f"    {buffer.form.dtype.c_name} *{name} = buffer({buffer.bytes}, {buffer.alignment});")
        lines.append(f"    transfer(0, {buffer.start}, {name}, {buffer.bytes});")
        arguments += buffer.arguments(name)
        freed.append(name)
    workspace = program.workspace_for(_THREADS)
    if workspace:
        lines.append(f"    void *workspace = buffer({workspace}, 64);")
        arguments.append("workspace")
        freed.append("workspace")
    if program.parallel:
        arguments.append(str(_THREADS))
    lines.append(f"    {program.name}({', '.join(arguments)});")
    for index, buffer in enumerate(buffers):
        if buffer.parameter.writes:
            lines.append(f"    transfer(1, {buffer.start}, operand{index}, {buffer.bytes});")
    lines += [f"    free({name});" for name in freed]
    return "\n".join([f"static void job{number}(void) {{", *lines, "}"])


def _first_lines(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[:_LINES_SHOWN])


def _build(programs: Sequence[Program], folder: Path, compiler: Compiler, sanitizers: str) -> None:
    """The executable `harness`."""
    flags = {program.flags for program in programs}
    if len(flags) > 1:
        raise ArgumentError("programs that run together need the same flags", "run those of one target at a time")
    files = sorted(path.name for path in folder.glob("*.c"))
    threads = ["-pthread"] if any(program.parallel for program in programs) else []
    options = [*FLAGS, f"-fsanitize={sanitizers}", *threads, *flags.pop()]
    command = [*compiler.command, *options, "-o", "harness", *files, "-lm"]
    names = programs[0].name if len(programs) == 1 else f"{len(programs)} programs"
    try:
        done = run(command, timeout_seconds() * len(files), folder)
    except OSError as error:
        raise ToolchainError(f"{compiler.name} failed to build the sanitized {names}: {error}", CHOOSE_HINT) from error
    if done.code:
        raise ToolchainError(
            f"{compiler.name} failed to build the sanitized {names}:\n{_first_lines(done.err)}",
            "sanitizers need their runtime library, e.g. `apt install libclang-rt-dev` or gcc's libasan",
        )


def _execute(jobs: Sequence[Job], folder: Path, first: int) -> tuple[int, VerificationError | None]:
    """Run the jobs from number `first` on: the number of the first that fails, and how; (all, None) if none does."""
    try:
        done = run([str(folder / "harness"), str(first)], timeout_seconds(), folder, _ENVIRONMENT)
    except TimeoutError as error:
        failed = _current(folder)
        return failed, VerificationError(
            f"{jobs[failed].program.name} does not end: {error}",
            "give it more time with MORELLO_CC_TIMEOUT (seconds), if it only takes long",
        )
    if not done.code:
        return len(jobs), None
    failed = _current(folder)
    return failed, VerificationError(
        f"{jobs[failed].program.name} under the sanitizers ended with code {done.code}:\n{_first_lines(done.err)}",
        "the frames above name the line of the emitted C",
    )


def _current(folder: Path) -> int:
    return int((folder / _PROGRESS).read_text())
