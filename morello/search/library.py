"""The compiled parts of search: built when Morello is installed or, where that had no compiler, at their first use."""

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
    """Return the compiled search, and what makes its arguments. Raises ToolchainError where there is no compiler."""
    # What two threads loaded at once would not take each other's arguments.
    with _loading:
        return loaded()


@cache
def loaded() -> tuple[Any, Any]:
    """Load the compiled search, once: for `library`, which lets one thread in at a time."""
    if installed():
        engine = importlib.import_module(_INSTALLED)
        return engine.ffi, engine.lib
    cffi = importlib.import_module("cffi")
    ffi = cffi.FFI()
    for header in declarations():
        ffi.cdef(header.read_text(encoding="utf-8"))
    return ffi, ffi.dlopen(str(_built()))


def installed() -> Path | None:
    """Return the library that was built with the package, None if there is none or it was built of other sources."""
    # It is called as one of its sources, so that what answers depend on is the same with it and without.
    found = importlib.util.find_spec(_INSTALLED)
    path = Path(found.origin) if found and found.origin else None
    # A library of other sources may share no function with these, so it is not loaded to be asked.
    return path if path and digest().encode() in path.read_bytes() else None


def _built() -> Path:
    # No answer depends on how it is built, so what answers depend on does not import that.
    runtime = importlib.import_module("morello.runtime.build"), importlib.import_module("morello.runtime.toolchain")
    texts = {path.name: path.read_text(encoding="utf-8") for path in sources()}
    return runtime[0].build(texts, ("-O3",), runtime[1].find_compiler())
