"""Memory that there is, and that this process takes."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: Seconds for which an answer holds: to ask takes longer than most of what is done between two questions.
_HOLDS = 0.005
#: When that was asked for last, by `time.perf_counter`, and the answer.
_last = float("-inf"), 0


def resident() -> int:
    """Return the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE


def resident_lately() -> int:
    """Return the bytes of this process that were in memory a few milliseconds ago at most."""
    global _last
    now = time.perf_counter()
    if now - _last[0] >= _HOLDS:
        _last = now, resident()
    return _last[1]


def free() -> int:
    """Return the bytes that processes may still take before others have to give way."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    amounts = dict(line.split(":") for line in lines)
    return int(amounts["MemAvailable"].split()[0]) << 10


@contextmanager
def uncollected() -> Generator[None]:
    """Look for no garbage in circles: where nearly all that is made stays, that takes a tenth of the time in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
