"""Makes standard streams that are closed, full or gone end the program with a message and the right exit code."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

_NAME = "standard output"


class _Output(io.FileIO):
    """Standard output; errors of writing to it name it."""

    def write(self, data, /):
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _NAME
            raise


class _Messages(io.FileIO):
    """Standard error; where it cannot be written there is nobody to tell, and nothing else changes."""

    def write(self, data, /):
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


def prepare() -> None:
    """Make standard output and standard error say what fails, or nothing; open those that were closed."""
    # A file opened later must not get the number of a stream, or messages would end up in it.
    _occupy(0, os.O_WRONLY)
    _occupy(1, os.O_RDONLY)
    _occupy(2, os.O_WRONLY)
    # Terminals that lack × or µ show something else rather than fail.
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout, "replace")
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr, "backslashreplace")


def _occupy(number: int, mode: int) -> None:
    try:
        os.fstat(number)
    except OSError:
        os.open(os.devnull, mode)


def _text(raw: io.FileIO, before: TextIO | None, errors: str) -> io.TextIOWrapper:
    encoding = before.encoding if before else "utf-8"
    lines = raw.isatty() or isinstance(raw, _Messages)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=lines)


def abandon(error: OSError) -> None:
    """After an error of standard output, write the rest of it nowhere, so that it does not fail at the end again."""
    if error.filename == _NAME:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
