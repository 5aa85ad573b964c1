"""The folder that `morello build` writes: C, weights, an example that runs the model, and files for build systems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from morello.codegen.library import cmake, pkg_config
from morello.models.graph import Tensor
from morello.models.program import ModelProgram

#: Bytes in a line of embedded weights.
_ROW = 64

_CMAKE = """\

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
    add_executable({name}_example main.c)
    target_link_libraries({name}_example {name})
endif()
"""
_INSTALLED = "install(FILES {name}.bin DESTINATION share/{name})\n"

_EXAMPLE = """\
/* Runs the model {name} once and prints the first values of its outputs.
   Usage: {usage}
   A file has the bytes of an input; without one, the input is zeros. */
#include "{name}.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns `size` bytes at a multiple of 64: those of the file `path`, or zeros if it is NULL. */
static void *bytes(const char *path, size_t size) {{
    void *made = aligned_alloc(64, (size + 64) / 64 * 64);
    if (!made) {{
        fprintf(stderr, "no memory for %zu bytes\\n", size);
        exit(1);
    }}
    memset(made, 0, size);
    FILE *file = path ? fopen(path, "rb") : NULL;
    if (path && (!file || fread(made, 1, size, file) != size)) {{
        fprintf(stderr, "%s: cannot read %zu bytes\\n", path, size);
        exit(1);
    }}
    if (file) {{
        fclose(file);
    }}
    return made;
}}

int main(int argc, char **argv) {{
    struct {name}_inputs inputs;
    struct {name}_outputs outputs;
{setup}    void *workspace = bytes(NULL, {macro}_WORKSPACE{given});
    if ({name}_run(&inputs, &outputs, workspace{more})) {{
        fprintf(stderr, "no code for this CPU\\n");
        return 1;
    }}
{shown}    return 0;
}}
"""
_SHOWN = """\
    printf("{field}:");
    for (size_t i = 0; i < {first}; ++i) {{
        printf(" %{form}", ({type})outputs.{field}[i]);
    }}
    printf("{end}\\n");
"""
_LARGEST = """\
    {{
        size_t largest = 0;
        for (size_t i = 1; i < {size}; ++i) {{
            if (outputs.{field}[i] > outputs.{field}[largest]) {{
                largest = i;
            }}
        }}
        printf("  the largest is value %zu\\n", largest);
    }}
"""


def files_of(program: ModelProgram) -> Mapping[str, bytes]:
    """Return all files by name: header, C, the weights, CMakeLists.txt, a file for pkg-config and an example."""
    name = program.name
    flags = {file: unit.flags for file, unit in program.units.items()}
    texts = {f"{name}.h": program.header, **{file: unit.text for file, unit in program.units.items()}}
    found: dict[str, bytes] = {}
    if program.embed:
        flags[f"{name}_weights.c"] = ()
        found[f"{name}_weights.c"] = b"".join(_embedded(name, program.weights))
    else:
        found[f"{name}.bin"] = program.weights
    installed = "" if program.embed else _INSTALLED.format(name=name)
    texts["CMakeLists.txt"] = cmake(name, flags, program.parallel) + installed + _CMAKE.format(name=name)
    texts[f"{name}.pc"] = pkg_config(name, [f"{name}_run"], program.parallel)
    texts["main.c"] = _example(program)
    return {**{file: text.encode() for file, text in texts.items()}, **found}


def _embedded(name: str, data: bytes) -> Iterator[bytes]:
    """Yield C that defines the weights as text, which compilers read faster than numbers."""
    yield f"/* The weights of the model {name}, made by Morello. */\n".encode()
    size = max(1, len(data))
    yield f"__attribute__((aligned(64))) const unsigned char {name}_weights[{size} + 1] =".encode()
    codes = [f"\\{byte:03o}".encode() for byte in range(256)]
    for start in range(0, size, _ROW):
        yield b'\n    "' + b"".join(map(codes.__getitem__, data[start : start + _ROW])) + b'"'
    yield b";\n"


def _example(program: ModelProgram) -> str:
    graph, name, macro = program.plan.graph, program.name, program.name.upper()
    first = 1 if program.embed else 2
    words = [] if program.embed else [f"[{name}.bin"]
    setup = ["    (void)argc;\n    (void)argv;\n"]
    if not program.embed:
        setup.append(f'    inputs.weights = bytes(argc > 1 ? argv[1] : "{name}.bin", {macro}_WEIGHTS);\n')
    for number, one in enumerate(graph.inputs, first):
        field = program.fields[one]
        words.append(f"[{field}")
        size = _bytes(graph.tensors[one])
        setup.append(f"    inputs.{field} = bytes(argc > {number} ? argv[{number}] : NULL, {size});\n")
    shown: list[str] = []
    for one in graph.outputs:
        field, tensor = program.fields[one], graph.tensors[one]
        setup.append(f"    outputs.{field} = bytes(NULL, {_bytes(tensor)});\n")
        shown.append(_printed(field, tensor))
    usage = " ".join([f"{name}_example", *words]) + "]" * len(words)
    given, more = (f"({program.threads})", f", {program.threads}") if program.threads > 1 else ("", "")
    texts = {"setup": "".join(setup), "shown": "".join(shown), "given": given, "more": more}
    return _EXAMPLE.format(name=name, macro=macro, usage=usage, **texts)


def _bytes(tensor: Tensor) -> int:
    return tensor.size * tensor.dtype.bytes


def _printed(field: str, tensor: Tensor) -> str:
    """Return C that prints the first values of an output, and the number of the largest one."""
    first, native = min(8, tensor.size), tensor.dtype.c_name in ("float", "double")
    form, kind = ("g", "double") if native else ("lld", "long long")
    if tensor.dtype.is_float and not native:
        form, kind = "#x", "unsigned"  # the bits
    text = _SHOWN.format(field=field, first=first, form=form, type=kind, end=" ..." * (first < tensor.size))
    comparable = native or not tensor.dtype.is_float
    return text + (_LARGEST.format(field=field, size=tensor.size) if comparable and tensor.size > 1 else "")
