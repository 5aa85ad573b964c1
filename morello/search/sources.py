"""The C of the compiled part of search. `setup.py` runs this file by itself: it imports nothing of Morello."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: The folders that have parts in C. Files of all are built together, so their names differ.
FOLDERS = tuple(Path(__file__).parent / name for name in ("bounds", "layout_bounds", "solve"))


def sources() -> list[Path]:
    """Return the files, headers among them, in the order in which they are built."""
    return [path for folder in FOLDERS for path in sorted(folder.glob("*.[ch]"))]


def declarations() -> list[Path]:
    """Return the headers that Python reads, too: they tell of the functions and types of the compiled part."""
    return [path for path in sources() if path.name.startswith("_") and path.suffix == ".h"]


def digest() -> str:
    """Return a hash of names and contents. A library built of them holds it (`_engine.c`)."""
    found = hashlib.sha256()
    for path in sources():
        data = path.read_bytes()
        found.update(f"{path.name} {len(data)} ".encode() + data)
    return found.hexdigest()
