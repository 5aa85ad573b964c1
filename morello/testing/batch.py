"""Builds many programs at once: most take less time to compile than a compiler takes to start and read headers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from morello.codegen.program import Program
from morello.errors import ArgumentError, ToolchainError
from morello.runtime.build import build
from morello.runtime.kernel import Kernel
from morello.runtime.toolchain import Compiler

#: Characters of C that one translation unit holds at most; more programs go to the next one.
UNIT = 300_000
#: What a file defines for itself alone: functions and variables, whose names other programs may use too.
_STATIC = re.compile(r"^static\b[^;{(=\[]*?\b(\w+)\s*(?=[(=;\[])", re.MULTILINE)


def translation_unit(programs: Sequence[Program]) -> str:
    """One C file with all of `programs`, whose names differ. Each one's static functions get names of their own."""
    names = [program.name for program in programs]
    if len(set(names)) != len(names):
        raise ArgumentError("programs that are compiled together need names that differ", "emit each with its own name")
    return "\n".join(f"{program.header}\n{_renamed(program)}" for program in programs)


def _renamed(program: Program) -> str:
    statics = sorted(set(_STATIC.findall(program.source)) - {program.name})
    if not statics:
        return program.source
    return re.sub(rf"\b({'|'.join(statics)})\b", rf"\1_{program.name}", program.source)


def units(programs: Iterable[Program], size: int = UNIT) -> list[list[Program]]:
    """The programs in groups for one translation unit each, in order; the flags of a group are the same."""
    groups: dict[tuple[str, ...], list[list[Program]]] = defaultdict(lambda: [[]])
    held: dict[tuple[str, ...], int] = defaultdict(int)
    for program in programs:
        if held[program.flags] and held[program.flags] + len(program.source) > size:
            groups[program.flags].append([])
            held[program.flags] = 0
        groups[program.flags][-1].append(program)
        held[program.flags] += len(program.source)
    return [group for of_flags in groups.values() for group in of_flags]


def build_together(
    kernels: Sequence[Kernel], compiler: Compiler, flags: Sequence[str] = ()
) -> Mapping[str, ToolchainError]:
    """Build all `kernels` into few shared objects, with `flags` after those of their programs.

    The programs' names differ. What is returned says, by name, which of them do not compile.
    """
    by_name = {kernel.program.name: kernel for kernel in kernels}
    failed: dict[str, ToolchainError] = {}
    waiting = units([kernel.program for kernel in kernels])
    while waiting:
        group = waiting.pop()
        sources = {"programs.c": translation_unit(group)}
        try:
            library = build(sources, (*group[0].flags, *flags), compiler)
        except ToolchainError as error:
            if len(group) == 1:
                failed[group[0].name] = error
            else:
                half = len(group) // 2
                waiting += [group[:half], group[half:]]
            continue
        for program in group:
            by_name[program.name].library = library
    return failed
