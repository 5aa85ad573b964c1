"""Find the C compiler that builds emitted C."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import platform
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import attrs

from morello.build.process import ProcessResult, run
from morello.codegen.interface import COMMON_FLAGS
from morello.errors import ToolchainError
from morello.kernels.machine import TargetInfo

#: Flags of every shared object.
BASE_FLAGS = (*COMMON_FLAGS, "-fPIC", "-shared")

#: Flags for threads of a program's own, and for those of OpenMP.
PTHREAD, _OPENMP = "-pthread", "-fopenmp"
_THREADS_PROBE = """\
#ifdef _OPENMP
#include <omp.h>
int probe(void) { return omp_get_max_threads(); }
#else
#include <pthread.h>
static void *start(void *given) { return given; }
int probe(void) { pthread_t thread; return pthread_create(&thread, 0, start, 0); }
#endif
"""

#: The compiler of the package ziglang.
_ZIGLANG = (sys.executable, "-m", "ziglang")
#: In place of a command: the installed compiler whose code for a kernel is fastest.
AUTO = "auto"
#: Seconds, also for a small file: zig builds its C library at its first use, which takes long on a busy machine.
_DEFAULT_TIMEOUT = 120.0
_LONGEST_TIMEOUT = 1e6
CHOOSE_HINT = "name another compiler with MORELLO_CC or --cc, or install it again"
_NEEDS_ZIG = "the package ziglang has a compiler for most: `pip install ziglang`"
_NO_COMPILER_HINT = "install one: `apt install gcc`, `xcode-select --install` on a Mac, or `pip install ziglang`"


@attrs.frozen
class Compiler:
    """A working C compiler: its command, a name for messages, and the first line of its `--version`.

    `triple` names another platform that it compiles for.
    """

    command: tuple[str, ...]
    name: str
    version: str
    triple: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.version})"


def timeout_seconds(variable: str = "MORELLO_CC_TIMEOUT") -> float:
    """Return the seconds in an environment variable, or 120: by default those of a compiler. Raises ToolchainError."""
    text = os.environ.get(variable)
    if not text:
        return _DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if 0 < seconds <= _LONGEST_TIMEOUT:
        return seconds
    fault = f"more than {_LONGEST_TIMEOUT:,.0f}" if seconds > 0 else "not more than 0"
    raise ToolchainError(
        f"{variable} is {text!r}, which is {'not a number' if math.isnan(seconds) else fault}",
        "set it to a number of seconds, such as 300",
    )


def architecture(triple: str) -> str:
    """Return the architecture of a triple, in the names of compilers; this machine's for an empty one."""
    name = triple.partition("-")[0] or platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def is_foreign(info: TargetInfo) -> bool:
    """Return whether this machine cannot run the programs of a target, as they are for another architecture."""
    return architecture(info.triple) != architecture("")


def find_compiler(cc: str | None = None, info: TargetInfo | None = None) -> Compiler:
    """Return the C compiler to use: `cc`, else the environment's MORELLO_CC, clang, gcc, or the one in package ziglang.

    `cc` and MORELLO_CC are commands, with arguments if need be ("ccache gcc"). For `auto`, each kernel chooses its own,
    and this is the first one installed. For a target of another architecture, it is `cc`, or else the first of the
    target's compilers that works. Raises ToolchainError if the requested compiler does not work, or none is found.
    """
    timeout_seconds()  # report a wrong setting first
    if info is not None and is_foreign(info):
        return _requested(cc, "--cc", info.triple) if cc and cc != AUTO else _cross_compiler(info)
    for origin, command in (("--cc", cc), ("MORELLO_CC", os.environ.get("MORELLO_CC"))):
        if command == AUTO:
            break
        if command:
            return _requested(command, origin)
    faults = []
    for found in _candidates():
        try:
            return _probe(found)
        except ToolchainError as error:
            faults.append(error.message)
    raise ToolchainError("; ".join(["no working C compiler was found", *faults]), _NO_COMPILER_HINT)


def _cross_compiler(info: TargetInfo) -> Compiler:
    """Return the first compiler that a target names and that builds for it. Raises ToolchainError without one."""
    faults = []
    for command in info.compilers:
        try:
            return _requested(command, f"target {info.name}", info.triple)
        except ToolchainError as error:
            faults.append(error.message)
    what = f"no C compiler for {info.triple} was found, which {info.name} needs"
    uses_zig = any(command.split()[:1] == ["zig"] for command in info.compilers)
    hint = "install one of those that the target names" if info.compilers else "name one with --cc"
    raise ToolchainError("; ".join([what, *faults]), _NEEDS_ZIG if uses_zig else hint)


def is_auto(cc: str | None) -> bool:
    """Return whether `cc`, or else MORELLO_CC, is `auto`."""
    return (cc or os.environ.get("MORELLO_CC")) == AUTO


def available_compilers() -> list[Compiler]:
    """Return all working compilers of this machine, in the order in which `find_compiler` prefers them."""
    timeout_seconds()
    asked = os.environ.get("MORELLO_CC")
    compilers = [_requested(asked, "MORELLO_CC")] if asked and asked != AUTO else []
    for command in _candidates():
        try:
            compiler = _probe(command)
        except ToolchainError:
            continue
        if compiler not in compilers:
            compilers.append(compiler)
    return compilers


def _candidates() -> list[tuple[str, ...]]:
    paths = [shutil.which(name) for name in ("clang", "gcc")]
    commands: list[tuple[str, ...]] = [(path,) for path in paths if path]
    if importlib.util.find_spec("ziglang"):
        commands.append((*_ZIGLANG, "cc"))
    return commands


def _requested(command: str, origin: str, triple: str = "") -> Compiler:
    """Return the compiler of a command. Raises ToolchainError unless it builds for this machine, or for a triple."""
    hint = f"give {origin} the command of a C compiler, such as gcc or /usr/bin/clang"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ToolchainError(f"{origin} is {command!r}, which is not a command: {error}", hint) from error
    if not words:
        raise ToolchainError(f"{origin} is empty", hint)
    path = shutil.which(words[0])
    if path is None and words[0] == "zig" and importlib.util.find_spec("ziglang"):
        return _probe((*_ZIGLANG, *words[1:]), triple)
    if path is None:
        fault = "is not executable" if Path(words[0]).is_file() else "does not exist"
        raise ToolchainError(f"the C compiler {words[0]!r} ({origin}) {fault}", hint)
    try:
        return _probe((os.path.abspath(path), *words[1:]), triple)
    except ToolchainError as error:
        raise ToolchainError(f"{origin}: {error.message}", hint) from error


@cache
def thread_flags(compiler: Compiler, openmp: bool = False) -> tuple[str, ...]:
    """Return the compiler's flags for parallel loops, on pthreads or with OpenMP. Raises ToolchainError."""
    flag = _OPENMP if openmp else PTHREAD
    with tempfile.TemporaryDirectory(prefix="morello-probe-") as folder:
        source, library = Path(folder, "probe.c"), Path(folder, "probe.so")
        source.write_text(_THREADS_PROBE)
        command = [*compiler.command, *BASE_FLAGS, flag, "-o", str(library), str(source)]
        if not _run(command, compiler.name).code and (compiler.triple or _loads(library)):
            return (flag,)
    if openmp:
        raise ToolchainError(f"{compiler.name} has no OpenMP", "leave out OpenMP: loops then run on pthreads")
    raise ToolchainError(f"{compiler.name} has no pthreads, which parallel loops need", "make the Spec `serial`")


def _run(command: Sequence[str], name: str) -> ProcessResult:
    """Run a compiler on a small file, or for its version. Raises ToolchainError if it fails to start or times out."""
    timeout = timeout_seconds()
    try:
        return run(command, timeout)
    except TimeoutError as error:
        raise ToolchainError(
            f"{name} was stopped after {timeout:g} s; MORELLO_CC_TIMEOUT=SECONDS allows more", CHOOSE_HINT
        ) from error
    except OSError as error:
        raise ToolchainError(f"{name} cannot be started: {error.strerror or error}", CHOOSE_HINT) from error


def _loads(library: Path) -> bool:
    """Return whether a shared object and its dependencies load."""
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


@cache
def static_flags(compiler: Compiler) -> tuple[str, ...]:
    """Return the flags of a program that needs no libraries where it runs, none if the compiler has none for that."""
    with tempfile.TemporaryDirectory(prefix="morello-probe-") as folder:
        source = Path(folder, "probe.c")
        source.write_text("int main(void) { return 0; }\n")
        command = [*compiler.command, "-static", "-o", str(source.with_suffix("")), str(source)]
        return () if _run(command, compiler.name).code else ("-static",)


@cache
def _probe(command: tuple[str, ...], triple: str = "") -> Compiler:
    """Return the compiler of a command that builds a shared object, for a triple if given.

    Raises ToolchainError if it does not.
    """
    shown = shlex.join(command)
    with tempfile.TemporaryDirectory(prefix="morello-probe-") as folder:
        source = Path(folder, "probe.c")
        source.write_text("#include <stdint.h>\nint32_t probe(int32_t x) { return x + 1; }\n")
        library = Path(folder, "probe.so")
        version = _run([*command, "--version"], f"`{shown}`")
        if triple:
            made = _run([*command, "-dumpmachine"], f"`{shown}`").out.strip()
            if architecture(made) != architecture(triple):
                raise ToolchainError(f"`{shown}` compiles for {made or 'this machine'}, not for {triple}", CHOOSE_HINT)
        built = _run([*command, *BASE_FLAGS, "-o", str(library), str(source)], f"`{shown}`")
        if built.code or not library.is_file():
            said = built.excerpt().strip().splitlines()
            raise ToolchainError(
                f"`{shown}` cannot compile C: {said[0] if said else f'exit code {built.code}'}", CHOOSE_HINT
            )
    first = version.excerpt().strip().splitlines()
    name = "zig cc" if "ziglang" in command else os.path.basename(command[0])
    return Compiler(command, name, first[0] if first else "unknown version", triple)
