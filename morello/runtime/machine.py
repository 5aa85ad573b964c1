"""The abilities of the machine that this runs on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache

import archspec.cpu
import archspec.cpu.detect

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


@cache
def cpu_features() -> frozenset[str]:
    """Names of this machine's CPU features, as `/proc/cpuinfo` has them.

    What is detected and what the recognised microarchitecture implies: inside a virtual machine the latter is
    often an older one that lacks features the machine has.
    """
    return frozenset(archspec.cpu.detect.detected_info().features | archspec.cpu.host().features)


def missing_features(needed: Iterable[str]) -> list[str]:
    """Return those of `needed` that this machine lacks."""
    host = archspec.cpu.host()
    return [feature for feature in needed if feature not in cpu_features() and feature not in host]
