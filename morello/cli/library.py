"""C libraries of the Specs of a file, for one or several targets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import attrs

from morello.api.goals import Goal
from morello.build.library import build_file
from morello.build.toolchain import find_compiler
from morello.cli.common import Made, print_compiler
from morello.cli.output import check_writable, write_file
from morello.codegen.library import CFile, CFunction, CLibrary
from morello.errors import MorelloError
from morello.progress import Spinner


def renamed(goals: Sequence[Goal]) -> list[Goal]:
    """Return the goals with unique names: with several targets, each ends in that of its target."""
    several = len({goal.target.name for goal in goals}) > 1
    return [attrs.evolve(goal, name=f"{goal.name}_{goal.target.name}") if several else goal for goal in goals]


def library_of(file: str, goals: Sequence[Goal], made: Sequence[Made]) -> CLibrary:
    """Return the library of a Spec file's kernels, named after the file. Raises EmitError."""
    by_name: dict[str, list[Made]] = {}
    for goal, one in zip(goals, made, strict=True):
        by_name.setdefault(goal.name, []).append(one)
    functions = [
        CFunction.of(name, [(one.kernel.target, one.kernel.program) for one in variants])
        for name, variants in by_name.items()
    ]
    return CLibrary(library_name(file), tuple(functions))


def library_name(file: str) -> str:
    """Return the name in C of the library for a Spec file."""
    name = re.sub(r"\W", "_", Path(file).stem, flags=re.ASCII)
    return f"lib{name}" if not name or name[0].isdigit() or name[0] == "_" else name


def write_library(directory: str, library: CLibrary) -> None:
    """Write all files of a library. Raises MorelloError on failure."""
    for name, text in library.files.items():
        write_file(Path(directory, name), text.encode())


def make_directory(directory: str, file: str) -> None:
    """Create the directory of a library if needed. Raises MorelloError if it cannot be written to."""
    try:
        Path(directory).mkdir(exist_ok=True)
    except OSError as error:
        raise MorelloError(f"cannot make {directory}: {error.strerror or error}", "choose another directory") from error
    check_writable(str(Path(directory, "CMakeLists.txt")), file)


def built(kind: str, file: str, goals: Sequence[Goal], made: Sequence[Made], cc: str | None) -> bytes:
    """Return an object, archive, shared object or assembly of one program or a library."""
    if len(made) == 1:
        kernel = made[0].kernel
        print_compiler(kernel)
        with Spinner(f"building {kernel.program.name}"):
            if kind == "so":
                return kernel.library.read_bytes()
            units = {f"{kernel.program.name}.c": CFile(kernel.source, kernel.program.flags)}
            return build_file(kind, units, {}, kernel.compiler, kernel.program.parallel)
    library = library_of(file, goals, made)
    headers = {f"{library.name}.h": library.header}
    with Spinner(f"building {library.name}"):
        return build_file(kind, library.units, headers, find_compiler(cc), library.parallel)
