"""A model as C: one function that calls kernels on tensors in an arena, and the weights as bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np
from numpy.lib.stride_tricks import as_strided

from morello.api.kernel import Kernel
from morello.codegen.interface import header
from morello.codegen.reserved import spelled
from morello.ir.program import Parameter
from morello.models.arena import ALIGNMENT, Arena, placed
from morello.models.places import Buffer, Image, Place
from morello.models.plan import Call, Plan
from morello.run.arrays import form_of, pack

_BORDER = """\
/* Clears the border of images, `outer` times rows of `columns` pixels of `pixel` bytes. */
static void border(char *at, size_t outer, size_t rows, size_t columns, size_t pixel,
                   size_t top, size_t left, size_t bottom, size_t right) {
    for (size_t image = 0; image < outer; ++image, at += rows * columns * pixel) {
        memset(at, 0, top * columns * pixel);
        for (size_t row = top; row < rows - bottom; ++row) {
            memset(at + row * columns * pixel, 0, left * pixel);
            memset(at + ((row + 1) * columns - right) * pixel, 0, right * pixel);
        }
        memset(at + (rows - bottom) * columns * pixel, 0, bottom * columns * pixel);
    }
}
"""


def _up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@attrs.frozen(eq=False)
class ModelProgram:
    """The program of a model: `kernels` are those of the plan's calls."""

    name: str
    plan: Plan
    kernels: tuple[Kernel, ...]

    @cached_property
    def arena(self) -> Arena:
        """Return the places of all buffers of the arena."""
        lives = self.plan.buffers
        return placed({one: one.bytes for one in lives}, lives)

    @cached_property
    def workspace(self) -> int:
        """Return the bytes of the workspace: the arena, then that of the kernels."""
        return _up(self.arena.size) + max((_up(kernel.program.workspace) for kernel in self.kernels), default=0)

    @cached_property
    def _weights(self) -> tuple[Mapping[tuple[object, ...], int], bytes]:
        starts: dict[tuple[object, ...], int] = {}
        parts: list[bytes] = []
        size = 0
        for call, kernel in zip(self.plan.calls, self.kernels, strict=True):
            for place, one in zip(call.written.places, kernel.program.parameters, strict=True):
                key = _key(place, one)
                if place.buffer.kind != "constant" or key in starts:
                    continue
                value = self.plan.graph.tensors[place.buffer.name].value
                assert value is not None
                flat = np.ascontiguousarray(value).reshape(-1)
                if one.pack:
                    width = flat.itemsize
                    array = as_strided(flat[place.start :], place.shape, [width * each for each in place.strides])
                    flat = pack(np.ascontiguousarray(array), one.tensor)
                data = flat.tobytes()
                starts[key] = size
                parts += [data, bytes(_up(len(data)) - len(data))]
                size += _up(len(data))
        return starts, b"".join(parts)

    @property
    def weights(self) -> bytes:
        """Return all constants, packed as their kernels take them."""
        return self._weights[1]

    @property
    def fields(self) -> Mapping[str, str]:
        """Return the names in C of the model's inputs and outputs."""
        found: dict[str, str] = {}
        for name in (*self.plan.graph.inputs, *self.plan.graph.outputs):
            plain = spelled(re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "tensor")
            plain = f"t{plain}" if plain[0].isdigit() else plain
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

        declarations = (
            f"/* The inputs, and the bytes of {name}.bin, which start at a multiple of {ALIGNMENT}. */\n"
            f"struct {name}_inputs {{\n    const void *weights;\n{rows(graph.inputs, 'const ')}}};\n\n"
            f"struct {name}_outputs {{\n{rows(graph.outputs, '')}}};\n\n"
            f"/* Runs the model; returns 0. The workspace has {name.upper()}_WORKSPACE bytes and starts at a multiple\n"
            f"   of {ALIGNMENT}; calls at the same time need one each. */\n"
            f"int {name}_run(const struct {name}_inputs *inputs, struct {name}_outputs *outputs, void *workspace);\n"
        )
        sizes = {"WORKSPACE": self.workspace, "WEIGHTS": len(self.weights)}
        defined = [*(f"#define {name.upper()}_{word} {size}" for word, size in sizes.items()), ""]
        return header(f"MORELLO_MODEL_{name.upper()}_H", f"The model {name}, made by Morello.", declarations, defined)

    @cached_property
    def source(self) -> str:
        """Return the C of the function that runs the model."""
        name, plan = self.name, self.plan
        programs = dict.fromkeys(kernel.program for kernel in self.kernels)
        declared = "".join(f"{one.prototype};\n" for one in programs)
        given = f"const struct {name}_inputs *inputs, struct {name}_outputs *outputs, void *workspace"
        lines = [f"int {name}_run({given}) {{"]
        lines += ["    char *const arena = workspace;", "    const char *const weights = inputs->weights;"]
        births: dict[int, list[Buffer]] = {}
        for buffer, (first, _) in plan.buffers.items():
            births.setdefault(first, []).append(buffer)
        for number, (call, kernel) in enumerate(zip(plan.calls, self.kernels, strict=True)):
            lines += [self._border(buffer) for buffer in births.get(number, ()) if _bordered(buffer.image)]
            lines.append(self._call(call, kernel))
        used = "    (void)arena;\n    (void)weights;\n"
        body = "\n".join(lines)
        border = _BORDER if "    border(" in body else ""
        include = f'#include "{name}.h"\n#include <string.h>\n'
        head = f"/* The model {name}, made by Morello. */\n{include}\n{declared}\n{border}"
        return f"{head}\n{body}\n{used}    return 0;\n}}\n"

    def _border(self, buffer: Buffer) -> str:
        image = buffer.image
        assert image
        sizes = (image.outer, image.rows, image.columns, image.pixel * buffer.dtype.bytes)
        numbers = ", ".join(map(str, (*sizes, image.top, image.left, image.bottom, image.right)))
        return f"    border(arena + {self.arena.starts[buffer]}, {numbers});"

    def _call(self, call: Call, kernel: Kernel) -> str:
        """Return the call of a kernel."""
        program = kernel.program
        given: list[str] = []
        for place, one in zip(call.written.places, program.parameters, strict=True):
            given.append(self._pointer(place, one))
            form = form_of(one.tensor)
            given += [str(place.strides[axis]) for axis in form.order[: form.free]] if one.strides else []
        if program.workspace:
            given.append(f"arena + {_up(self.arena.size)}")
        about = _comment(f"{call.step.name}: {call.step}")
        return f"    /* {about} */\n    {program.name}({', '.join(given)});"

    def _pointer(self, place: Place, one: Parameter) -> str:
        buffer, fields = place.buffer, self.fields
        const = "" if one.writes else "const "
        kind = f"({const}{one.tensor.state.dtype.c_name} *)"
        if buffer.kind in ("input", "output"):
            start = f" + {place.start}" * (place.start != 0)
            return f"{buffer.kind}s->{fields[buffer.name]}{start}"
        if buffer.kind == "constant":
            start = self._weights[0][_key(place, one)] + (0 if one.pack else place.start * buffer.dtype.bytes)
            return f"{kind}(weights + {start})"
        return f"{kind}(arena + {self.arena.starts[buffer] + place.start * buffer.dtype.bytes})"


def _key(place: Place, one: Parameter) -> tuple[object, ...]:
    """Return what determines the bytes of a constant."""
    return (place.buffer.name, *((place.start, place.shape, place.strides, one.tensor) if one.pack else ()))


def _bordered(image: Image | None) -> bool:
    return image is not None and any((image.top, image.left, image.bottom, image.right))


def _comment(text: str) -> str:
    return re.sub(r"[^\w ./:+=\[\](),-]", "?", text).replace("*/", "? ")[:120]
