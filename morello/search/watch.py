"""Watches over the memory and the time that a search takes, also where it makes tables and bounds."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from morello.errors import MorelloError
from morello.search.memory import resident_lately


class Full(MorelloError):
    """A search that takes as much memory as it may, and is not where it could end with what it has."""


class Late(MorelloError):
    """A search whose time is up before it is where it could end with what it has."""


_most: ContextVar[int | None] = ContextVar("most", default=None)
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))


@contextmanager
def watched(most: int | None, deadline: float = float("inf")) -> Generator[None]:
    """Let `check` watch over so many bytes and the time until a deadline, for this thread; None: bytes as before."""
    bytes_before = _most.set(_most.get() if most is None else most)
    time_before = _deadline.set(min(_deadline.get(), deadline))
    try:
        yield
    finally:
        _most.reset(bytes_before)
        _deadline.reset(time_before)


def check(more: int = 0) -> None:
    """Raise Full if this process takes more memory than it may, or would with so many bytes more; Late if it is."""
    most = _most.get()
    if most is not None and resident_lately() + more > most:
        raise Full(f"search takes more than {most:,} bytes of memory", "give it more, or make the sizes smaller")
    if time.monotonic() >= _deadline.get():
        raise Late("the time for the search is up", "give it more")
