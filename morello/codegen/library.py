"""C libraries of several functions: header, choice among targets at run time, table of functions, build files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs

from morello.codegen.interface import COMMON_FLAGS, RUN, Interface, header, setter_name
from morello.codegen.reserved import HEADERS, check_name
from morello.errors import EmitError
from morello.ir.program import Parameter, Program
from morello.kernels.target import Target

_METADATA = """\
#ifndef MORELLO_METADATA
#define MORELLO_METADATA
/* An operand. Its layout lists physical dimensions from the outside in; `strides` are passed after its pointer, and it
   starts at a multiple of `alignment` bytes. The layout of constants is "packed". */
typedef struct {
    const char *name, *type, *layout;
    int reads, writes, rank;
    const ptrdiff_t *shape;
    int strides;
    size_t alignment;
} morello_operand;

/* A function and its operands, in the order of its parameters. It takes a pointer to `workspace` bytes, and
   `thread_workspace` more for each thread, unless both are 0, and the number of threads if it is `parallel`. */
typedef struct {
    const char *name;
    int operands;
    const morello_operand *operand;
    size_t workspace, thread_workspace;
    int parallel;
} morello_function;
#endif

"""


_CHOICE = """\
/* Returns the number of the program that this CPU runs, from 1; that after the last if it runs none. */
static int morello_choice_{name}(void) {{
    static int found;
    int choice = __atomic_load_n(&found, __ATOMIC_RELAXED);
    if (!choice) {{
        choice = {choice};
        __atomic_store_n(&found, choice, __ATOMIC_RELAXED);
    }}
    return choice;
}}
"""
_TARGET = """
const char *{name}_target(void) {{
    static const char *const names[] = {{{names}, NULL}};
    return names[morello_choice_{name}() - 1];
}}
"""
_CHOSEN = """
{prototype} {{
    switch (morello_choice_{name}()) {{
{calls}    default:
        fputs({fault}, stderr);
        abort();
    }}
}}
"""


@attrs.frozen
class CFile:
    """A file of C and its compiler flags besides the common ones."""

    text: str
    flags: tuple[str, ...]


@attrs.frozen
class CFunction:
    """A function of a library: its program for each target, most demanding CPU first."""

    name: str
    variants: tuple[tuple[Target, Program], ...]

    @classmethod
    def of(cls, name: str, variants: Sequence[tuple[Target, Program]]) -> CFunction:
        """Return the function. Raises EmitError if its programs take different operands, or a size of run time."""
        if any(program.size is not None for _, program in variants):
            raise no_sizes(name)
        ordered = sorted(variants, key=lambda one: demands(one[0]), reverse=True)
        first, *others = (
            [(one.operand, one.tensor.shape, one.tensor.state.dtype, one.strides) for one in program.parameters]
            for _, program in ordered
        )
        if any(other != first for other in others):
            names = ", ".join(target.full_name for target, _ in ordered)
            raise EmitError(f"{name} takes other operands on each of {names}", "compile it for one target")
        return cls(name, tuple(ordered))

    @cached_property
    def programs(self) -> tuple[Program, ...]:
        return tuple(program for _, program in self.variants)

    @property
    def parallel(self) -> bool:
        return any(program.parallel for program in self.programs)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self.programs[0].parameters

    @cached_property
    def packs(self) -> tuple[CFunction, ...]:
        """Return the functions that pack constants; the one for a target packs for the program of that target."""
        found: list[CFunction] = []
        for number, first in enumerate(self.programs[0].packs):
            name = self.name + first.name.removeprefix(self.programs[0].name)
            variants = [(target, program.packs[number]) for target, program in self.variants]
            if len(variants) > 1:
                # Each target has a layout of its own.
                made = [(*one.parameters[:-1], attrs.evolve(one.parameters[-1], pack=one.name)) for _, one in variants]
                variants = [
                    (target, attrs.evolve(one, parameters=parameters))
                    for (target, one), parameters in zip(variants, made, strict=True)
                ]
            found.append(CFunction(name, tuple(variants)))
        return tuple(found)

    @property
    def _words(self) -> list[str]:
        """Return the names of operands and strides, in call order."""
        return [name for one in self.parameters for name in (one.name, *one.stride_names)]

    def alignment(self, parameter: Parameter) -> int:
        """Return the alignment of an operand, in bytes."""
        state = parameter.tensor.state
        levels = [target.level(state.level).alignment for target, _ in self.variants] if state.aligned else []
        return max(state.dtype.bytes, *levels)

    @cached_property
    def interface(self) -> Interface:
        """Return the interface, which takes the parameters of all programs."""
        targets = ", ".join(target.full_name for target, _ in self.variants)
        taken = {*self._words}
        return Interface(
            name=self.name,
            summary=f"{self.name} for {targets}",
            parameters=tuple(
                attrs.evolve(one, pack=one.pack and self.name + one.pack.removeprefix(self.programs[0].name))
                for one in self.parameters
            ),
            workspace=max(program.workspace for program in self.programs),
            thread_workspace=max(program.thread_workspace for program in self.programs),
            parallel=self.parallel,
            workspace_name=_free("workspace", taken),
            threads_name=_free("threads", taken),
            implicit_dims=self.programs[0].implicit_dims,
            packs=tuple(one.interface for one in self.packs),
        )

    def call(self, program: Program) -> str:
        """Return the call of one of its programs, with the function's parameters."""
        words = [*self._words]
        if program.workspace_for(1):
            words.append(self.interface.workspace_name)
        if program.parallel:
            words.append(self.interface.threads_name)
        return f"{program.name}({', '.join(words)});"


def _free(name: str, taken: set[str]) -> str:
    """Return a name that is not taken."""
    return name if name not in taken else _free(f"{name}_", taken)


def no_sizes(name: str) -> EmitError:
    """Return the error for a function of a library that takes a size of run time."""
    return EmitError(f"a library has no {name}, which takes a size at run time", "compile it alone: --spec NAME -o OUT")


def check_names(library: str, functions: Mapping[str, Sequence[str]]) -> None:
    """Raise EmitError for invalid or ambiguous names among a library's functions, each for several targets."""
    if library in HEADERS:
        raise EmitError(f"{library}.h is a header of the C library", "rename the Spec file")
    names = [f"{library}_library", f"{library}_functions", f"{library}_functions_count"]
    for name, targets in functions.items():
        names += [name, *([f"{name}_target", *(f"{name}_{target}" for target in targets)] if len(targets) > 1 else [])]
    for name in names:
        check_name(name)
    names += map(setter_name, [library, *functions])
    for name in names:
        if names.count(name) > 1:
            raise EmitError(f"the library {library} defines {name!r} twice", "rename the Spec, or the Spec file")


@attrs.frozen
class CLibrary:
    """Functions under one header, NAME.h. Raises EmitError for invalid or ambiguous names."""

    name: str
    functions: tuple[CFunction, ...]

    def __attrs_post_init__(self) -> None:
        packs = {pack.name: () for one in self.functions for pack in one.packs}
        names = {one.name: [target.c_name for target, _ in one.variants] for one in self.functions}
        if twice := names.keys() & packs.keys():
            raise EmitError(f"the library {self.name} defines {min(twice)!r} twice", "rename the Spec")
        check_names(self.name, {**names, **packs})

    @property
    def table(self) -> str:
        """Return the name of the table of functions."""
        return f"{self.name}_functions"

    @property
    def parallel(self) -> bool:
        return any(one.parallel for one in self.functions)

    @cached_property
    def header(self) -> str:
        """Return the text of NAME.h."""
        declarations = "".join(map(_declarations, self.functions))
        if self.parallel:
            declarations += f"/* Does so for all functions with parallel loops. */\n{self._setter};\n\n"
        declarations += _METADATA
        declarations += f"extern const morello_function {self.table}[];\nextern const size_t {self.table}_count;\n"
        functions = ", ".join(one.name for one in self.functions)
        about = f"The library {self.name}, made by Morello: {functions}."
        return header(f"MORELLO_LIBRARY_{self.name.upper()}_H", about, declarations)

    @cached_property
    def units(self) -> Mapping[str, CFile]:
        """Return the C files by name: one for each program, and one with the choice among targets and the table."""
        units: dict[str, CFile] = {}
        for one in self.functions:
            for program in one.programs:
                alone = len(one.variants) == 1
                text = program.including(f"{self.name}.h") if alone else program.source
                units[f"{program.name}.c"] = CFile(text, program.flags)
        units[f"{self.name}_library.c"] = CFile(self._common(), ())
        return units

    @cached_property
    def files(self) -> Mapping[str, str]:
        """Return all files by name: header, C, CMakeLists.txt and a file for pkg-config."""
        flags = {name: unit.flags for name, unit in self.units.items()}
        return {
            f"{self.name}.h": self.header,
            **{name: unit.text for name, unit in self.units.items()},
            "CMakeLists.txt": cmake(self.name, flags, self.parallel),
            f"{self.name}.pc": pkg_config(self.name, [one.name for one in self.functions], self.parallel),
        }

    @property
    def _setter(self) -> str:
        return f"void {setter_name(self.name)}({RUN})"

    def _common(self) -> str:
        """Return the C file that all functions share."""
        chosen = [one for one in self.functions if len(one.variants) > 1]
        holds = "the choice among targets, and the table" if chosen else "the table"
        parts = [f"/* Of the library {self.name}, made by Morello: {holds} of functions. */"]
        parts += [f'#include "{self.name}.h"\n', *(["#include <stdio.h>\n#include <stdlib.h>\n"] if chosen else [])]
        parts += [_choice(one) for one in chosen]
        if self.parallel:
            calls = "".join(f"    {setter_name(one.name)}(run);\n" for one in self.functions if one.parallel)
            parts += [f"{self._setter} {{\n{calls}}}\n"]
        parts += [_operands(one) for one in self.functions]
        rows = [f"    {_row(one)}," for one in self.functions]
        parts += ["\n".join([f"const morello_function {self.table}[] = {{", *rows, "};"])]
        parts += [f"const size_t {self.table}_count = {len(self.functions)};\n"]
        return "\n".join(parts)


def _declarations(function: CFunction) -> str:
    """Return the declarations of a function in the header."""
    interface, several = function.interface, len(function.variants) > 1
    about = (
        f"The target whose code {function.name} runs on this CPU; NULL if none is for it, and a call ends the process."
    )
    target = f"/* {about} */\nconst char *{function.name}_target(void);\n" if several else ""
    return "\n".join([f"/* {interface.summary} */", *interface.description(), f"{interface.declarations}{target}\n"])


def demands(target: Target) -> tuple[int, int]:
    """Return what orders targets by the CPU features that they need."""
    return len(target.info.cpu_features), len(target.features)


def choice_of(name: str, variants: Sequence[tuple[Target, Sequence[Program]]]) -> str:
    """Return the C function morello_choice_NAME, which chooses among programs for several targets.

    Raises EmitError for a CPU feature that C cannot test for.
    """
    tests: list[str] = []
    for number, (target, programs) in enumerate(variants, start=1):
        needed: dict[str, None] = {}
        for program in programs:
            if program.cpu_tests is None:
                raise EmitError(
                    f"{target.full_name} has no test in C for the CPU features that {name} needs",
                    "compile it for one target",
                )
            needed |= dict.fromkeys(program.cpu_tests)
        tests.append(f"{' && '.join(needed) or '1'} ? {number}")
    return _CHOICE.format(name=name, choice="\n            : ".join([*tests, str(len(tests) + 1)]))


def _choice(function: CFunction) -> str:
    """Return the function that calls the best program that the CPU can run, and the one that names its target."""
    name = function.name
    needs = [
        f"{target.full_name} needs {', '.join((*target.info.cpu_features, *program.cpu_features))}"
        for target, program in function.variants
    ]
    names = ", ".join(json.dumps(target.full_name) for target, _ in function.variants)
    fault = json.dumps(f"{name}: no code for this CPU: {'; '.join(needs)}\n")
    declared = "".join(program.declarations or f"{program.prototype};\n" for program in function.programs)
    choice = choice_of(name, [(target, [program]) for target, program in function.variants])
    chosen = f"{declared}\n{choice}{_TARGET.format(name=name, names=names)}"
    for one in (function, *function.packs):
        calls = "".join(
            f"    case {number}:\n        {one.call(program)}\n        return;\n"
            for number, program in enumerate(one.programs, start=1)
        )
        chosen += _CHOSEN.format(prototype=one.interface.prototype, name=name, calls=calls, fault=fault)
    return chosen + _forwarded(function)


def _forwarded(function: CFunction) -> str:
    """Return the function that sets the caller's threads for all parallel programs; empty if there are none."""
    calls = "".join(f"    {setter_name(one.name)}(run);\n" for one in function.programs if one.parallel)
    return f"\n{function.interface.setter} {{\n{calls}}}\n" if calls else ""


def _operands(function: CFunction) -> str:
    """Return the table of a function's operands."""
    rows = [f"static const morello_operand morello_operands_{function.name}[] = {{"]
    for one in function.parameters:
        tensor = one.tensor.without_leading(function.interface.implicit_dims)
        state, shape = tensor.state, tensor.shape
        layout = "packed" if one.pack else str(state.layout or "in order")
        sizes = f"(const ptrdiff_t[]){{{', '.join(map(str, shape))}}}" if shape else "NULL"
        texts = ", ".join(json.dumps(text) for text in (one.name, str(state.dtype), layout))
        numbers = f"{int(one.reads)}, {int(one.writes)}, {len(shape)}, {sizes}, {one.strides}"
        rows.append(f"    {{{texts}, {numbers}, {function.alignment(one)}}},")
    return "\n".join([*rows, "};\n"])


def _row(function: CFunction) -> str:
    """Return a function's row of the table."""
    interface = function.interface
    numbers = f"{interface.workspace}, {interface.thread_workspace}, {int(interface.parallel)}"
    return f'{{"{function.name}", {len(function.parameters)}, morello_operands_{function.name}, {numbers}}}'


def cmake(name: str, flags: Mapping[str, Sequence[str]], parallel: bool) -> str:
    """Return CMakeLists.txt for a library of C files, each with `flags` of its own.

    The library is the target NAME, and NAME::NAME where it is found with find_package(NAME) after it was installed.
    """
    own = "".join(
        f'set_source_files_properties({file} PROPERTIES COMPILE_OPTIONS "{";".join(these)}")\n'
        for file, these in flags.items()
        if these
    )
    threads = " -pthread" * parallel
    return f"""\
# The library {name}, made by Morello.
cmake_minimum_required(VERSION 3.13)
project({name} LANGUAGES C)

add_library({name} {" ".join(flags)})
add_library({name}::{name} ALIAS {name})
set_target_properties({name} PROPERTIES POSITION_INDEPENDENT_CODE ON PUBLIC_HEADER {name}.h)
target_compile_options({name} PRIVATE {" ".join(COMMON_FLAGS)}{threads})
{own}target_include_directories(
    {name} PUBLIC $<BUILD_INTERFACE:${{CMAKE_CURRENT_SOURCE_DIR}}> $<INSTALL_INTERFACE:include>)
target_link_libraries({name} PUBLIC m{threads})

install(TARGETS {name} EXPORT {name} ARCHIVE DESTINATION lib LIBRARY DESTINATION lib PUBLIC_HEADER DESTINATION include)
install(EXPORT {name} FILE {name}-config.cmake NAMESPACE {name}:: DESTINATION lib/cmake/{name})
install(FILES {name}.pc DESTINATION lib/pkgconfig)
"""


def pkg_config(name: str, functions: Sequence[str], parallel: bool) -> str:
    """Return the file for pkg-config of a library that is installed in lib/, its header in include/."""
    return f"""\
prefix=${{pcfiledir}}/../..
libdir=${{prefix}}/lib
includedir=${{prefix}}/include

Name: {name}
Description: {", ".join(functions)}, compiled by Morello
Version: 1.0
Cflags: -I${{includedir}}
Libs: -L${{libdir}} -l{name} -lm{" -pthread" * parallel}
"""
