"""The result of an emitter: C source and header, and how to call the function."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from morello.ir.signature import Signature
from morello.ir.tensor import TensorSpec


@attrs.frozen
class Parameter:
    """One pointer parameter of the emitted function, and the number of its operand in the Spec.

    An operand that is not contiguous is followed by one `ptrdiff_t` stride, in values, for each physical dimension
    outside the contiguous run; `strides` is their number. A constant has the form that the function `pack` gives it.
    An input that is overwritten also is the parameter of operand `output`, and `writes`.
    """

    name: str
    operand: int
    tensor: TensorSpec
    reads: bool
    writes: bool
    strides: int = 0
    pack: str = ""
    output: int | None = None

    @property
    def stride_endings(self) -> tuple[str, ...]:
        """Return the suffixes of the names of its strides."""
        return tuple(f"_stride{number}" for number in range(self.strides))

    @property
    def stride_names(self) -> tuple[str, ...]:
        return tuple(self.name + ending for ending in self.stride_endings)


def of_operands(parameters: Sequence[Parameter]) -> list[Parameter]:
    """Return the parameter of each operand of the Spec."""
    found = {one.output: one for one in parameters if one.output is not None}
    found |= {one.operand: one for one in parameters}
    return [found[operand] for operand in range(len(found))]


@attrs.frozen
class Program:
    """Self-contained C. `source` includes nothing but system headers; `header` declares its function.

    `declarations` are the part of the source that the header repeats. `cpu_tests` are conditions in C that test at run
    time for all CPU features that the code needs, with the target's; None if C cannot test for one.

    The function takes the parameters in call order; then, unless the workspace is empty, a pointer to it, aligned to
    64 bytes; then, if it has parallel loops, the number of threads, an `int` of at least 1. The workspace has
    `workspace` bytes, and `thread_workspace` more for each thread. A program for several sizes takes the `size` of this
    call last, an `int64_t`, and returns an error code. `flags` are the compiler flags for this target,
    without those for threads. `cpu_features` are needed in addition to the target's. `implicit_dims` is that of the
    signature. `packs` are functions, of the same source, that pack constants, in the order of the operands.
    """

    name: str
    source: str
    header: str
    prototype: str
    parameters: tuple[Parameter, ...]
    workspace: int
    flags: tuple[str, ...]
    parallel: bool = False
    thread_workspace: int = 0
    cpu_features: tuple[str, ...] = ()
    declarations: str = ""
    cpu_tests: tuple[str, ...] | None = None
    implicit_dims: int = 0
    packs: tuple[Program, ...] = ()
    size: int | None = None

    def including(self, header: str) -> str:
        """Return the source with an `#include` of this header in place of its declarations."""
        include = f'#include "{header}"\n'
        return self.source.replace(self.declarations, include, 1) if self.declarations else include + self.source

    @property
    def signature(self) -> Signature:
        """Return the names of operands in C, in the order of a call."""
        names, operands = zip(*((one.name, one.operand) for one in self.parameters), strict=True)
        return Signature(names, operands, self.implicit_dims)

    @property
    def last_numbers(self) -> list[int]:
        """Return the parameter after all others: the size, if it takes one."""
        return [] if self.size is None else [self.size]

    def workspace_for(self, threads: int) -> int:
        """Return bytes of workspace for a call with this many threads."""
        return self.workspace + threads * self.thread_workspace
