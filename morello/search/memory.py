"""Memory that there is, and that this process takes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from morello.errors import MorelloError

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE


def free() -> int:
    """Return the bytes that processes may still take before others have to give way."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    amounts = dict(line.split(":") for line in lines)
    return int(amounts["MemAvailable"].split()[0]) << 10


class Full(MorelloError):
    """A search that takes as much memory as it may, and is not where it could end with what it has."""


_most: ContextVar[int | None] = ContextVar("most", default=None)


@contextmanager
def limited(most: int | None) -> Generator[None]:
    """Let `check` watch over so many bytes, for this thread; None: over as many as before."""
    token = _most.set(_most.get() if most is None else most)
    try:
        yield
    finally:
        _most.reset(token)


def check(more: int = 0) -> None:
    """Raise Full if this process takes more memory than it may, or would with so many bytes more."""
    most = _most.get()
    if most is not None and resident() + more > most:
        raise Full(f"search takes more than {most:,} bytes of memory", "give it more, or make the sizes smaller")
