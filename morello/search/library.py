"""The compiled part of search, built when Morello is installed or, without a compiler then, at its first use."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from functools import cache
from pathlib import Path
from typing import Any

from morello.search.sources import declarations, digest, sources

_INSTALLED = "morello.search.solve._engine"
_loading = threading.Lock()


def library() -> tuple[Any, Any]:
    """Return cffi's `ffi` and `lib` of the compiled search. Raises ToolchainError where there is no compiler."""
    # Each load makes its own types: two threads must share one.
    with _loading:
        return loaded()


@cache
def loaded() -> tuple[Any, Any]:
    """Load the compiled search once. Call `library`, which locks."""
    if installed():
        engine = importlib.import_module(_INSTALLED)
        return engine.ffi, engine.lib
    cffi = importlib.import_module("cffi")
    ffi = cffi.FFI()
    for header in declarations():
        ffi.cdef(header.read_text(encoding="utf-8"))
    return ffi, ffi.dlopen(str(library_path()))


def installed() -> Path | None:
    """Return the library that was built with the package, None if it is missing or was built of other sources."""
    # Its name is that of a source module, so that the fingerprint of answers is the same with and without it.
    found = importlib.util.find_spec(_INSTALLED)
    path = Path(found.origin) if found and found.origin else None
    # The digest is read from the file: a library of other sources may lack any function.
    return path if path and digest().encode() in path.read_bytes() else None


def library_path() -> Path:
    """Return the installed library or, without one, build it. Raises ToolchainError where there is no compiler."""
    path = installed()
    if path is None:
        # Imported here: answers depend on the sources that search imports, and not on how this library is built.
        build, toolchain = (importlib.import_module(f"morello.runtime.{name}") for name in ("build", "toolchain"))
        texts = {source.name: source.read_text(encoding="utf-8") for source in sources()}
        path = build.build(texts, ("-O3",), toolchain.find_compiler())
    return path
