"""Builds many programs at once: most take less time to compile than a compiler takes to start and read headers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.errors import ArgumentError, ToolchainError
from morello.ir.program import Program
from morello.run.elsewhere import RunnerFunction, build_program
from morello.run.function import NativeFunction

#: Characters of C that one translation unit holds at most; more programs go to the next one.
UNIT = 300_000
#: What a file defines for itself alone: functions and variables, whose names other programs may use too.
_STATIC = re.compile(r"^(?:__attribute__\(\(\w+\)\) )?static\b[^;{(=\[]*?\b(\w+)\s*(?=[(=;\[])", re.MULTILINE)
#: Types made of structs: a second definition would be another type, even if it is the same.
_STRUCT = re.compile(r"^\}\s*(\w+)\s*;", re.MULTILINE)
#: Numbers that have names.
_ENUM = re.compile(r"^enum \{([^}]*)\};", re.MULTILINE)


def translation_unit(programs: Sequence[Program]) -> str:
    """Return one C file with all of `programs`, whose names differ; what each defines gets a name of its own."""
    names = [program.name for program in programs]
    if len(set(names)) != len(names):
        raise ArgumentError("programs that are compiled together need names that differ", "emit each with its own name")
    return "\n".join(f"{program.header}\n{_renamed(program)}" for program in programs)


def _renamed(program: Program) -> str:
    numbers = [name for found in _ENUM.findall(program.source) for name in re.findall(r"\w+", found)]
    own = {*_STATIC.findall(program.source), *_STRUCT.findall(program.source), *numbers}
    statics = sorted(own - {program.name})
    if not statics:
        return program.source
    return re.sub(rf"\b({'|'.join(statics)})\b", rf"\1_{program.name}", program.source)


def units(programs: Iterable[Program]) -> list[list[Program]]:
    """Return the programs in groups of a translation unit each, with the same flags, and with threads or without."""
    groups: dict[tuple[bool, tuple[str, ...]], list[list[Program]]] = defaultdict(lambda: [[]])
    for program in programs:
        of_kind = groups[program.parallel, program.flags]
        if of_kind[-1] and sum(len(one.source) for one in [*of_kind[-1], program]) > UNIT:
            of_kind.append([])
        of_kind[-1].append(program)
    return [group for of_kind in groups.values() for group in of_kind]


def build_together(
    kernels: Sequence[NativeFunction], compiler: Compiler, flags: Sequence[str] = ()
) -> Mapping[str, ToolchainError]:
    """Build all `kernels` into few shared objects, or executables, with `flags` after those of their programs.

    The programs' names differ. The result names those that do not compile.
    """
    by_name = {kernel.program.name: kernel for kernel in kernels}
    failed: dict[str, ToolchainError] = {}
    waiting = units([kernel.program for kernel in kernels])
    while waiting:
        group = waiting.pop()
        sources, first = {"programs.c": translation_unit(group)}, by_name[group[0].name]
        try:
            if isinstance(first, RunnerFunction):
                headers = {f"{program.name}.h": program.header for program in group}
                library = build_program({**sources, **headers}, group, (*first.flags, *flags), compiler)
            else:
                library = build(sources, (*first.flags, *flags), compiler)
        except ToolchainError as error:
            if len(group) == 1:
                failed[group[0].name] = error
            else:
                half = len(group) // 2
                waiting += [group[:half], group[half:]]
            continue
        for number, program in enumerate(group):
            function = by_name[program.name]
            function.library, function.number = library, number
    return failed
