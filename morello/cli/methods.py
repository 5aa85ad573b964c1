"""Keeps the methods that attrs compiles for its classes in the cache: compiling them takes an eighth of a short run."""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import marshal
import os
import re
from contextlib import suppress
from pathlib import Path
from types import CodeType

from morello.atomic_write import staging_path
from morello.errors import ToolchainError
from morello.paths import METHODS, private_folder, user_folder

#: The first number that the `__hash__` of a class combines. It differs between processes, and may be any.
_SALT = re.compile(r"^ +-?\d+,$", re.MULTILINE)
#: Code objects kept: those of several versions of Morello and its plugins.
_MOST_KEPT = 4_000


def keep() -> None:
    """Use kept methods from now on, unless others can write to the cache folder."""
    with suppress(ImportError, OSError, ToolchainError):
        import attr._make

        compiler = _Compiler(private_folder(user_folder()) / f"{METHODS}{importlib.util.MAGIC_NUMBER.hex()}")
        # Attrs has no hook for this; if it calls `compile` no more, nothing is kept.
        attr._make.__dict__["compile"] = compiler
        atexit.register(compiler.write)


class _Compiler:
    """Replaces the function `compile` in attrs: it returns code objects of earlier processes, by their source."""

    def __init__(self, path: Path):
        self._path = path
        self._codes = _read(path)
        self._read = len(self._codes)

    def __call__(self, source: str, filename: str, mode: str) -> CodeType:
        key = hashlib.sha256(f"{filename}\n{_SALT.sub('', source)}".encode()).digest()
        if key not in self._codes:
            self._codes[key] = compile(source, filename, mode)
        return self._codes[key]

    def write(self) -> None:
        """Keep new code objects for later processes, if that is possible."""
        if len(self._codes) > self._read:
            data = marshal.dumps(dict([*self._codes.items()][-_MOST_KEPT:]))
            with suppress(OSError), staging_path(self._path) as staged:
                staged.write_bytes(hashlib.sha256(data).digest() + data)
                os.replace(staged, self._path)


def _read(path: Path) -> dict[bytes, CodeType]:
    """Return the kept code objects; none where they are missing or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return {}
    checksum, data = content[:32], content[32:]
    return marshal.loads(data) if hashlib.sha256(data).digest() == checksum else {}
