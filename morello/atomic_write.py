"""Files and folders written through a staging path, so that no reader sees a partial one, even after a kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from morello.errors import MorelloError

#: Seconds before an unlocked staging folder counts as abandoned: its owner may not have locked it yet.
_GRACE = 60.0


@contextmanager
def staging_path(path: Path) -> Iterator[Path]:
    """Yield a path in a new folder next to `path`, from where the caller renames or links the result to `path`.

    The folder stays locked until it is removed on exit. Unlocked folders of killed processes are removed first.
    Raises OSError.
    """
    prefix = f".{path.name[:40]}.morello-"
    with suppress(OSError):
        for name in os.listdir(path.parent):
            if name.startswith(prefix):
                with suppress(OSError):
                    _remove_abandoned(path.parent / name)
    folder = tempfile.mkdtemp(prefix=prefix, dir=path.parent)
    try:
        lock = os.open(folder, os.O_RDONLY)
        try:
            # A file system without locks: `_remove_abandoned` cannot lock there either, and removes nothing.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(folder, "whole")
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove a folder that no process has locked. Raises OSError if one has, or if it cannot be removed."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if time.time() - os.fstat(lock).st_mtime > _GRACE:
            shutil.rmtree(folder)
    finally:
        os.close(lock)


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


def check_folder(path: str) -> None:
    """Raise MorelloError if files cannot be written to the folder `path`, which may be missing but for its parent."""
    place = Path(os.path.realpath(path))
    folder = place if place.exists() else place.parent
    if place.exists() and not place.is_dir():
        raise MorelloError(f"cannot write into {path}: it is a file", "choose another directory")
    if not folder.is_dir():
        raise MorelloError(f"cannot make {path}: directory {folder} does not exist", f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise MorelloError(f"cannot write into {folder}: permission denied", "choose a directory that you may write to")


def write_file(path: str | Path, data: bytes) -> None:
    """Replace `path` atomically, with its mode; write to devices and pipes directly. Raises MorelloError on failure."""
    write_files({path: data})


def write_files(files: Mapping[str | Path, bytes]) -> None:
    """Replace files as `write_file` does, after all of them are staged: a full disk replaces none."""
    path: str | Path = ""
    with ExitStack() as stack:
        try:
            staged = dict[str | Path, Path]()
            for path, data in files.items():
                place = Path(os.path.realpath(path))
                if _is_special(place):
                    place.write_bytes(data)
                    continue
                aside = stack.enter_context(staging_path(place))
                aside.write_bytes(data)
                if place.exists():
                    shutil.copymode(place, aside)
                staged[path] = aside
            for path in staged:
                os.replace(staged[path], os.path.realpath(path))
        except OSError as error:
            raise MorelloError(
                f"cannot write {path}: {error.strerror or error}", "free some space, or choose another path"
            ) from error


def _is_special(place: Path) -> bool:
    return place.exists() and not place.is_file()
