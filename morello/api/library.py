"""Files made of several kernels: C libraries for one or several targets, built objects, and Spec files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.library import build_file
from morello.build.toolchain import find_compiler, thread_flags
from morello.codegen.library import CFile, CFunction, CLibrary
from morello.frontend.specfile import SpecFile, show_file
from morello.kernels.target import Target
from morello.run.elsewhere import RunnerFunction


def named_by_target(goals: Sequence[Goal]) -> list[Goal]:
    """Return the goals with unique names: with several targets, each ends in that of its target."""
    several = len({goal.target for goal in goals}) > 1
    return [attrs.evolve(goal, name=f"{goal.name}_{goal.target.c_name}") if several else goal for goal in goals]


def library_name(file: str) -> str:
    """Return the name in C of the library for a Spec file."""
    name = re.sub(r"\W", "_", Path(file).stem, flags=re.ASCII)
    return f"lib{name}" if not name or name[0].isdigit() or name[0] == "_" else name


def make_library(name: str, kernels: Sequence[Kernel]) -> CLibrary:
    """Return the C library of kernels, whose functions choose among kernels for several targets. Raises EmitError."""
    several = len({kernel.target for kernel in kernels}) > 1
    variants: dict[str, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        variants[_base_name(kernel.program.name, kernel.target, several)].append(kernel)
    functions = [CFunction.of(base, [(one.target, one.program) for one in ones]) for base, ones in variants.items()]
    return CLibrary(name, tuple(functions))


def build_library(
    kind: str, name: str, kernels: Sequence[Kernel], cc: str | None = None, openmp: bool = False
) -> bytes:
    """Return the object `o`, archive `a`, shared object `so` or assembly `s` of one kernel, or of a library.

    `cc` builds a library; a kernel has its own compiler. Parallel loops run on pthreads, or with `openmp` on OpenMP's
    threads. Raises ToolchainError.
    """
    if len(kernels) == 1:
        (kernel,) = kernels
        if kind == "so" and not openmp and not isinstance(kernel.function, RunnerFunction):
            return kernel.library.read_bytes()
        units = {f"{kernel.program.name}.c": CFile(kernel.source, kernel.program.flags)}
        headers, compiler, parallel = dict[str, str](), kernel.compiler, kernel.program.parallel
    else:
        library = make_library(name, kernels)
        units, headers = library.units, {f"{name}.h": library.header}
        compiler, parallel = find_compiler(cc, kernels[0].target.info), library.parallel
    return build_file(kind, units, headers, compiler, thread_flags(compiler, openmp) if parallel else ())


def spec_file(goals: Sequence[Goal]) -> str:
    """Return Spec files with the whole schedules of goals, one for each target, as one text."""
    by_target: dict[Target, list[Goal]] = defaultdict(list)
    for goal in goals:
        by_target[goal.target].append(goal)
    several = len(by_target) > 1
    files = [
        SpecFile(
            target,
            tuple(attrs.evolve(one.declaration, name=_base_name(one.name, target, several)) for one in ones),
        )
        for target, ones in by_target.items()
    ]
    return show_file(*files)


def _base_name(name: str, target: Target, several: bool) -> str:
    """Return a name without the target that `named_by_target` appended."""
    return name.removesuffix(f"_{target.c_name}") if several else name
