"""The cache: built libraries in a directory that only the user can write, each with its checksum in its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from morello.atomic_write import staging_path
from morello.errors import NotSaved, ToolchainError
from morello.paths import GRAMMAR, private_folder, unusable, user_folder

#: The default size limit in bytes, and the file of the limit set by the user.
_DEFAULT_LIMIT, _LIMIT_FILE = 1 << 30, "limit"
_UNITS = {"": 1, "B": 1} | {
    f"{letter}{rest}": base**power
    for power, letter in enumerate("KMGT", 1)
    for rest, base in (("iB", 1024), ("B", 1000))
}
_SIZE = re.compile(r"([0-9]{1,15}) ?([KMGT]i?B|B)?")
_SIZE_HINT = "a whole number with a unit of B, KiB, MiB, GiB or TiB, or KB, MB, GB or TB, such as 500MiB"
#: Prefix of the folders of precompiled headers.
HEADERS = "headers-"
#: Names of entries that may be evicted, by kind.
_KINDS = {
    "libraries": re.compile(r"[0-9a-f]{64}(-[0-9a-f]{64})?\.so"),
    "precompiled headers": re.compile(rf"{HEADERS}[0-9a-f]{{64}}"),
    "times of compiler choices": re.compile(r"[0-9a-f]{64}\.times"),
    "C that did not compile": re.compile(r"failed-[0-9a-f]{16}"),
    "grammars": re.compile(rf"{GRAMMAR}[0-9a-f]{{64}}"),
    "C that was shown": re.compile(r".+-[0-9a-f]{12}\.c"),
}
_BUILDING = "building-"
#: Seconds after its last use before an entry may be evicted: another process may be about to load it.
_IN_USE = 60.0
#: Seconds after which a build folder counts as abandoned.
_ABANDONED = 86_400.0


def cache_directory() -> Path:
    """Return the directory of built libraries, created if it is missing: MORELLO_CACHE_DIR, or the user's cache.

    One in the folder for temporary files replaces a directory that cannot be made, with a NotSaved warning. Libraries
    in it are loaded into this process, so no other user may write to it or replace it. Raises ToolchainError otherwise.
    """
    folder = user_folder()
    try:
        return private_folder(folder)
    except OSError as error:
        other = Path(tempfile.gettempdir(), f"morello-{os.geteuid()}")
        fault = unusable(folder, f"cannot be made: {error.strerror or error}")
        warnings.warn(f"going on with the cache directory {other}: {fault}", NotSaved, stacklevel=2)
        return private_folder(other)


def size_limit() -> int:
    """Return the size limit of the cache in bytes: MORELLO_CACHE_LIMIT, the one of `limit_cache`, or 1 GiB.

    Raises ToolchainError for text that is not a size.
    """
    text, place, hint = os.environ.get("MORELLO_CACHE_LIMIT"), "MORELLO_CACHE_LIMIT", f"set it to {_SIZE_HINT}"
    if not text:
        file = user_folder() / _LIMIT_FILE
        place, hint = str(file), "`morello cache limit SIZE` sets it"
        if not os.path.exists(file):
            return _DEFAULT_LIMIT
        try:
            text = file.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            raise ToolchainError(f"{place} cannot be read: {error.strerror or error}", hint) from error
    size = parse_size(text)
    if size is None:
        raise ToolchainError(f"{place} is {text[:80]!r}, which is not a size", hint)
    return size


def limit_cache(size: int) -> None:
    """Set the size limit of the cache in bytes, and evict entries above it. Raises ToolchainError."""
    folder = user_folder()
    try:
        folder = private_folder(folder)
        with staging_path(folder / _LIMIT_FILE) as aside:
            aside.write_text(f"{size}\n", encoding="utf-8")
            os.replace(aside, folder / _LIMIT_FILE)
        _make_room(folder, folder)
    except OSError as error:
        raise unusable(folder, f"cannot be written: {error.strerror or error}") from error


def parse_size(text: str) -> int | None:
    """Return the bytes of a text such as `500MiB` or `500MB`, None if it is not a size."""
    parsed = _SIZE.fullmatch(text)
    return int(parsed[1]) * _UNITS[parsed[2] or ""] if parsed else None


@attrs.frozen
class CacheContents:
    """The user's cache folder, its limit in bytes, and the number of entries and bytes of each kind."""

    folder: Path
    limit: int
    kinds: Mapping[str, tuple[int, int]]

    @property
    def bytes(self) -> int:
        return sum(size for _, size in self.kinds.values())


def cache_contents() -> CacheContents:
    """Return the contents of the user's cache. Raises ToolchainError for a wrong limit."""
    folder = user_folder()
    return CacheContents(folder, size_limit(), contents(folder))


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the number of entries of each kind, and their bytes."""
    found: dict[str, tuple[int, int]] = dict.fromkeys(_KINDS, (0, 0))
    for entry in _entries(folder) if folder.is_dir() else ():
        count, size = found[entry.kind]
        found[entry.kind] = count + 1, size + entry.size
    return found


def clear_cache() -> tuple[int, int]:
    """Remove all entries; return their number and bytes. Raises ToolchainError."""
    folder = cache_directory()
    entries = [*_entries(folder)]
    for entry in entries:
        _remove(entry.path)
    _remove_abandoned(folder)
    left = {entry.path for entry in _entries(folder)}
    gone = [entry.size for entry in entries if entry.path not in left]
    return len(gone), sum(gone)


def find(folder: Path, key: str) -> Path | None:
    """Return the intact library built for `key`, or None. Damaged ones are removed."""
    for library in sorted(folder.glob(f"{key}-*.so")):
        if is_intact(library):
            with contextlib.suppress(OSError):
                os.utime(library)  # the time of its last use
            return library
        with contextlib.suppress(OSError):
            library.unlink()
    return None


def is_intact(library: Path) -> bool:
    """Return whether a library matches the checksum in its name. Loading a truncated library kills the process."""
    try:
        with library.open("rb") as file:
            return library.stem.rpartition("-")[2] == hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return False


def store(folder: Path, key: str, built: Path) -> Path:
    """Move a new library into the cache, and evict others above the limit. Raises OSError."""
    with built.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    library = folder / f"{key}-{digest}.so"
    os.replace(built, library)
    # Failures below do not affect the library.
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


@attrs.frozen
class _CacheEntry:
    """An entry that may be evicted, and the time of its last use."""

    used: float
    path: Path
    size: int
    kind: str


def _make_room(folder: Path, built: Path) -> None:
    """Evict the least recently used entries above the limit, except `built`. Loaded libraries stay in memory."""
    now = time.time()
    entries = [*_entries(folder)]
    excess = sum(entry.size for entry in entries) - size_limit()
    # Thousands of entries are not sorted unless some go.
    for entry in sorted(entries, key=lambda entry: entry.used) if excess > 0 else ():
        if excess > 0 and entry.path != built and now - entry.used > _IN_USE:
            _remove(entry.path)
            excess -= entry.size
    _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    for place in folder.glob(f"{_BUILDING}*"):
        with contextlib.suppress(OSError):
            if time.time() - place.stat().st_mtime > _ABANDONED:
                _remove(place)


def _entries(folder: Path) -> Iterator[_CacheEntry]:
    with os.scandir(folder) as found:
        for each in found:
            kind = next((kind for kind, names in _KINDS.items() if names.fullmatch(each.name)), None)
            if kind is not None:
                # Another process may have removed it.
                with contextlib.suppress(OSError):
                    status = each.stat(follow_symlinks=False)
                    size = _size_of(Path(each.path)) if each.is_dir(follow_symlinks=False) else status.st_size
                    yield _CacheEntry(status.st_mtime, Path(each.path), size, kind)


def _size_of(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.iterdir())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
