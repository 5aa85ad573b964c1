"""Has each compiler read the headers of emitted C once: those of x86 take it longer than most kernels do."""

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
from morello.runtime.cache import size_limit
from morello.runtime.process import run

#: The first headers of a file, and what before them may change what they say.
_INCLUDES = re.compile(r"(?:^#include <[^>\n]+>\n)+", re.MULTILINE)
_CHANGES = re.compile(r"^\s*#\s*(define|undef|include)\b", re.MULTILINE)
_OPENS, _CLOSES = (re.compile(rf"^\s*#\s*{word}", re.MULTILINE) for word in ("if", "endif"))
#: Bytes of a cache that is large enough for headers, of which gcc keeps some 25 MB for each set of flags.
_ROOM = 256 << 20


@attrs.frozen
class Headers:
    """Headers as a compiler has read them, by the `command` of a build without files. `folder` is in the cache.

    `text` includes them; where it is empty, and in a cache that is too small, there are none. They are kept once they
    are asked for a second time: to read and keep them takes twice as long as to read them.
    """

    folder: Path
    text: str
    command: tuple[str, ...]

    @property
    def _file(self) -> Path:
        return self.folder / "headers.h"

    @property
    def _read(self) -> Path:
        # Where compilers look for what they have made of a header. It is empty where this one cannot.
        return self.folder / "headers.h.gch"

    def flags(self, timeout: float) -> tuple[str, ...]:
        """Return the flags for the build to use them, none if it has to read them itself.

        The compiler may take `timeout` seconds to read them.
        """
        if not self.text or size_limit() < _ROOM:
            return ()
        with contextlib.suppress(OSError):
            if not self.folder.is_dir():
                self.folder.mkdir()  # so that the next to ask is the second one
            elif self._read.exists():
                os.utime(self.folder)  # the time of its last use
                return ("-include", str(self._file)) if self._read.stat().st_size else ()
            elif self._is_free(timeout):
                return ("-include", str(self._file)) if self._make(timeout) else ()
        return ()

    def forget(self) -> None:
        """Remove what is of no use: it is damaged, or the system's headers have changed."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _is_free(self, timeout: float) -> bool:
        """Return True unless another process is about to read them, which has as much time."""
        with contextlib.suppress(FileNotFoundError):
            if time.time() - self._file.stat().st_mtime < timeout:
                return False
            self._file.unlink()
        return True

    def _make(self, timeout: float) -> bool:
        """Read them; return whether this compiler can. Raises OSError."""
        with self._file.open("x", encoding="utf-8") as file:
            file.write(self.text)
        try:
            with staging_path(self._read) as aside:
                # Here, where headers beside the sources are not found, which are no system's.
                done = run([*self.command, "-x", "c-header", self._file.name, "-o", str(aside)], timeout, self.folder)
                able = not done.code and aside.is_file()
                if not able:
                    aside.write_bytes(b"")
                with aside.open("rb") as file:
                    os.fsync(file.fileno())
                os.replace(aside, self._read)
        except BaseException:
            self._file.unlink(missing_ok=True)
            raise
        return able


def includes_of(sources: Mapping[str, str]) -> str:
    """Return the lines that include the headers with which all C files begin, none where these differ."""
    found = {_includes(text) for name, text in sources.items() if name.endswith(".c")}
    return found.pop() if len(found) == 1 else ""


def _includes(text: str) -> str:
    """Return the lines that include the first headers of a file, if these say the same without what comes before."""
    first = _INCLUDES.search(text)
    before = text[: first.start()] if first else ""
    alone = not _CHANGES.search(before) and len(_OPENS.findall(before)) == len(_CLOSES.findall(before))
    return first[0] if first and alone else ""
