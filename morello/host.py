"""The instructions that this machine's CPU has."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import archspec.cpu
import archspec.cpu.detect


@cache
def cpu_features() -> frozenset[str]:
    """Return the names of this machine's CPU features, as `/proc/cpuinfo` has them.

    They combine the detected features with those of the recognised microarchitecture, which is often too old inside a
    virtual machine.
    """
    return frozenset(archspec.cpu.detect.detected_info().features | archspec.cpu.host().features)


def missing_features(needed: Iterable[str]) -> list[str]:
    """Return those of `needed` that this machine lacks."""
    host = archspec.cpu.host()
    return [feature for feature in needed if feature not in cpu_features() and feature not in host]
