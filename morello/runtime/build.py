"""Builds shared objects from C, unless the cache has them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shlex
import shutil
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from morello.errors import ToolchainError
from morello.runtime.cache import HEADERS, cache_directory, find, keep, size_limit, unusable
from morello.runtime.precompiled import Headers, includes_of
from morello.runtime.process import Outcome, run
from morello.runtime.toolchain import BASE_FLAGS, CHOOSE_HINT, Compiler, timeout_seconds


def build(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, timeout: float | None = None) -> Path:
    """Return a shared object made of `sources` (file name to text; those named *.c are compiled, each on its own).

    It comes from the cache if the same sources were built with the same flags and compiler before; several
    processes may build at once. `timeout` is in seconds, by default those of MORELLO_CC_TIMEOUT, or 120. Raises
    ToolchainError for a compiler that fails or hangs, and for a cache directory that cannot be used.
    """
    size_limit()  # before the work, so that a mistake is told at once
    folder, key = cache_directory(), key_of(sources, flags, compiler)
    if found := find(folder, key):
        return found
    with workshop(sources) as temporary:
        rest = ["-o", "library.so", *(name for name in sources if name.endswith(".c")), "-lm"]
        seconds = timeout_seconds() if timeout is None else timeout
        compile_in(temporary, sources, (*BASE_FLAGS, *flags), rest, compiler, seconds, "library.so")
        return keep(folder, key, temporary / "library.so")


@contextmanager
def workshop(files: Mapping[str, str]) -> Generator[Path]:
    """Yield a new folder with these files, by name, which is gone afterwards. Raises ToolchainError."""
    folder = cache_directory()
    try:
        temporary = Path(tempfile.mkdtemp(prefix="building-", dir=folder))
        try:
            for name, text in files.items():
                (temporary / name).write_text(text, encoding="utf-8")
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise unusable(folder, f"cannot be written: {error.strerror or error}") from error


def key_of(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler) -> str:
    """Return a name of what decides the machine code."""
    decisive = [
        sorted(sources.items()),
        BASE_FLAGS,
        list(flags),
        compiler.command,
        compiler.version,
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def compile_in(
    folder: Path,
    sources: Mapping[str, str],
    flags: Sequence[str],
    rest: Sequence[str],
    compiler: Compiler,
    timeout: float,
    makes: str,
) -> None:
    """Make a file in a workshop of these C files, which have headers that were read before if they can.

    `flags` are those that headers depend on, and `rest` what else the compiler is told. Raises ToolchainError.
    """
    command = [*compiler.command, *flags]
    text = includes_of(sources)
    place = folder.parent / f"{HEADERS}{key_of({'headers.h': text}, flags, compiler)}"
    headers = Headers(place, text, tuple(command))
    read = headers.flags(timeout)
    if read and not _run([*command, *read, *rest], folder, compiler, timeout).code and (folder / makes).is_file():
        return
    invoke([*command, *rest], folder, compiler, timeout, makes)
    if read:
        headers.forget()


def invoke(command: Sequence[str], folder: Path, compiler: Compiler, timeout: float, makes: str) -> None:
    """Run a command of a compiler's, which makes a file in a workshop, in so many seconds. Raises ToolchainError."""
    done = _run(command, folder, compiler, timeout)
    if done.code or not (folder / makes).is_file():
        raise ToolchainError(
            f"{compiler.name} failed with exit code {done.code}:\n{done.excerpt()}\n  {_keep(folder)}",
            f"the command was {shlex.join(command)}",
        )


def _run(command: Sequence[str], folder: Path, compiler: Compiler, timeout: float) -> Outcome:
    try:
        return run(command, timeout, folder)
    except TimeoutError as error:
        raise ToolchainError(
            f"{compiler.name} was stopped after {timeout:g} s; {_keep(folder)}",
            "give it more time with MORELLO_CC_TIMEOUT (seconds), or use another compiler",
        ) from error
    except OSError as error:
        raise ToolchainError(
            f"`{shlex.join(compiler.command)}` cannot be started: {error.strerror or error}", CHOOSE_HINT
        ) from error


def _keep(folder: Path) -> str:
    """Move what did not compile out of the way of cleaning up; say where, the same for every try of the same C."""
    try:
        units = sorted(folder.glob("*.c"))
        digest = hashlib.sha256(b"".join(unit.read_bytes() for unit in units)).hexdigest()[:16]
        kept = folder.parent / f"failed-{digest}"
        kept.mkdir(mode=0o700, exist_ok=True)
        for file in folder.iterdir():
            os.replace(file, kept / file.name)
    except OSError as error:
        return f"the C could not be kept in {folder.parent}: {error.strerror or error}"
    return f"the C is kept in {kept / units[0].name if len(units) == 1 else kept}"
