"""Build libraries, object files and archives from C, or take libraries from the cache."""

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

from morello.build.cache import HEADERS, cache_directory, find, size_limit, store
from morello.build.pch import PrecompiledHeaders, common_includes
from morello.build.process import ProcessResult, run
from morello.build.toolchain import BASE_FLAGS, CHOOSE_HINT, Compiler, timeout_seconds
from morello.codegen.interface import COMMON_FLAGS
from morello.codegen.library import CFile
from morello.errors import ToolchainError
from morello.paths import unusable


def build(
    sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, base: Sequence[str] = BASE_FLAGS
) -> Path:
    """Return the path of a shared object built from `sources` (file name to text); files named *.c are units.

    The cache holds it if the same sources were built before with the same flags and compiler. Several processes may
    build at once. `base` are flags before the others; without -shared it is a program. Raises ToolchainError if the
    compiler fails or times out, or if the cache directory cannot be used.
    """
    size_limit()  # report a wrong setting before the build
    folder, key = cache_directory(), cache_key(sources, flags, compiler, base)
    if found := find(folder, key):
        return found
    timeout = timeout_seconds()
    with build_folder(sources) as temporary:
        units = [name for name in sources if name.endswith(".c")]
        if "-shared" in base:
            rest = ["-o", "library.so", *units, "-lm"]
            _compile(temporary, sources, (*base, *flags), rest, compiler, timeout, "library.so")
        else:
            made = [f"{name}.o" for name in units]
            for name, out in zip(units, made, strict=True):
                _compile(temporary, sources, (*base, *flags), ["-c", "-o", out, name], compiler, timeout, out)
            # Without flags of CPUs: for each set of them, zig would build its C library.
            linked = (*base, *(flag for flag in flags if not flag.startswith("-m")))
            command = [*compiler.command, *linked, "-o", "library.so", *made, "-lm"]
            _invoke(command, temporary, compiler, timeout, "library.so")
        return store(folder, key, temporary / "library.so")


def build_file(
    kind: str, units: Mapping[str, CFile], headers: Mapping[str, str], compiler: Compiler, threads: Sequence[str] = ()
) -> bytes:
    """Return the bytes of a file of the kind `s`, `o`, `a` or `so`, built from C files that include `headers`.

    Assembly (`s`) takes one unit. `threads` are the compiler's flags for parallel loops. Raises ToolchainError if the
    compiler fails or times out.
    """
    with build_folder(_texts(units, headers)) as folder:
        return _built(kind, folder, units, compiler, threads).read_bytes()


def build_units(
    units: Mapping[str, CFile], headers: Mapping[str, str], compiler: Compiler, threads: Sequence[str] = ()
) -> Path:
    """Return the path of a shared object of C files with flags of their own; the cache holds it as that of `build`.

    `threads` are as for `build_file`. Raises ToolchainError.
    """
    size_limit()  # report a wrong setting before the build
    flags = [f"{file} {flag}" for file, unit in sorted(units.items()) for flag in unit.flags]
    folder, key = cache_directory(), cache_key(_texts(units, headers), [*flags, *threads], compiler, COMMON_FLAGS)
    if found := find(folder, key):
        return found
    with build_folder(_texts(units, headers)) as temporary:
        return store(folder, key, _built("so", temporary, units, compiler, threads))


def _texts(units: Mapping[str, CFile], headers: Mapping[str, str]) -> dict[str, str]:
    return {**headers, **{file: unit.text for file, unit in units.items()}}


def _built(kind: str, folder: Path, units: Mapping[str, CFile], compiler: Compiler, threads: Sequence[str]) -> Path:
    """Return the path of the file that C files in a build folder become."""
    command, timeout, made = compiler.command, timeout_seconds(), list[str]()
    for file, unit in units.items():
        made.append(f"{Path(file).stem}.{'s' if kind == 's' else 'o'}")
        flags = (*COMMON_FLAGS, "-fPIC", *unit.flags, *threads)
        rest = ["-S" if kind == "s" else "-c", "-o", made[-1], file]
        _compile(folder, {file: unit.text}, flags, rest, compiler, timeout, made[-1])
    if kind in ("a", "so") or len(made) > 1:
        whole = f"whole.{kind}"
        joined = {
            "o": [*command, "-r", "-nostdlib", "-o", whole, *made],
            "a": [*_archiver(compiler, folder), "rcsD", whole, *made],
            "so": [*command, "-shared", "-o", whole, *made, "-lm", *threads],
        }
        _invoke(joined[kind], folder, compiler, timeout, whole)
        made = [whole]
    return folder / made[0]


@contextmanager
def build_folder(files: Mapping[str, str]) -> Generator[Path]:
    """Yield a new folder with these files, by name, and remove it afterwards. Raises ToolchainError."""
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


def cache_key(
    sources: Mapping[str, str], flags: Sequence[str], compiler: Compiler, base: Sequence[str] = BASE_FLAGS
) -> str:
    """Return a hash of everything that determines the machine code."""
    decisive = [
        sorted(sources.items()),
        list(base),
        list(flags),
        compiler.command,
        compiler.version,
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()


def _compile(
    folder: Path,
    sources: Mapping[str, str],
    flags: Sequence[str],
    rest: Sequence[str],
    compiler: Compiler,
    timeout: float,
    output: str,
) -> None:
    """Compile C files of a build folder to the file `output`, with precompiled headers if possible.

    `flags` affect headers, `rest` are the other arguments. Raises ToolchainError.
    """
    command = [*compiler.command, *flags]
    text = common_includes(sources)
    headers = PrecompiledHeaders(
        folder.parent / f"{HEADERS}{cache_key({'headers.h': text}, flags, compiler)}", text, tuple(command)
    )
    include = headers.flags(timeout)
    if (
        include
        and not _run([*command, *include, *rest], folder, compiler, timeout).code
        and (folder / output).is_file()
    ):
        return
    _invoke([*command, *rest], folder, compiler, timeout, output)
    if include:
        headers.remove()  # damaged or out of date


def _invoke(command: Sequence[str], folder: Path, compiler: Compiler, timeout: float, output: str) -> None:
    """Run a compiler command that writes `output` to a build folder. Raises ToolchainError."""
    done = _run(command, folder, compiler, timeout)
    if done.code or not (folder / output).is_file():
        raise ToolchainError(
            f"{compiler.name} failed with exit code {done.code}:\n{done.excerpt()}\n  {_store_failed(folder)}",
            f"the command was {shlex.join(command)}",
        )


def _run(command: Sequence[str], folder: Path, compiler: Compiler, timeout: float) -> ProcessResult:
    try:
        return run(command, timeout, folder)
    except TimeoutError as error:
        raise ToolchainError(
            f"{compiler.name} was stopped after {timeout:g} s; {_store_failed(folder)}",
            "give it more time with MORELLO_CC_TIMEOUT (seconds), or use another compiler",
        ) from error
    except OSError as error:
        raise ToolchainError(
            f"`{shlex.join(compiler.command)}` cannot be started: {error.strerror or error}", CHOOSE_HINT
        ) from error


def _store_failed(folder: Path) -> str:
    """Keep the C that did not compile; return a message with its path, which is the same for the same C."""
    try:
        units = sorted(folder.glob("*.c"))
        digest = hashlib.sha256(b"".join(unit.read_bytes() for unit in units)).hexdigest()[:16]
        kept = folder.parent / f"failed-{digest}"
        kept.mkdir(mode=0o700, exist_ok=True)
        for file in folder.iterdir():
            os.replace(file, kept / file.name)
    except OSError as error:
        return f"the C could not be stored in {folder.parent}: {error.strerror or error}"
    return f"the C is stored in {kept / units[0].name if len(units) == 1 else kept}"


def _archiver(compiler: Compiler, folder: Path) -> list[str]:
    """Return the command that makes archives from the compiler's objects."""
    if compiler.name in ("zig cc", "zig") and "cc" in compiler.command:
        return [*compiler.command[: compiler.command.index("cc")], "ar"]
    return [_run([*compiler.command, "-print-prog-name=ar"], folder, compiler, timeout_seconds()).out.strip() or "ar"]
