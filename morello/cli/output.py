"""Write output files atomically."""

from __future__ import annotations

import os
from pathlib import Path

from morello.atomic_write import staging_path
from morello.errors import MorelloError


def check_writable(path: str, source: str) -> None:
    """Raise MorelloError if `path` cannot be written to, or is the file `source`."""
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise MorelloError(f"cannot write {path}: it is a directory", "name a file in it")
    if place.exists() and os.path.exists(source) and place.samefile(source):
        raise MorelloError(f"cannot write {path}: it is the Spec file itself", "choose another name")
    if not place.parent.is_dir():
        raise MorelloError(f"cannot write {path}: directory {place.parent} does not exist", f"mkdir -p {place.parent}")
    touched = [place] if _is_special(place) else [place.parent, *([place] if place.exists() else [])]
    if not all(os.access(one, os.W_OK) for one in touched):
        raise MorelloError(f"cannot write {path}: permission denied", "choose a path that you may write to")


def write_file(path: str | Path, data: bytes) -> None:
    """Replace `path` atomically; write to devices and pipes directly. Raises MorelloError on failure."""
    place = Path(os.path.realpath(path))
    try:
        if _is_special(place):
            place.write_bytes(data)
            return
        with staging_path(place) as aside:
            aside.write_bytes(data)
            os.replace(aside, place)
    except OSError as error:
        raise MorelloError(
            f"cannot write {path}: {error.strerror or error}", "free some space, or choose another path"
        ) from error


def _is_special(place: Path) -> bool:
    return place.exists() and not place.is_file()
