"""The compiled parts of search, and their sources: built with the package, else at first use by any C compiler.

`setup.py` runs this file on its own: at its import it imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import threading
from functools import cache
from pathlib import Path
from typing import Any

#: The folders that have parts in C. Their files are built together, so file names are unique.
FOLDERS = tuple(Path(__file__).parent / name for name in ("bounds", "layout_bounds", "solve"))
_INSTALLED = "morello.search.solve._engine"
_loading = threading.Lock()


def sources() -> list[Path]:
    """Return the C files and headers in build order."""
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.[ch]"))]


def declarations() -> list[Path]:
    """Return the headers that cffi reads, too: they declare the functions and types that Python uses."""
    return [path for path in sources() if path.name.startswith("_") and path.suffix == ".h"]


def digest() -> str:
    """Return a hash of names and contents. A library built from them contains it (`_engine.c`)."""
    found = hashlib.sha256()
    for path in sources():
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)} ".encode() + data)
    return found.hexdigest()


def library() -> tuple[Any, Any]:
    """Return cffi's `ffi` and the compiled search. Raises ToolchainError without a C compiler."""
    # Objects of a library that another thread loaded at the same time would not be accepted.
    with _loading:
        return loaded()


@cache
def loaded() -> tuple[Any, Any]:
    """Load the compiled search once. Call `library` instead: it admits one thread at a time."""
    if installed():
        engine = importlib.import_module(_INSTALLED)
        return engine.ffi, engine.lib
    cffi = importlib.import_module("cffi")
    ffi = cffi.FFI()
    for header in declarations():
        ffi.cdef(header.read_text(encoding="utf-8"))
    return ffi, ffi.dlopen(str(library_path()))


def installed() -> Path | None:
    """Return the library built with the package, None if it is missing or its sources differ."""
    found = importlib.util.find_spec(_INSTALLED)
    path = Path(found.origin) if found and found.origin else None
    # A library of other sources may lack functions, so its digest is read from the file, not from its code.
    return path if path and digest().encode() in path.read_bytes() else None


def library_path() -> Path:
    """Return the installed library or, without one, build it. Raises ToolchainError without a compiler."""
    path = installed()
    if path is None:
        # Imported here: answers depend on the sources that search imports, and not on how this library is built.
        build, toolchain = (importlib.import_module(f"morello.build.{name}") for name in ("library", "toolchain"))
        texts = {source.name: source.read_text(encoding="utf-8") for source in sources()}
        path = build.build(texts, ("-O3",), toolchain.find_compiler())
    return path
