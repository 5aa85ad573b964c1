"""End the program with a message and an exit code if standard streams are closed or full."""

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
    """Standard error; errors of writing to it are ignored."""

    def write(self, data, /):
        with contextlib.suppress(OSError):
            return super().write(data)
        return len(data)


def prepare() -> None:
    """Install the streams above, and open closed ones on /dev/null."""
    # A file opened later must not get the number of a stream, or messages would end up in it.
    _occupy(0, os.O_WRONLY)
    _occupy(1, os.O_RDONLY)
    _occupy(2, os.O_WRONLY)
    # Characters that a terminal lacks, such as × or µ, are replaced.
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
    """After an error of standard output, redirect it to /dev/null, so that the flush at exit succeeds."""
    if error.filename == _NAME:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
