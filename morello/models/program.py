"""A model as C: one function that calls kernels on tensors in an arena, and the weights as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs

from morello.api.kernel import Kernel
from morello.codegen.interface import ON_THREADS, RUN, header, setter_name
from morello.codegen.library import CFile, choice_of, demands
from morello.codegen.reserved import hides, spelled
from morello.codegen.threads import RUNTIME, SET_RUNNER, shared_team
from morello.ir.program import Parameter
from morello.kernels.target import Target
from morello.models.arena import ALIGNMENT, Arena, placed, rounded
from morello.models.places import Buffer, Image, Place
from morello.models.plan import Call, Plan
from morello.models.weights import Weights, weights_of
from morello.run.arrays import form_of

_BORDER = """\
/* Clears the border of images, `outer` times rows of `columns` pixels of `pixel` bytes. */
static void border(char *at, size_t outer, size_t rows, size_t columns, size_t pixel,
                   size_t top, size_t left, size_t bottom, size_t right) {
    for (size_t image = 0; image < outer; ++image, at += rows * columns * pixel) {
        /* The end of a row and the start of the next one are one range. */
        memset(at, 0, (top * columns + left) * pixel);
        for (size_t row = top + 1; row < rows - bottom; ++row)
            memset(at + (row * columns - right) * pixel, 0, (left + right) * pixel);
        memset(at + ((rows - bottom) * columns - right) * pixel, 0, (bottom * columns + right) * pixel);
    }
}
"""


@attrs.frozen(eq=False)
class Variant:
    """The kernels of a plan's calls for a target."""

    target: Target
    kernels: tuple[Kernel, ...]


@attrs.frozen(eq=False)
class ModelProgram:
    """The program of a model, whose function chooses among `variants` by the CPU. With `embed`, C has the weights.

    With more than one of `threads`, for which its kernels were found, calls have their number as a parameter.
    """

    name: str
    plan: Plan
    variants: tuple[Variant, ...]
    embed: bool = False
    threads: int = 1

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Return the kernels of the plan's calls, for the most demanding target."""
        return self._ordered[0].kernels

    @property
    def all_kernels(self) -> tuple[Kernel, ...]:
        """Return each kernel once, for all targets."""
        return tuple({one.program.name: one for each in self.variants for one in each.kernels}.values())

    @property
    def summary(self) -> str:
        """Return its name, targets, and the numbers of calls, kernels and bytes."""
        proven = sum(one.low >= one.cost for one in self.all_kernels)
        targets = ", ".join(one.target.full_name for one in self.variants)
        calls = f"{len(self.plan.calls)} calls of {len(self.all_kernels)} kernels, {proven} proven optimal"
        sizes = (
            f"workspace {self.workspace_for(self.threads) / 1024:,.0f} KiB, weights {len(self.weights) / 1024:,.0f} KiB"
        )
        return f"{self.name} for {targets}: {calls}; {sizes}"

    @cached_property
    def _ordered(self) -> list[Variant]:
        return sorted(self.variants, key=lambda one: demands(one.target), reverse=True)

    @cached_property
    def arena(self) -> Arena:
        """Return the places of all buffers, and of the workspace of each call without one of threads, by its number."""
        buffers = self.plan.buffers
        each = zip(*(one.kernels for one in self.variants), strict=True)
        needed = [max((one.program.workspace for one in kernels if not _shared(one)), default=0) for kernels in each]
        calls = {number: size for number, size in enumerate(needed) if size}
        sizes: dict[Buffer | int, int] = {**{one: one.bytes for one in buffers}, **calls}
        return placed(sizes, {**buffers, **{number: (number, number) for number in calls}})

    def workspace_for(self, threads: int) -> int:
        """Return the bytes of the workspace: those of the arena, and of one call that needs some for each thread."""
        return self._workspace[0] + threads * self._workspace[1]

    @cached_property
    def _workspace(self) -> tuple[int, int]:
        """Return the bytes of the workspace for all threads, and those for each."""
        calls = [one.program for one in self.all_kernels if _shared(one)]
        own = rounded(max((one.workspace for one in calls), default=0))
        return self.arena.size + own, max((one.thread_workspace for one in calls), default=0)

    @cached_property
    def _weights(self) -> Weights:
        return weights_of(self.plan, [one.kernels for one in self._ordered])

    @property
    def weights(self) -> bytes:
        """Return all constants, packed as their kernels take them."""
        return self._weights.data

    @cached_property
    def fields(self) -> Mapping[str, str]:
        """Return the names in C of the model's inputs and outputs."""
        found: dict[str, str] = {}
        for name in (*self.plan.graph.inputs, *self.plan.graph.outputs):
            plain = re.sub(r"\W", "_", spelled(name), flags=re.ASCII).lstrip("_") or "tensor"
            plain = f"t{plain}" if plain[0].isdigit() or hides(plain) else plain
            number, unique = 1, plain
            while unique in found.values() or unique == "weights":
                number, unique = number + 1, f"{plain}_{number}"
            found[name] = unique
        return found

    @cached_property
    def header(self) -> str:
        """Return the header."""
        graph, name = self.plan.graph, self.name

        def rows(names: Sequence[str], const: str) -> str:
            tensors = (graph.tensors[one] for one in names)
            return "".join(
                f"    {const}{one.dtype.c_name} *{self.fields[one.name]}; "
                f"/* {'×'.join(map(str, one.shape)) or 'a value'} {one.dtype} */\n"
                for one in tensors
            )

        weights = "" if self.embed else "    const void *weights;\n"
        about = "" if self.embed else f", and the bytes of {name}.bin, which start at a multiple of {ALIGNMENT}"
        fault = " or 1 if it has no code for this CPU," if len(self.variants) > 1 else ""
        shared = self.threads > 1
        macro = f"{name.upper()}_WORKSPACE{'(threads)' * shared}"
        declarations = (
            f"/* The inputs{about}. */\n"
            f"struct {name}_inputs {{\n{weights}{rows(graph.inputs, 'const ')}}};\n\n"
            f"struct {name}_outputs {{\n{rows(graph.outputs, '')}}};\n\n"
            f"/* Runs the model; returns 0,{fault} and allocates no memory. The workspace has\n"
            f"   {macro} bytes and starts at a multiple of {ALIGNMENT}.\n"
            "   Calls at the same time need one each. */\n"
            f"int {name}_run({self._parameters});\n"
        )
        own, each = self._workspace
        size = f"({own} + (size_t)(threads) * {each})" if shared else f"{own}"
        defined = [f"#define {macro} {size}", f"#define {name.upper()}_WEIGHTS {len(self.weights)}", ""]
        if shared:
            about = ON_THREADS.format(threads="threads", setter=setter_name(name))
            declarations += f"\n{about}\nvoid {setter_name(name)}({RUN});\n"
        return header(f"MORELLO_MODEL_{name.upper()}_H", f"The model {name}, made by Morello.", declarations, defined)

    @cached_property
    def units(self) -> Mapping[str, CFile]:
        """Return the C files by name: one for each kernel, and that of the model."""
        kernels = {f"{one.program.name}.c": CFile(one.program.source, one.program.flags) for one in self.all_kernels}
        return {**kernels, f"{self.name}.c": CFile(self.source, ())}

    @property
    def _parameters(self) -> str:
        """Return the parameters of the function that runs the model."""
        name, threads = self.name, ", int threads" * (self.threads > 1)
        return f"const struct {name}_inputs *inputs, struct {name}_outputs *outputs, void *workspace{threads}"

    @property
    def parallel(self) -> bool:
        """Return whether a kernel has parallel loops."""
        return any(one.program.parallel for one in self.all_kernels)

    def _runtime(self) -> str:
        """Return the C by which all kernels share a team of threads, and the function that sets the caller's."""
        setter = f"void {setter_name(self.name)}({RUN})"
        setters = [setter_name(one.program.name) for one in self.all_kernels if one.program.parallel]
        if not setters:
            return f"{setter} {{\n    (void)run;\n}}\n"
        declared = "".join(f"void {one}({RUN});\n" for one in setters)
        calls = "".join(f"        {one}(morello_share_team);\n" for one in setters)
        return (
            f"{declared}\n{RUNTIME}{shared_team()}\n{setter} {{\n    {SET_RUNNER}\n}}\n\n"
            "/* Lets all kernels use the threads of this file. */\nstatic void share_team(void) {\n"
            "    static int shared;\n    if (!__atomic_load_n(&shared, __ATOMIC_ACQUIRE)) {\n"
            f"{calls}        __atomic_store_n(&shared, 1, __ATOMIC_RELEASE);\n    }}\n}}\n"
        )

    @cached_property
    def source(self) -> str:
        """Return the C of the function that runs the model."""
        name, several = self.name, len(self.variants) > 1
        declared = "".join(f"{one.program.prototype};\n" for one in self.all_kernels)
        parts = [f"/* The model {name}, made by Morello. */", f'#include "{name}.h"\n#include <string.h>\n', declared]
        given, words = self._parameters, f"inputs, outputs, workspace{', threads' * (self.threads > 1)}"
        if self.embed:
            parts.append(f"extern const unsigned char {name}_weights[{name.upper()}_WEIGHTS];\n")
        bodies = [
            f"static void run{f'_{one.target.c_name}' * several}({given}) {{\n{self._body(one)}}}\n"
            for one in self._ordered
        ]
        parts += [_BORDER] if any("    border(" in one for one in bodies) else []
        parts += [self._runtime()] if self.threads > 1 else []
        parts += bodies
        if several:
            programs = [(one.target, [kernel.program for kernel in one.kernels]) for one in self._ordered]
            parts.append(choice_of(name, programs))
            cases = "".join(
                f"    case {number}:\n        run_{one.target.c_name}({words});\n        return 0;\n"
                for number, one in enumerate(self._ordered, 1)
            )
            calls = f"    switch (morello_choice_{name}()) {{\n{cases}    default:\n        return 1;\n    }}\n"
        else:
            calls = f"    run({words});\n    return 0;\n"
        calls = "    share_team();\n" * self.parallel + calls
        return "\n".join([*parts, f"int {name}_run({given}) {{\n{calls}}}\n"])

    def _body(self, variant: Variant) -> str:
        """Return the statements that run the model on a target."""
        weights = f"(const char *){self.name}_weights" if self.embed else "inputs->weights"
        lines = ["    char *const arena = workspace;", f"    const char *const weights = {weights};"]
        births: dict[int, list[Buffer]] = {}
        for buffer, (first, _) in self.plan.buffers.items():
            births.setdefault(first, []).append(buffer)
        for number, (call, kernel) in enumerate(zip(self.plan.calls, variant.kernels, strict=True)):
            lines += [self._border(buffer) for buffer in births.get(number, ()) if _bordered(buffer.image)]
            lines.append(self._call(number, call, kernel))
        # Models of few inputs and constants use none of some.
        unused = ("arena", "weights", "inputs", "outputs", *(["threads"] if self.threads > 1 else []))
        lines += [f"    (void){one};" for one in unused]
        return "\n".join([*lines, ""])

    def _border(self, buffer: Buffer) -> str:
        image = buffer.image
        assert image
        sizes = (image.outer, image.rows, image.columns, image.pixel * buffer.dtype.bytes)
        numbers = ", ".join(map(str, (*sizes, image.top, image.left, image.bottom, image.right)))
        return f"    border(arena + {self.arena.starts[buffer]}, {numbers});"

    def _call(self, number: int, call: Call, kernel: Kernel) -> str:
        """Return the call of a kernel."""
        program = kernel.program
        given: list[str] = []
        for place, one in zip(call.written.places, program.parameters, strict=True):
            given.append(self._pointer(place, one, kernel))
            form = form_of(one.tensor)
            given += [str(place.strides[axis]) for axis in form.order[: form.free]] if one.strides else []
        if _shared(kernel):
            given.append(f"arena + {self.arena.size}")
        elif program.workspace:
            given.append(f"arena + {self.arena.starts[number]}")
        if program.parallel:
            given.append("threads")
        about = _comment(f"{call.step.name}: {call.step}")
        return f"    /* {about} */\n    {program.name}({', '.join(given)});"

    def _pointer(self, place: Place, one: Parameter, kernel: Kernel) -> str:
        buffer, fields = place.buffer, self.fields
        const = "" if one.writes else "const "
        kind = f"({const}{one.tensor.state.dtype.c_name} *)"
        if buffer.kind in ("input", "output"):
            start = f" + {place.start}" * (place.start != 0)
            return f"{buffer.kind}s->{fields[buffer.name]}{start}"
        if buffer.kind == "constant":
            return f"{kind}(weights + {self._weights.start(place, one, kernel)})"
        return f"{kind}(arena + {self.arena.starts[buffer] + place.start * buffer.dtype.bytes})"


def _shared(kernel: Kernel) -> bool:
    """Return whether a kernel needs workspace for each thread."""
    return kernel.program.thread_workspace > 0


def _bordered(image: Image | None) -> bool:
    return image is not None and any((image.top, image.left, image.bottom, image.right))


def _comment(text: str) -> str:
    return re.sub(r"[^\w ./:+=\[\](),-]", "?", text)[:120]
