"""Hashes of the sources that answers depend on, wherever they are installed: names and contents, and nothing else."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Protocol

#: What of Morello's package no answer depends on; nothing else imports it.
ASIDE = frozenset(
    {
        *("__init__.py", "__main__.py", "api.py", "calibration", "cli", "compiled.py", "crash.py"),
        *("functions", "goals.py", "interrupt.py", "measured.py", "progress.py", "report", "runtime"),
        *("testing", "tuning"),
    }
)

_LEFT_OUT = {"__pycache__"}
#: Files that are made of others. A compiled module counts where what it was made of is not there.
_MADE = (".pyc", ".pyo", ".o")
_COMPILED = (".so", ".pyd", ".dylib", ".dll")


class Entry(Protocol):
    """A file or folder, on disk or in an archive: a `pathlib.Path` or what `importlib.resources` gives."""

    @property
    def name(self) -> str: ...
    def is_dir(self) -> bool: ...
    def iterdir(self) -> Iterator[Any]: ...
    def read_bytes(self) -> bytes: ...


@cache
def core() -> str:
    """Return the hash of Morello's own sources."""
    return package("morello", ASIDE)


def hash_of(root: Entry, aside: frozenset[str] = frozenset()) -> str:
    """Return the hash of a file, or of all files in a folder but those `aside` at its top."""
    digest = hashlib.sha256()
    for name, entry in _files(root, "", aside) if root.is_dir() else [(root.name, root)]:
        data = entry.read_bytes()
        if b"\0" not in data:
            # Text may have got other ends of lines on its way.
            data = data.replace(b"\r\n", b"\n")
        digest.update(f"{len(name)} {name} {len(data)} ".encode("utf-8", "surrogateescape") + data)
    return digest.hexdigest()


def _files(folder: Entry, prefix: str, aside: frozenset[str] = frozenset()) -> Iterator[tuple[str, Entry]]:
    entries = sorted(folder.iterdir(), key=lambda one: one.name)
    sources = {one.name.partition(".")[0] for one in entries if not one.name.endswith(_COMPILED)}
    for entry in entries:
        name = entry.name
        if name in aside or name in _LEFT_OUT or name.startswith(".") or name.endswith(("~", *_MADE)):
            continue
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{name}/")
        elif not name.endswith(_COMPILED):
            yield prefix + name, entry
        elif name.partition(".")[0] not in sources:
            # What such a file is called after its first dot is about the machine and the version of Python.
            yield prefix + name.partition(".")[0], entry


def package_of(module: str) -> str | None:
    """Return the package that a module came with, or itself if it is in none; None if there is no file of it.

    Namespaces are passed over, as several distributions share one: the package is the first one below them.
    """
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in names if _root(name) is not None), None)


def package(name: str, aside: frozenset[str] = frozenset()) -> str:
    """Return the hash of what `package_of` names. Not kept: modules may be loaded again once they have changed."""
    root = _root(name)
    return "" if root is None else hash_of(root, aside)


def _root(name: str) -> Entry | None:
    """Return the folder of a package, or the file of a module; None for a namespace, and for what has no file."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return None
    path = Path(file)
    if path.is_file():
        return path.parent if hasattr(module, "__path__") else path
    if hasattr(module, "__path__"):
        # Most packages are not in archives, and need not wait for this import.
        from importlib.resources import files

        root = files(module)
        return root if root.is_dir() else None
    return None
