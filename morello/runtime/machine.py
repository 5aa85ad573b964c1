"""The threads of the machine that this runs on."""

from __future__ import annotations

import os

from morello.codegen.threads import MAX_THREADS
from morello.errors import MorelloError


def default_threads() -> int:
    """Threads of a parallel kernel unless a call says how many: MORELLO_THREADS, or one per CPU it may run on.

    Raises MorelloError if MORELLO_THREADS is no number of threads.
    """
    text = os.environ.get("MORELLO_THREADS")
    if text:
        if not (text.isascii() and text.isdigit()) or not 0 < int(text) <= MAX_THREADS:
            raise MorelloError(f"MORELLO_THREADS is {text!r}", f"set it to a number from 1 to {MAX_THREADS}")
        return int(text)
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cpus, MAX_THREADS)
