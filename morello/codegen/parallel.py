"""Parallel loops in C: the body becomes a function over a range of tiles; each thread gets a range."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from math import prod

import attrs

from morello.codegen.writer import CWriter
from morello.ir.index import Symbol, as_index
from morello.ir.spec import LogicalSpec
from morello.kernels.buffers import ALIGNMENT, View

#: The bytes between the parts of the workspace that threads have. What a core fetches ahead of one thread's accesses
#: takes lines from the next thread: on Zen 4, a convolution of 440 µs takes 340 µs on two threads with 8 KiB between
#: them, in most processes also with 16 KiB, and 230 µs with 32 KiB or more.
_APART = 32 << 10


@attrs.frozen
class Captured:
    """A variable captured by a parallel loop: name, C type, and value at the start of the loop."""

    name: str
    kind: str
    value: str


@attrs.frozen
class Range:
    """The names of the parameters and of the tile counter in a loop's function."""

    given: str
    loop: str
    thread: str
    first: str
    end: str
    tile: str


@attrs.define
class FunctionCode:
    """The code of a function so far, that of the program or of a parallel loop's body.

    `names` are the outer names that it uses, `held` the bytes of the workspace that are in use, `workspace` the most
    that were. `around` are pairs of statements, for the start and the end of the function or of each thread's share.
    """

    writer: CWriter = attrs.field(factory=CWriter)
    names: set[str] = attrs.field(factory=set[str])
    held: int = 0
    workspace: int = 0
    around: dict[tuple[str, str], None] = attrs.field(factory=dict[tuple[str, str], None])

    @property
    def stride(self) -> int:
        """Return the bytes from the part of the workspace that a thread has to that of the next."""
        return self.workspace and self.workspace + _APART

    @contextmanager
    def holding(self, size: int) -> Generator[int]:
        """Yield the start of bytes of the workspace, in use within the context."""
        start = self.held
        self.held += -(-size // ALIGNMENT) * ALIGNMENT
        self.workspace = max(self.workspace, self.held)
        yield start
        self.held = start


class ParallelLoops:
    """The parallel loops of one program: their functions, and the workspace that each thread needs.

    `workspace_name` and `threads_name` are parameters of the program.
    """

    def __init__(self, workspace_name: str, threads_name: str):
        self._workspace_name, self._threads_name = workspace_name, threads_name
        self.functions: list[str] = []
        #: Bytes per thread.
        self.workspace = 0

    def __bool__(self) -> bool:
        return bool(self.functions)

    def add(
        self, program: str, names: Range, around: Sequence[Captured], counters: Sequence[Symbol], body: FunctionCode
    ) -> list[str]:
        """Add the function that runs a body on a range of tiles; return the lines that run all tiles.

        `around` are the variables that the body may use; `counters` number the tiles, the last one fastest.
        """
        self.workspace = max(self.workspace, body.stride)
        captured = [one for one in around if one.name in body.names]
        name = f"{program}_part{len(self.functions) + 1}"
        self.functions.append(self._function(name, names, captured, counters, body))
        tiles = prod(counter.extent or 1 for counter in counters)
        return [
            f"const struct {name} {names.given} = {{{', '.join(one.value for one in captured)}}};",
            f"morello_parallel({name}, &{names.given}, {tiles}, {self._threads_name});",
        ]

    def _function(
        self,
        name: str,
        names: Range,
        captured: Sequence[Captured],
        counters: Sequence[Symbol],
        body: FunctionCode,
    ) -> str:
        """Return the struct of captured variables, and the functions that run a range of tiles.

        One of them takes the variables as parameters: `restrict` has no effect on pointers read from a struct.
        """
        writer = CWriter()
        with writer.block(f"struct {name}", end=";"):
            for variable in captured:
                writer.line(f"{variable.kind}{variable.name};")
        writer.line()
        tiles = f"ptrdiff_t {names.first}, ptrdiff_t {names.end}"
        parameters = "".join(f"{_constant(variable)}, " for variable in captured) + tiles
        head = f"for (ptrdiff_t {names.tile} = {names.first}; {names.tile} < {names.end}; ++{names.tile})"
        with writer.block(f"static void {name}_tiles({parameters})"), writer.block(head):
            for line in _counted(counters, names.tile):
                writer.line(line)
            writer.add(body.writer)
        writer.line()
        with writer.block(f"static void {name}(const void *{names.given}, ptrdiff_t {names.thread}, {tiles})"):
            writer.line(f"const struct {name} *const {names.loop} = {names.given};")
            if not body.workspace:
                writer.line(f"(void){names.thread};")
            values: list[str] = []
            for variable in captured:
                shift = f" + {names.thread} * {body.stride}" if variable.name == self._workspace_name else ""
                values.append(f"{names.loop}->{variable.name}{shift}")
            with writer.around(body.around):
                writer.line(f"{name}_tiles({', '.join([*values, names.first, names.end])});")
        return writer.text()


def surroundings(logical: LogicalSpec, views: Sequence[View], workspace: Captured) -> list[Captured]:
    """Return the outer variables that a loop's body may use."""
    variables: dict[str, Captured] = {}
    for one, view in zip(logical.op.operands(len(logical.shape)), views, strict=True):
        buffer = view.buffer
        const = "" if one.writes else "const "
        if buffer.name not in variables or one.writes:
            kind = f"{const}{buffer.tensor.state.dtype.c_name} *restrict "
            variables[buffer.name] = Captured(buffer.name, kind, buffer.name)
        masks = (buffer.mask.rows, buffer.mask.columns) if buffer.mask else ()
        for each in masks:
            name = each.buffer.name
            variables.setdefault(
                name, Captured(name, f"const {each.buffer.tensor.state.dtype.c_name} *restrict ", name)
            )
        for each in (view, *masks):
            for index in (*each.buffer.strides, each.buffer.start, *each.starts):
                for symbol in as_index(index).symbols():
                    variables[symbol.name] = Captured(symbol.name, "ptrdiff_t ", symbol.name)
    variables[workspace.name] = workspace
    return [*variables.values()]


def _constant(variable: Captured) -> str:
    """Return the declaration of a variable as a constant."""
    return f"{variable.kind}const {variable.name}" if "*" in variable.kind else f"const {variable.kind}{variable.name}"


def _counted(counters: Sequence[Symbol], tile: str) -> Iterator[str]:
    """Yield declarations of the counters of a loop nest at a tile; the last one changes fastest."""
    extents = [counter.extent or 1 for counter in counters]
    for position, counter in enumerate(counters):
        inner = prod(extents[position + 1 :])
        value = f"{tile} / {inner}" if inner > 1 else tile
        yield f"const ptrdiff_t {counter} = {value}{f' % {extents[position]}' if position else ''};"
