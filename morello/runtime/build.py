"""Builds shared objects from C, and keeps them in a private cache directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shlex
import shutil
import stat
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import platformdirs

from morello.errors import ToolchainError
from morello.runtime.process import run
from morello.runtime.toolchain import BASE_FLAGS, Compiler, timeout_seconds

_LINES_SHOWN = 12


def cache_directory() -> Path:
    """The directory that built libraries are kept in: MORELLO_CACHE_DIR, or the user's own; made where it is missing.

    Libraries from it are loaded into this process, so nobody else may be able to write to it. Raises
    ToolchainError where that cannot be had.
    """
    asked = os.environ.get("MORELLO_CACHE_DIR")
    folder = Path(asked).expanduser().absolute() if asked else Path(platformdirs.user_cache_dir("morello"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise _unusable(folder, f"cannot be made: {error.strerror or error}") from error
    if found.st_uid != os.geteuid():
        raise _unusable(folder, f"belongs to another user (uid {found.st_uid}), who could put code into it")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unusable(folder, f"can be written by others, who could put code into it: `chmod 700 {folder}`")
    return folder


def _unusable(folder: Path, reason: str) -> ToolchainError:
    return ToolchainError(
        f"the cache directory {folder} {reason}",
        "set the environment variable MORELLO_CACHE_DIR to a directory that is yours alone",
    )


def build(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, timeout: float | None = None) -> Path:
    """A shared object made of `sources` (file name to text; those named *.c are compiled, each on its own).

    It comes from the cache if the same sources were built with the same flags and compiler before; several
    processes may build at once. `timeout` is in seconds, by default those of MORELLO_CC_TIMEOUT, or 120. Raises
    ToolchainError for a compiler that fails or hangs, and for a cache directory that cannot be used.
    """
    folder = cache_directory()
    library = folder / f"{_key(sources, flags, compiler)}.so"
    if library.is_file():
        return library
    try:
        temporary = Path(tempfile.mkdtemp(prefix="building-", dir=folder))
    except OSError as error:
        raise _unusable(folder, f"cannot be written: {error.strerror or error}") from error
    try:
        try:
            for name, text in sources.items():
                (temporary / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise _unusable(folder, f"cannot be written: {error.strerror or error}") from error
        _compile(temporary, sources, flags, compiler, timeout_seconds() if timeout is None else timeout)
        os.replace(temporary / "library.so", library)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return library


def _key(sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler) -> str:
    """Names what decides the machine code."""
    decisive = [
        sorted(sources.items()),
        BASE_FLAGS,
        list(flags),
        compiler.command,
        compiler.version,
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def _compile(
    folder: Path, sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, timeout: float
) -> None:
    units = [name for name in sources if name.endswith(".c")]
    command = [*compiler.command, *BASE_FLAGS, *flags, "-o", "library.so", *units, "-lm"]
    try:
        done = run(command, timeout, folder)
    except TimeoutError as error:
        raise ToolchainError(
            f"{compiler.name} was stopped after {timeout:g} s; the C is kept in {_keep(folder)}",
            "give it more time with MORELLO_CC_TIMEOUT (seconds), or use another compiler",
        ) from error
    except OSError as error:
        raise ToolchainError(
            f"`{shlex.join(compiler.command)}` cannot be started: {error.strerror or error}"
        ) from error
    if done.code or not (folder / "library.so").is_file():
        said = (done.err or done.out).strip().splitlines()
        shown = "\n".join(f"  {line}" for line in said[:_LINES_SHOWN])
        raise ToolchainError(
            f"{compiler.name} failed with exit code {done.code}:\n{shown}\n  the C is kept in {_keep(folder)}",
            f"the command was {shlex.join(command)}",
        )


def _keep(folder: Path) -> Path:
    """Move what did not compile out of the way of cleaning up; its place, the same for every try of the same C."""
    units = sorted(folder.glob("*.c"))
    digest = hashlib.sha256(b"".join(unit.read_bytes() for unit in units)).hexdigest()[:16]
    kept = folder.parent / f"failed-{digest}"
    kept.mkdir(mode=0o700, exist_ok=True)
    for file in folder.iterdir():
        with contextlib.suppress(OSError):
            os.replace(file, kept / file.name)
    return kept / units[0].name if len(units) == 1 else kept
