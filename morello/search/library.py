"""The compiled parts of search: built when Morello is installed or, where that had no compiler, at their first use."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import cffi

#: The folders that have parts in C. Files of all are built together, so their names differ.
FOLDERS = tuple(Path(__file__).parent / name for name in ("bounds", "layout_bounds", "solve"))
#: Seconds by which sources of one installation may differ in age from what was built of them.
_UNPACKING = 60.0


@cache
def library() -> tuple[Any, Any]:
    """Return the compiled search, and what makes its arguments. Raises ToolchainError where there is no compiler."""
    ffi = cffi.FFI()
    for header in (path for path in _sources() if path.name.startswith("_") and path.suffix == ".h"):
        ffi.cdef(header.read_text(encoding="utf-8"))
    return ffi, ffi.dlopen(str(installed() or _built()))


def installed() -> Path | None:
    """Return the library that was built with the package, None if there is none or its sources are newer by far."""
    # It is called as one of its sources, so that what answers depend on is the same with it and without.
    found = importlib.util.find_spec("morello.search.solve._engine")
    path = Path(found.origin) if found and found.origin else None
    edited = max(source.stat().st_mtime for source in _sources())
    return path if path and edited < path.stat().st_mtime + _UNPACKING else None


def _sources() -> list[Path]:
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.[ch]"))]


def _built() -> Path:
    # No answer depends on how it is built, so what answers depend on does not import that.
    runtime = importlib.import_module("morello.runtime.build"), importlib.import_module("morello.runtime.toolchain")
    sources = {path.name: path.read_text(encoding="utf-8") for path in _sources()}
    return runtime[0].build(sources, ("-O3",), runtime[1].find_compiler())
