"""Keeps built libraries in a directory that only the user can write, and sees that they are whole."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from morello.atomic_write import staging_path
from morello.errors import ToolchainError
from morello.paths import make_private, user_folder

#: Bytes that the cache may hold if nobody says otherwise, and the file in it that says so.
_DEFAULT_LIMIT, _LIMIT_FILE = 1 << 30, "limit"
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("KMGT", 1)
    for rest, base in (("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"([0-9]{1,15}) ?([KMGT]i?B|B)?")
_SIZE_HINT = "a whole number with a unit of B, KiB, MiB, GiB or TiB, or KB, MB, GB or TB, such as 500MiB"
#: What names of precompiled headers begin with, before their key.
HEADERS = "headers-"
#: What may be removed to make room, by kind. Nothing else is ours.
_KINDS = {
    "libraries": re.compile(r"[0-9a-f]{64}(-[0-9a-f]{64})?\.so"),
    "headers that compilers have read": re.compile(rf"{HEADERS}[0-9a-f]{{64}}"),
    "times of compilers' code": re.compile(r"[0-9a-f]{64}\.times"),
    "C that did not compile": re.compile(r"failed-[0-9a-f]{16}"),
    "C that was shown": re.compile(r".+-[0-9a-f]{12}\.c"),
}
_BUILDING = "building-"
#: Seconds for which what was used stays: another process may be about to load it.
_IN_USE = 60.0
#: Seconds after which nobody is still building.
_ABANDONED = 86_400.0


def cache_directory() -> Path:
    """Return the directory of built libraries: MORELLO_CACHE_DIR, or the user's own; it is made where it is missing.

    Libraries from it are loaded into this process, so nobody else may be able to write to it or to put another in its
    place. Raises ToolchainError where that cannot be had.
    """
    # Links are followed once, here: what is checked is what is used.
    folder = Path(os.path.realpath(user_folder()))
    try:
        make_private(folder)
        found = [(one, one.stat()) for one in (folder, *folder.parents)]
    except OSError as error:
        raise unusable(folder, f"cannot be made: {error.strerror or error}") from error
    for place, status in found:
        _check_private(folder, place, status)
    return folder


def _check_private(folder: Path, place: Path, status: os.stat_result) -> None:
    """Raise ToolchainError if another user could put code into `folder`, of which `place` is a parent or itself."""
    subject = "" if place == folder else f"is in {place}, which "
    parent = place != folder
    if status.st_uid != os.geteuid() and not (parent and status.st_uid == 0):
        raise unusable(folder, f"{subject}belongs to another user (uid {status.st_uid}), who could put code into it")
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others and not (parent and status.st_mode & stat.S_ISVTX):
        raise unusable(folder, f"{subject}can be written by others, who could put code into it: `chmod go-w {place}`")


def unusable(folder: Path, reason: str) -> ToolchainError:
    """Return the error to raise for a cache directory that cannot be used."""
    return ToolchainError(
        f"the cache directory {folder} {reason}",
        "set the environment variable MORELLO_CACHE_DIR to a directory that is yours alone",
    )


def size_limit() -> int:
    """Return how many bytes the cache may hold: MORELLO_CACHE_LIMIT, what `keep_limit` kept, or 1 GiB.

    Raises ToolchainError for what is no size.
    """
    text, place, hint = os.environ.get("MORELLO_CACHE_LIMIT"), "MORELLO_CACHE_LIMIT", f"set it to {_SIZE_HINT}"
    if not text:
        file = user_folder() / _LIMIT_FILE
        place, hint = str(file), "`morello cache limit SIZE` sets it anew"
        try:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return _DEFAULT_LIMIT
        except OSError as error:
            raise ToolchainError(f"{place} cannot be read: {error.strerror or error}", hint) from error
    size = bytes_of(text)
    if size is None:
        raise ToolchainError(f"{place} is {text[:80]!r}, which is no size", hint)
    return size


def keep_limit(size: int) -> None:
    """Keep how many bytes the cache may hold, and remove what is above that. Raises ToolchainError."""
    folder = cache_directory()
    try:
        with staging_path(folder / _LIMIT_FILE) as aside:
            aside.write_text(f"{size}\n", encoding="utf-8")
            os.replace(aside, folder / _LIMIT_FILE)
        _make_room(folder, folder)
    except OSError as error:
        raise unusable(folder, f"cannot be written: {error.strerror or error}") from error


def bytes_of(text: str) -> int | None:
    """Return the bytes that a text such as `500MiB` or `500MB` stands for, None if it is no size."""
    parsed = _SIZE.fullmatch(text)
    return int(parsed[1]) * _UNITS[parsed[2] or ""] if parsed else None


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return how many entries of each kind a cache directory has, and how many bytes they take."""
    found: dict[str, tuple[int, int]] = dict.fromkeys(_KINDS, (0, 0))
    for entry in _entries(folder) if folder.is_dir() else ():
        count, size = found[entry.kind]
        found[entry.kind] = count + 1, size + entry.size
    return found


def clear() -> tuple[int, int]:
    """Remove all entries of the cache; how many, and how many bytes they took. Raises ToolchainError."""
    folder = cache_directory()
    entries = [*_entries(folder)]
    for entry in entries:
        _remove(entry.path)
    _remove_abandoned(folder)
    left = {entry.path for entry in _entries(folder)}
    gone = [entry.size for entry in entries if entry.path not in left]
    return len(gone), sum(gone)


def find(folder: Path, key: str) -> Path | None:
    """Return the library built for `key`, if it is there and whole. One that is not whole is removed."""
    for library in sorted(folder.glob(f"{key}-*.so")):
        if is_whole(library):
            with contextlib.suppress(OSError):
                os.utime(library)  # the time of its last use
            return library
        with contextlib.suppress(OSError):
            library.unlink()
    return None


def is_whole(library: Path) -> bool:
    """Return whether a library of the cache has the contents it was built with, which its name has the checksum of.

    Loading half a library kills the process.
    """
    try:
        with library.open("rb") as file:
            return library.stem.rpartition("-")[2] == hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return False


def keep(folder: Path, key: str, built: Path) -> Path:
    """Move a library just built to its place in the cache, and make room for it. Raises OSError.

    After a loss of power it is there as a whole, or its name tells that it is not.
    """
    with built.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    library = folder / f"{key}-{digest}.so"
    os.replace(built, library)
    # The library is of use whether or not these succeed.
    with contextlib.suppress(OSError):
        _sync_directory(folder)
    with contextlib.suppress(OSError):
        _make_room(folder, library)
    return library


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@attrs.frozen(order=True)
class _Entry:
    """Something in the cache that may be removed, by the time of its last use."""

    used: float
    path: Path
    size: int
    kind: str


def _make_room(folder: Path, built: Path) -> None:
    """Remove what was not used for longest until the rest is within the limit, but not what was just built.

    A library that a process has loaded stays in its memory.
    """
    now = time.time()
    entries = sorted(_entries(folder))
    total = sum(entry.size for entry in entries)
    limit = size_limit()
    for entry in entries:
        if total > limit and entry.path != built and now - entry.used > _IN_USE:
            _remove(entry.path)
            total -= entry.size
    _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    for place in folder.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):
            if time.time() - place.stat().st_mtime > _ABANDONED:
                _remove(place)


def _entries(folder: Path) -> Iterator[_Entry]:
    with os.scandir(folder) as found:
        for each in found:
            kind = next((kind for kind, names in _KINDS.items() if names.fullmatch(each.name)), None)
            if kind is not None:
                # Another process may have removed it.
                with contextlib.suppress(OSError):
                    status = each.stat(follow_symlinks=False)
                    size = _size_of(Path(each.path)) if each.is_dir(follow_symlinks=False) else status.st_size
                    yield _Entry(status.st_mtime, Path(each.path), size, kind)


def _size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
