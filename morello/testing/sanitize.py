"""Runs an emitted function in a C program of its own, under the address and undefined-behaviour sanitizers.

The program is what a user's C project would be: it includes the emitted header and links the emitted source.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from morello.codegen.program import Parameter, Program
from morello.errors import ArgumentError, ToolchainError, VerificationError
from morello.ir.spec import Spec
from morello.ir.tensor import TensorSpec
from morello.runtime.arrays import Form, form_of
from morello.runtime.process import run
from morello.runtime.toolchain import Compiler, timeout_seconds

FLAGS = ("-std=gnu11", "-g", "-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
#: What is looked for unless something else is asked for.
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

#include "{name}.h"

/* A buffer of exactly `bytes` bytes, so that the sanitizer sees every access past its end. */
static void *buffer(size_t bytes, size_t alignment) {{
    void *memory = NULL;
    if (posix_memalign(&memory, alignment < sizeof(void *) ? sizeof(void *) : alignment, bytes) != 0) {{
        fprintf(stderr, "no memory\\n");
        exit(3);
    }}
    return memory;
}}

static void transfer(const char *path, const char *mode, void *memory, size_t bytes) {{
    FILE *file = fopen(path, mode);
    size_t count = 0;
    if (file != NULL) {{
        count = mode[0] == 'r' ? fread(memory, 1, bytes, file) : fwrite(memory, 1, bytes, file);
    }}
    if (file == NULL || fclose(file) != 0 || count != bytes) {{
        fprintf(stderr, "%s: cannot transfer %zu bytes\\n", path, bytes);
        exit(3);
    }}
}}

int main(void) {{
{body}
    return 0;
}}
"""


@attrs.frozen
class _Buffer:
    """An operand in the harness: its bytes, with gaps where the operand need not be contiguous."""

    parameter: Parameter
    form: Form
    strides: tuple[int, ...]
    alignment: int
    file: str

    @property
    def bytes(self) -> int:
        return self.form.extent(self.strides) * self.form.dtype.bytes

    @property
    def arguments(self) -> list[str]:
        """What the function is passed for it, in C."""
        order = self.form.order[: self.form.free]
        return [self.parameter.name, *(f"(ptrdiff_t){self.strides[axis]}" for axis in order)]

    def image(self, array: np.ndarray) -> bytes:
        """The buffer's content with the elements of `array`."""
        memory = np.zeros(self.bytes, np.uint8)
        self.form.place(memory, 0, self.strides).view(array.dtype)[...] = array
        return memory.tobytes()

    def elements(self, image: bytes) -> np.ndarray:
        """The array in a buffer's content, contiguous in the operand's layout."""
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
    alignments: Sequence[int] | None = None,
    sanitizers: str = SANITIZERS,
) -> list[np.ndarray]:
    """Call `program` on copies of `arrays`, one per operand of `spec` and of the operand's shape; the written ones.

    Buffers have exactly the operands' size and start at a multiple of `alignments` bytes, by default of 64 for
    aligned operands and of the element for others. `sanitizers` are the compiler's names of what looks on: "thread"
    finds data races of parallel loops. Raises VerificationError with the sanitizers' report,
    ArgumentError for arrays that do not fit, ToolchainError where the compiler fails or has no sanitizers.
    """
    buffers = _buffers(program, spec, alignments)
    if len(arrays) != len(buffers):
        raise ArgumentError(f"{program.name} takes {len(buffers)} arrays, got {len(arrays)}")
    with tempfile.TemporaryDirectory(prefix="morello-sanitize-") as name:
        folder = Path(name)
        for buffer, array in zip(buffers, arrays, strict=True):
            _check(buffer, array)
            (folder / buffer.file).write_bytes(buffer.image(array))
        (folder / f"{program.name}.c").write_text(program.source, encoding="utf-8")
        (folder / f"{program.name}.h").write_text(program.header, encoding="utf-8")
        (folder / "harness_main.c").write_text(_harness(program, buffers), encoding="utf-8")
        _build(program, folder, compiler, sanitizers)
        _execute(program, folder)
        return [buffer.elements((folder / buffer.file).read_bytes()) for buffer in buffers if buffer.parameter.writes]


def _buffers(program: Program, spec: Spec, alignments: Sequence[int] | None) -> list[_Buffer]:
    found = []
    for index, (parameter, tensor) in enumerate(zip(program.parameters, spec.operands, strict=True)):
        form = form_of(tensor)
        alignment = _default_alignment(tensor) if alignments is None else alignments[index]
        found.append(_Buffer(parameter, form, form.strides_with_gaps(_GAP), alignment, f"operand{index}.bin"))
    return found


def _default_alignment(tensor: TensorSpec) -> int:
    return 64 if tensor.state.aligned else tensor.state.dtype.bytes


def _check(buffer: _Buffer, array: np.ndarray) -> None:
    form = buffer.form
    if array.shape != form.shape or array.dtype.itemsize != form.dtype.bytes:
        raise ArgumentError(
            f"operand {buffer.parameter.name}: expected {form.dtype.numpy.name} of shape {form.shape}, "
            f"got {array.dtype} of shape {array.shape}"
        )


def _harness(program: Program, buffers: Sequence[_Buffer]) -> str:
    lines, arguments = [], []
    for buffer in buffers:
        name = buffer.parameter.name
        kind = buffer.form.dtype.c_name
        lines.append(f"    {kind} *{name} = buffer({buffer.bytes}, {buffer.alignment});")
        lines.append(f'    transfer("{buffer.file}", "rb", {name}, {buffer.bytes});')
        arguments += buffer.arguments
    workspace = program.workspace_for(_THREADS)
    if workspace:
        lines.append(f"    void *workspace_memory = buffer({workspace}, 64);")
        arguments.append("workspace_memory")
    if program.parallel:
        arguments.append(str(_THREADS))
    lines.append(f"    {program.name}({', '.join(arguments)});")
    for buffer in buffers:
        if buffer.parameter.writes:
            lines.append(f'    transfer("{buffer.file}", "wb", {buffer.parameter.name}, {buffer.bytes});')
    return _HARNESS.format(name=program.name, body="\n".join(lines))


def _first_lines(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines()[:_LINES_SHOWN])


def _build(program: Program, folder: Path, compiler: Compiler, sanitizers: str) -> None:
    units = [f"{program.name}.c", "harness_main.c"]
    flags = [*FLAGS, f"-fsanitize={sanitizers}", *(["-pthread"] if program.parallel else []), *program.flags]
    command = [*compiler.command, *flags, "-o", "harness", *units, "-lm"]
    try:
        done = run(command, timeout_seconds(), folder)
    except OSError as error:
        raise ToolchainError(f"{compiler.name} failed to build the sanitized {program.name}: {error}") from error
    if done.code:
        raise ToolchainError(
            f"{compiler.name} failed to build the sanitized {program.name}:\n{_first_lines(done.err)}",
            "sanitizers need their runtime library, e.g. `apt install libclang-rt-dev` or gcc's libasan",
        )


def _execute(program: Program, folder: Path) -> None:
    try:
        done = run([str(folder / "harness")], timeout_seconds(), folder, _ENVIRONMENT)
    except TimeoutError as error:
        raise VerificationError(f"{program.name} does not end: {error}") from error
    if done.code:
        raise VerificationError(
            f"{program.name} under the sanitizers ended with code {done.code}:\n{_first_lines(done.err)}",
            "the frames above name the line of the emitted C",
        )
