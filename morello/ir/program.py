"""The answer of an emitter: C source and header, and how to call what they define."""

from __future__ import annotations

import attrs

from morello.ir.signature import Signature
from morello.ir.tensor import TensorSpec


@attrs.frozen
class Parameter:
    """One pointer parameter of the emitted function, and the operand it stands for: its number in the Spec.

    An operand that is not contiguous is followed by one `ptrdiff_t` stride, in values, for each of its
    outer physical dimensions that are not in its contiguous run; `strides` counts them.
    """

    name: str
    operand: int
    tensor: TensorSpec
    reads: bool
    writes: bool
    strides: int = 0

    @property
    def stride_endings(self) -> tuple[str, ...]:
        """Return what the names of its strides add to its own."""
        return tuple(f"_stride{number}" for number in range(self.strides))

    @property
    def stride_names(self) -> tuple[str, ...]:
        return tuple(self.name + ending for ending in self.stride_endings)


@attrs.frozen
class Program:
    """Self-contained C. `source` includes nothing but system headers; `header` declares its function.

    `declarations` are the part of the source that stands in the header too. `cpu_tests` are conditions in C that tell
    at run time if the CPU has what the code needs: all features, the target's among them; None where C cannot tell.

    The function takes the parameters in their order, that of a call, then, unless it needs 0 bytes of workspace, a
    pointer to that many bytes aligned to 64, then, if it has parallel loops, the number of threads, an `int` of at
    least 1.
    The workspace is `workspace` bytes, and `thread_workspace` more per thread. `flags` are what the C compiler
    needs to be told for this target; how it is told of threads depends on the compiler. `cpu_features` are what the
    code needs of a CPU besides what the target does. `implicit_dims` is that of the signature.
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

    def including(self, header: str) -> str:
        """Return the source with `#include` of the header, as a file of this name, in place of its declarations."""
        include = f'#include "{header}"\n'
        return self.source.replace(self.declarations, include, 1) if self.declarations else include + self.source

    @property
    def signature(self) -> Signature:
        """Return the names of operands in C, in the order of a call."""
        names, operands = zip(*((one.name, one.operand) for one in self.parameters), strict=True)
        return Signature(names, operands, self.implicit_dims)

    def workspace_for(self, threads: int) -> int:
        """Return bytes of workspace for a call with this many threads."""
        return self.workspace + threads * self.thread_workspace
