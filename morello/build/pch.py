"""Precompile the system headers of emitted C: compiling those of x86 takes longer than compiling most kernels."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import attrs

from morello.atomic_write import staging_path
from morello.build.cache import size_limit
from morello.build.process import run

#: The first headers of a file, and directives before them that may change their contents.
_INCLUDES = re.compile(r"(?:^#include <[^>\n]+>\n)+", re.MULTILINE)
_CHANGES = re.compile(r"^\s*#\s*(define|undef|include)\b", re.MULTILINE)
_OPENS, _CLOSES = (re.compile(rf"^\s*#\s*{word}", re.MULTILINE) for word in ("if", "endif"))
#: The smallest cache, in bytes, that holds precompiled headers: gcc writes some 25 MB for each set of flags.
_ROOM = 256 << 20


@attrs.frozen
class PrecompiledHeaders:
    """Headers precompiled by `command`, a compiler with flags, in a `folder` of the cache. `text` includes them.

    They are precompiled at the second request: that takes twice as long as compiling them once.
    """

    folder: Path
    text: str
    command: tuple[str, ...]

    @property
    def _header(self) -> Path:
        return self.folder / "headers.h"

    @property
    def _precompiled(self) -> Path:
        # Compilers search this path. The file is empty if this compiler cannot precompile.
        return self.folder / "headers.h.gch"

    def flags(self, timeout: float) -> tuple[str, ...]:
        """Return the flags that include the precompiled headers, none if they are not available.

        The compiler may take `timeout` seconds to precompile.
        """
        if not self.text or size_limit() < _ROOM:
            return ()
        usable = False
        with contextlib.suppress(OSError):
            if not self.folder.is_dir():
                self.folder.mkdir()  # marks the first request
            elif self._precompiled.exists():
                os.utime(self.folder)  # the time of last use
                usable = self._precompiled.stat().st_size > 0
            elif self._claim(timeout):
                usable = self._precompile(timeout)
        return ("-include", str(self._header)) if usable else ()

    def remove(self) -> None:
        """Remove headers that are damaged or out of date."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _claim(self, timeout: float) -> bool:
        """Return whether no other process is precompiling: one that began `timeout` seconds ago has died."""
        with contextlib.suppress(FileNotFoundError):
            if time.time() - self._header.stat().st_mtime < timeout:
                return False
            self._header.unlink()
        return True

    def _precompile(self, timeout: float) -> bool:
        """Precompile; return whether this compiler can. Raises OSError."""
        with self._header.open("x", encoding="utf-8") as file:
            file.write(self.text)
        try:
            with staging_path(self._precompiled) as aside:
                # The working directory holds no headers of a program, only these.
                done = run([*self.command, "-x", "c-header", self._header.name, "-o", str(aside)], timeout, self.folder)
                able = not done.code and aside.is_file()
                if not able:
                    aside.write_bytes(b"")
                with aside.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(aside, self._precompiled)
        except BaseException:
            self._header.unlink(missing_ok=True)
            raise
        return able


def common_includes(sources: Mapping[str, str]) -> str:
    """Return the `#include` lines at the start of all C files, "" if they differ or depend on what precedes them."""
    found = {_includes(text) for name, text in sources.items() if name.endswith(".c")}
    return found.pop() if len(found) == 1 else ""


def _includes(text: str) -> str:
    first = _INCLUDES.search(text)
    before = text[: first.start()] if first else ""
    alone = not _CHANGES.search(before) and len(_OPENS.findall(before)) == len(_CLOSES.findall(before))
    return first[0] if first and alone else ""
