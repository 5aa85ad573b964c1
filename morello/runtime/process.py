"""Runs a program as a process group of its own, so that a hang can be ended with all that it started."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import attrs

#: Bytes of each stream that are kept from its beginning, and as many from its end: a program may write without end.
_KEPT = 1 << 18
#: Lines of an excerpt, and characters of each.
_FIRST, _LAST, _WIDTH = 10, 3, 300


@attrs.frozen
class Outcome:
    """The end of a process: exit code (negative for a signal), standard output and standard error.

    Of output that is long, the middle is left out.
    """

    code: int
    out: str
    err: str

    def excerpt(self) -> str:
        """Return the first and last lines of what it had to say, for a message."""
        said = (self.err or self.out).strip().splitlines()
        more = len(said) - _FIRST - _LAST
        if more > 1:
            said = [*said[:_FIRST], f"({more:,} more lines)", *said[-_LAST:]]
        return "\n".join(f"  {_printable(line)}" for line in said)


def _printable(line: str) -> str:
    cut = line if len(line) <= _WIDTH else f"{line[:_WIDTH]}…"
    return "".join(each if each.isprintable() else " " if each == "\t" else "�" for each in cut)


class _Stream:
    """The beginning and the end of what is read from a pipe."""

    def __init__(self) -> None:
        self._head, self._tail, self._left_out = bytearray(), bytearray(), 0

    def add(self, chunk: bytes) -> None:
        free = _KEPT - len(self._head)
        self._head += chunk[:free]
        self._tail += chunk[free:]
        extra = len(self._tail) - _KEPT
        if extra > 0:
            del self._tail[:extra]
            self._left_out += extra

    def text(self) -> str:
        parts = [self._head, self._tail]
        if self._left_out:
            parts.insert(1, bytearray(f"\n({self._left_out:,} bytes are left out)\n".encode()))
        return b"".join(parts).decode(errors="replace")


def run(
    command: Sequence[str], timeout: float, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> Outcome:
    """Run `command` for at most `timeout` seconds; `environment` is added to this process's own.

    Raises TimeoutError after having killed the whole group, and OSError for a program that cannot be started.
    """
    with subprocess.Popen(
        list(command),
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        deadline = time.monotonic() + timeout
        try:
            out, err = _read((process.stdout, process.stderr), deadline)
            process.wait(max(0.0, deadline - time.monotonic()))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, TimeoutError | subprocess.TimeoutExpired):
                raise TimeoutError(f"`{' '.join(command)}` ran for {timeout:g} s") from error
            raise
    return Outcome(process.returncode, out, err)


def _read(pipes: Sequence[IO[bytes] | None], deadline: float) -> list[str]:
    """Return what comes out of each pipe until all are closed. Raises TimeoutError at the deadline."""
    streams = [_Stream() for _ in pipes]
    with selectors.DefaultSelector() as selector:
        for pipe, stream in zip(pipes, streams, strict=True):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, stream)
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                if chunk := os.read(key.fd, 1 << 16):
                    key.data.add(chunk)
                else:
                    selector.unregister(key.fileobj)
    return [stream.text() for stream in streams]
