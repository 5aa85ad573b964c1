"""Hashes of the sources that answers depend on: names of files and their normal forms, wherever they are installed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import attrs

from morello.atomic_write import staging_path
from morello.db.normalize import normal_c, normal_python
from morello.paths import make_private, user_folder

#: Parts of the package `morello` on which no answer depends; no other part imports them.
ASIDE = frozenset(
    {
        *("__init__.py", "__main__.py", "api", "build", "calibration", "cli", "crash.py", "interrupt.py"),
        *("models", "progress.py", "report", "run", "testing", "torch.py", "verify"),
    }
)

_SKIPPED = (".pyc", ".pyo", ".o", ".md", "~")
#: A compiled module counts only where its source file is missing.
_COMPILED = (".so", ".pyd", ".dylib", ".dll")
#: Normal forms kept in the cache folder: several versions of all packages.
_MOST_KEPT = 10_000


class Resource(Protocol):
    """A file or folder, on disk or in an archive: a `pathlib.Path`, or a `Traversable` of `importlib.resources`."""

    @property
    def name(self) -> str: ...
    def is_dir(self) -> bool: ...
    def iterdir(self) -> Iterator[Any]: ...
    def read_bytes(self) -> bytes: ...


@attrs.frozen
class PackageSources:
    """The hash of a package, and the modules that it imports."""

    hash: str
    imports: frozenset[str] = frozenset()


@cache
def core() -> str:
    """Return the hash of Morello's own sources."""
    return package_sources("morello", ASIDE).hash


def hash_of(root: Resource, aside: frozenset[str] = frozenset()) -> PackageSources:
    """Return the hash of a file, or of all files in a folder but those `aside` at its top."""
    files = [*_files(root, "", aside)] if root.is_dir() else [(root.name, root)]
    contents = [(name, entry.read_bytes()) for name, entry in files]
    kept = _read_kept()
    found = {name: kept.get(key := _key(name, data)) or _summary(name, data, key) for name, data in contents}
    fresh = {one[0]: one for one in found.values() if one[0] not in kept}
    if fresh:
        _keep(kept | fresh)
    digest = hashlib.sha256("\n".join(f"{name} {one[1]}" for name, one in found.items()).encode("utf-8", "replace"))
    return PackageSources(digest.hexdigest(), frozenset(module for one in found.values() for module in one[2]))


#: Of a file: the hash of its contents, the hash of its normal form, and the modules that it imports.
_Summary = tuple[str, str, list[str]]


def _key(name: str, data: bytes) -> str:
    return hashlib.sha256(b"%s %s" % (name.rpartition(".")[2].encode("utf-8", "replace"), data)).hexdigest()


def _summary(name: str, data: bytes, key: str) -> _Summary:
    """Return the summary of a file, whose normal form is that of its language."""
    imports: set[str] = set()
    # Line endings may change on the way to an installation.
    normal = data if b"\0" in data else data.replace(b"\r\n", b"\n")
    with suppress(SyntaxError, RecursionError, ValueError):
        if name.endswith(".py"):
            text, imports = normal_python(normal.decode())
            normal = text.encode("utf-8", "surrogatepass")
        elif name.endswith((".c", ".h")):
            normal = normal_c(normal.decode()).encode()
    return key, hashlib.sha256(normal).hexdigest(), sorted(imports)


def _kept_path() -> Path:
    """Return the file of summaries, of this version of the code that makes them and of Python's grammar."""
    own = [Path(__file__).with_name(name).read_bytes() for name in ("sources.py", "normalize.py")]
    return user_folder() / f"sources-{hashlib.sha256(repr((own, sys.version_info[:2])).encode()).hexdigest()[:16]}.json"


def _read_kept() -> dict[str, _Summary]:
    """Return the kept summaries by the hash of contents; none where they cannot be read."""
    try:
        rows = json.loads(_kept_path().read_bytes())
        return {key: (key, digest, [*map(str, imports)]) for key, digest, imports in rows}
    except (OSError, ValueError, TypeError):
        return {}


def _keep(summaries: Mapping[str, _Summary]) -> None:
    """Write summaries for later processes, if that is possible."""
    with suppress(OSError):
        path = _kept_path()
        make_private(path.parent)
        with staging_path(path) as staged:
            staged.write_text(json.dumps([*summaries.values()][-_MOST_KEPT:]), encoding="utf-8")
            os.replace(staged, path)


def _files(folder: Resource, prefix: str, aside: frozenset[str] = frozenset()) -> Iterator[tuple[str, Resource]]:
    entries = sorted(folder.iterdir(), key=lambda one: one.name)
    sources = {one.name.partition(".")[0] for one in entries if not one.name.endswith(_COMPILED)}
    for entry in entries:
        name = entry.name
        if name in aside or name == "__pycache__" or name.startswith(".") or name.endswith(_SKIPPED):
            continue
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{name}/")
        elif not name.endswith(_COMPILED):
            yield prefix + name, entry
        elif name.partition(".")[0] not in sources:
            # The rest of such a name depends on the machine and the version of Python.
            yield prefix + name.partition(".")[0], entry


def package_of(module: str) -> str | None:
    """Return the package that contains a module, the module itself if it has none, None for one without a file.

    Namespace packages are skipped, since several distributions share one: the result is the first package below.
    """
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
    return next((name for name in names if package_root(name) is not None), None)


def package_sources(name: str, aside: frozenset[str] = frozenset()) -> PackageSources:
    """Return the sources of a package that `package_of` returned."""
    root = package_root(name)
    return PackageSources("") if root is None else hash_of(root, aside)


def package_root(name: str) -> Resource | None:
    """Return the folder of a package, or the file of a module; None for a namespace, and for what has no file."""
    module = sys.modules.get(name)
    file, is_package = getattr(module, "__file__", None), hasattr(module, "__path__")
    if module is None:
        with suppress(ImportError, ValueError, AttributeError):
            if spec := find_spec(name):
                file, is_package = spec.origin, spec.submodule_search_locations is not None
    if not file:
        return None
    path = Path(file)
    if path.is_file():
        return path.parent if is_package else path
    if is_package and module is not None:
        # Most packages are not in archives, and need not wait for this import.
        from importlib.resources import files

        root = files(module)
        return root if root.is_dir() else None
    return None
