"""The instructions that this machine's CPU and others have."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import cache

import archspec.cpu
import archspec.cpu.detect

from morello.errors import MorelloError, UnknownName, suggestion

#: The name of this machine's CPU.
NATIVE = "native"


#: Linux grants the tiles of AMX to processes that ask: arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA) of x86-64.
_ARCH_PRCTL, _REQUEST, _TILES = 158, 0x1023, 18


def check_granted(needed: Iterable[str]) -> None:
    """Request permission for features that the system grants on request. Raises MorelloError if it refuses one."""
    if "amx_tile" in needed and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILES):
        raise MorelloError(
            "the system does not grant this process the tiles of AMX (amx_tile)",
            "run it on Linux 5.16 or later and outside of sandboxes, or choose x86_avx512",
        )


@cache
def cpu_features() -> frozenset[str]:
    """Return the names of this machine's CPU features, as `/proc/cpuinfo` has them.

    They combine the detected features with those of the recognised microarchitecture, which is often too old inside a
    virtual machine.
    """
    return frozenset(archspec.cpu.detect.detected_info().features | archspec.cpu.host().features)


def missing_features(needed: Iterable[str], cpu: str = NATIVE) -> list[str]:
    """Return the `needed` features that a CPU lacks: this machine's, or one that archspec names. Raises UnknownName."""
    if cpu not in (NATIVE, *archspec.cpu.TARGETS):
        hint = f"write {NATIVE}, a name that archspec has, such as zen4, or +FEATURE,+FEATURE"
        raise UnknownName(f"unknown CPU {cpu!r}", suggestion(cpu, archspec.cpu.TARGETS, hint))
    has = archspec.cpu.host() if cpu == NATIVE else archspec.cpu.TARGETS[cpu]
    own = cpu_features() if cpu == NATIVE else ()
    return [feature for feature in needed if feature not in own and feature not in has]
