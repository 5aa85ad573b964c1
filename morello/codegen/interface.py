"""The interface of emitted C: declaration and header of its function, and the head of the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import attrs

from morello.codegen.reserved import spelled
from morello.codegen.threads import OWN_STORES, RUNTIME
from morello.codegen.writer import Names
from morello.errors import EmitError
from morello.ir.impl import Impl, cost_and_peak, leaves
from morello.ir.in_place import output_over
from morello.ir.program import Parameter
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.kernels.buffers import ALIGNMENT
from morello.kernels.target import Target
from morello.schedule import lines, schedule_of


def parameters_of(
    logical: LogicalSpec, signature: Signature, names: Names, packs: Mapping[int, str] = MappingProxyType({})
) -> tuple[Parameter, ...]:
    """Return the parameters for the operands of a Spec, in call order, with names that `names` makes unique.

    `packs` are the functions that pack constants, by operand. Raises SpecError for an input that cannot be overwritten.
    """
    made: list[Parameter] = []
    over = signature.overwritten
    output = None if over is None else output_over(logical, over)
    for name, operand in zip(signature.names, signature.operands, strict=True):
        if operand == output:
            continue
        one, tensor = logical.declared[operand], logical.operand(operand)
        outer = 0 if tensor.state.layout is None else len(tensor.state.layout.dims) - tensor.state.contig
        wanted = Parameter(spelled(name), operand, tensor, one.reads, one.writes, outer, packs.get(operand, ""))
        if operand == over:
            wanted = attrs.evolve(wanted, writes=True, output=output)
        made.append(attrs.evolve(wanted, name=names.fresh(wanted.name, wanted.stride_endings)))
    return tuple(made)


#: The compiler's flags for all of Morello's C; those of targets come after them.
COMMON_FLAGS = ("-std=gnu11", "-O3", "-fno-math-errno")
#: The parameters of a function that runs a loop's shares on threads.
RUNNER = "void (*body)(void *, int), void *data, int count"
#: The parameter that receives the caller's threads.
RUN = f"void (*run)({RUNNER})"
#: Comments on the parameter for the number of threads, and on the function that sets the caller's.
ON_THREADS = """\
/* {threads}: how many threads may be used, at least 1; results do not depend on it.
   Compile with OpenMP, or link with pthreads. The calling thread does the work that gets no other thread. */
/* {setter}: from now on run(body, data, count) shares the loops among threads of yours.
   It calls body(data, 0) to body(data, count - 1), in any order and on any threads, and returns when all have;
   count is at most {threads}. With NULL the function uses its own threads again. */"""


@attrs.frozen(kw_only=True)
class Interface:
    """The interface of the function `name`.

    `summary` describes it in a line. The workspace has `workspace` bytes shared by all threads, and `thread_workspace`
    for each. Comments leave out the first `implicit_dims` dimensions of operands. `packs` are the functions beside it
    that pack its constants.
    """

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    workspace: int = 0
    thread_workspace: int = 0
    parallel: bool = False
    workspace_name: str = "workspace"
    threads_name: str = "threads"
    implicit_dims: int = 0
    packs: tuple[Interface, ...] = ()
    #: The name of the parameter for a size that is known at run time, and comments on it.
    size_name: str = ""
    about_size: tuple[str, ...] = ()

    @property
    def prototype(self) -> str:
        """Return the declarator of the function."""
        written: list[str] = []
        for one in self.parameters:
            const = "" if one.writes else "const "
            written.append(f"{const}{one.tensor.state.dtype.c_name} *restrict {one.name}")
            written += [f"ptrdiff_t {stride}" for stride in one.stride_names]
        if self.workspace or self.thread_workspace:
            written.append(f"void *restrict {self.workspace_name}")
        if self.parallel:
            written.append(f"int {self.threads_name}")
        if self.size_name:
            written.append(f"int64_t {self.size_name}")
        return f"{'int' if self.size_name else 'void'} {self.name}({', '.join(written)})"

    @property
    def declarations(self) -> str:
        """Return the declarations for files that call or define the function."""
        own = f"{self.prototype};\n" + (f"{self.setter};\n" if self.parallel else "")
        return own + "".join(one.declarations for one in self.packs)

    @property
    def setter(self) -> str:
        """Return the declarator of the function that sets the caller's threads."""
        return f"void {setter_name(self.name)}({RUN})"

    @property
    def header(self) -> str:
        """Return the header."""
        summary = f"{self.summary}, made by Morello."
        return header(f"MORELLO_{self.name.upper()}_H", summary, self.declarations, self.description())

    def command(self, flags: Sequence[str]) -> str:
        """Return the comment with the compiler's command, for a target that needs `flags`."""
        threads = ", with -fopenmp or -pthread" if self.parallel else ""
        return f"Compile: cc {' '.join([*COMMON_FLAGS, *flags])} -c {self.name}.c{threads}"

    def description(self) -> Iterator[str]:
        """Yield comments on all parameters, and the workspace macro."""
        for one in self.parameters:
            tensor = one.tensor.without_leading(self.implicit_dims)
            shape = "×".join(map(str, tensor.shape))
            layout = f"as {one.pack} packs it" if one.pack else tensor.state.layout or "in order"
            overwritten = "" if one.output is None else ", overwritten"
            yield f"/* {one.name}: {shape} {tensor.state.dtype}, {layout}{overwritten} */"
            if one.strides:
                yield f"/* {one.name}_stride*: distance in values along its outer dimensions, slowest first */"
        macro, threads = workspace_macro(self.name), self.threads_name
        if self.parallel:
            yield ON_THREADS.format(threads=threads, setter=setter_name(self.name))
        if self.workspace or self.thread_workspace:
            call, size = macro, f"{self.workspace}"
            if self.parallel:
                call, size = f"{macro}({threads})", f"({size} + (size_t)({threads}) * {self.thread_workspace})"
            yield f"/* {self.workspace_name}: {call if self.parallel else size} bytes, aligned to {ALIGNMENT} */"
            yield f"#define {call} {size}"
        for one in self.packs:
            (source, made), size = one.parameters, f"{one.name.upper()}_BYTES"
            yield f"/* {one.name}: packs {source.name} for all calls of {self.name}; {made.name} has {size} bytes */"
            yield f"#define {size} {made.tensor.bytes}"
            yield from one.description()
        yield from self.about_size


def pack_name(name: str, signature: Signature, operand: int, packs: Collection[int]) -> str:
    """Return the name of the function that packs an operand, one of `packs`, for a function."""
    own = signature.in_spec_order(signature.names)[operand]
    return f"{name}_pack" if len(packs) == 1 else f"{name}_pack_{own}"


def pack_signature(signature: Signature, operand: int) -> Signature:
    """Return the signature of the function that packs an operand."""
    own = signature.in_spec_order(signature.names)[operand]
    return Signature((own, "packed"), (0, 1), signature.implicit_dims)


def setter_name(name: str) -> str:
    """Return the name of the function that sets the caller's threads for a function or library."""
    return f"{name}_set_parallel"


def workspace_macro(name: str) -> str:
    """Return the name of the macro for the size of a function's workspace."""
    return f"{name.upper()}_WORKSPACE"


def header(guard: str, about: str, declarations: str, before: Iterable[str] = ()) -> str:
    """Return a header for C and C++ with these declarations, and lines before them."""
    rows = [f"/* {about} */", f"#ifndef {guard}", f"#define {guard}", ""]
    rows += ["#include <stddef.h>", "#include <stdint.h>", "", *before, "#ifdef __cplusplus", 'extern "C" {']
    rows += [f"#endif\n{declarations.replace('*restrict ', '*__restrict ')}#ifdef __cplusplus", "}", "#endif"]
    return "\n".join([*rows, "", f"#endif /* {guard} */", ""])


def unfinished(name: str, impl: Impl) -> EmitError | None:
    """Return the error for compiling a program with holes; None if it has none."""
    holes = [leaf.spec.logical.short() for leaf in leaves(impl)]
    if not holes:
        return None
    count = f"{len(holes)} hole{'s' if len(holes) > 1 else ''}"
    listed = ", ".join(holes[:3]) + (", ..." if len(holes) > 3 else "")
    return EmitError(f"{name} has {count}: {listed}", "finish the schedule, or leave the rest to search: `synthesize`")


def preamble(
    impl: Impl,
    target: Target,
    interface: Interface,
    macros: Mapping[str, str],
    flags: Sequence[str],
    includes: Iterable[str],
    definitions: Iterable[str],
    about: Sequence[str] = (),
) -> list[str]:
    """Return the parts that precede the code; a blank line goes between them.

    `macros` test for CPU features that `flags` enable; `definitions` are types and functions. Lines `about` a program
    of several replace its cost and schedule.
    """
    top = f"{_banner(impl, target, interface, flags, about)}\n{requirements(interface.name, macros, flags)}"
    if not about and (error := unfinished(interface.name, impl)):
        top += f'#error "{error.message}: {error.hint}"\n'
    before, runtime = ([OWN_STORES], [RUNTIME]) if interface.parallel else ([], [])
    included = "".join(f"#include <{header}>\n" for header in includes)
    return [top, *before, included, interface.declarations, *runtime, *(f"{text}\n" for text in definitions)]


def _banner(impl: Impl, target: Target, interface: Interface, flags: Sequence[str], about: Sequence[str]) -> str:
    totals, least = cost_and_peak(impl, partial=True), "at least " if [*leaves(impl)] else ""
    peaks = ", ".join(f"{level.name} {peak}" for level, peak in zip(target.levels, totals.peak, strict=True) if peak)
    implied = impl.spec.logical.implied
    rows = [
        f"{interface.summary}, made by Morello.",
        *([f"Sizes: {implied}."] if implied and not about else []),
        interface.command(flags),
        "",
        *about,
    ]
    if not about:
        rows.append(f"Cost {least}{totals.cost}; memory in bytes: {f'{least}{peaks}' if peaks else 'none'}. Schedule:")
        rows += [f"    {row}" for row in lines(schedule_of(impl))]
    return "/*\n" + "\n".join(f" * {row}".rstrip() for row in rows) + "\n */"


def requirements(name: str, macros: Mapping[str, str], flags: Sequence[str]) -> str:
    """Return preprocessor lines that fail unless all CPU features with `macros`, by feature, are enabled.

    `flags` enable all of them.
    """
    if not macros:
        return ""
    lacks = " || ".join(f"!defined({macro})" for macro in macros.values())
    needs = f"{name} needs {', '.join(macros)}: compile it with {' '.join(flags)}"
    return f'#if {lacks}\n#error "{needs}"\n#endif\n'
