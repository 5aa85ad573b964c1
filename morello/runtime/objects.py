"""Builds files that other projects link: objects, archives, shared objects, and assembly to read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from morello.codegen.interface import COMMON_FLAGS
from morello.codegen.library import CFile
from morello.errors import ToolchainError
from morello.runtime.build import compile_in, invoke, workshop
from morello.runtime.process import run
from morello.runtime.toolchain import CHOOSE_HINT, Compiler, thread_flags, timeout_seconds


def build_file(
    kind: str, units: Mapping[str, CFile], headers: Mapping[str, str], compiler: Compiler, parallel: bool
) -> bytes:
    """Return a file of the kind `s`, `o`, `a` or `so`, made of C files, by name, that include `headers`.

    Only one of them can become an `s`. Raises ToolchainError for a compiler that fails or hangs.
    """
    # Who links the others may do so with any compiler: threads that need no library of this one's.
    threads = () if not parallel else thread_flags(compiler) if kind == "so" else ("-pthread",)
    command, timeout = compiler.command, timeout_seconds()
    with workshop({**headers, **{file: unit.text for file, unit in units.items()}}) as folder:
        made = list[str]()
        for file, unit in units.items():
            made.append(f"{Path(file).stem}.{'s' if kind == 's' else 'o'}")
            flags = (*COMMON_FLAGS, "-fPIC", *unit.flags, *threads)
            rest = ["-S" if kind == "s" else "-c", "-o", made[-1], file]
            compile_in(folder, {file: unit.text}, flags, rest, compiler, timeout, made[-1])
        if kind in ("a", "so") or len(made) > 1:
            whole = f"whole.{kind}"
            joined = {
                "o": [*command, "-r", "-nostdlib", "-o", whole, *made],
                "a": [*_archiver(compiler), "rcsD", whole, *made],
                "so": [*command, "-shared", "-o", whole, *made, "-lm", *threads],
            }
            invoke(joined[kind], folder, compiler, timeout, whole)
            made = [whole]
        return (folder / made[0]).read_bytes()


def _archiver(compiler: Compiler) -> list[str]:
    """Return the command that makes archives of what a compiler makes."""
    if "ziglang" in compiler.command:
        return [*compiler.command[:-1], "ar"]
    try:
        found = run([*compiler.command, "-print-prog-name=ar"], timeout_seconds())
    except OSError as error:
        raise ToolchainError(f"{compiler.name} cannot be started: {error}", CHOOSE_HINT) from error
    return [found.out.strip() or "ar"]
