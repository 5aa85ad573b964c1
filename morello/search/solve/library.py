"""The compiled part of search: built when Morello is installed or, where that had no compiler, at its first use."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import cffi

FOLDER = Path(__file__).parent
#: Seconds by which sources of one installation may differ in age from what was built of them.
_UNPACKING = 60.0


@cache
def library() -> tuple[Any, Any]:
    """Return the compiled search, and what makes its arguments. Raises ToolchainError where there is no compiler."""
    ffi = cffi.FFI()
    ffi.cdef((FOLDER / "_engine.h").read_text(encoding="utf-8"))
    return ffi, ffi.dlopen(str(installed() or _built()))


def installed() -> Path | None:
    """Return the library that was built with the package, None if there is none or its sources are newer by far."""
    found = importlib.util.find_spec("morello.search.solve._engine")
    path = Path(found.origin) if found and found.origin else None
    edited = max(source.stat().st_mtime for source in FOLDER.glob("*.[ch]"))
    return path if path and edited < path.stat().st_mtime + _UNPACKING else None


def _built() -> Path:
    # No answer depends on how it is built, so what answers depend on does not import that.
    runtime = importlib.import_module("morello.runtime.build"), importlib.import_module("morello.runtime.toolchain")
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.[ch]"))}
    return runtime[0].build(sources, ("-O2",), runtime[1].find_compiler())
