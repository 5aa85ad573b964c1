"""Measure the limits of a core: multiply-adds and reading."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import attrs
import numpy as np
from morello_baselines.native import timer
from morello_baselines.native.problems import empty

from morello.host import cpu_features

#: Bytes read repeatedly: they fit L1, L2, L3 and memory of most machines.
FOOTPRINTS = (1 << 14, 1 << 18, 1 << 22, 1 << 28)
#: Kinds of vectors, and the CPU feature of each.
VECTORS = {"avx2": "avx2", "avx512": "avx512f"}
_SECONDS = 0.02


@attrs.frozen
class _Limit:
    """One thing to measure: the function of limits.c, what a step of it does, and the bytes it reads."""

    function: str
    feature: str
    amount: int
    bytes: int = 0


#: The kinds of multiply-adds: the function of limits.c, the CPU's feature, and multiply-adds of twelve instructions.
_MULTIPLY_ADDS = {
    ("f32", "avx2"): ("fma_avx2", "avx2", 12 * 8),
    ("f32", "avx512"): ("fma_avx512", "avx512f", 12 * 16),
    ("bf16", "avx512"): ("bf16_avx512", "avx512_bf16", 12 * 32),
    ("bytes", "avx2"): ("bytes_avx2", "avx2", 12 * 32),
    ("vnni", "avx2"): ("vnni_avx2", "avx_vnni", 12 * 32),
    ("vnni", "avx512"): ("vnni_avx512", "avx512_vnni", 12 * 64),
}


def multiply_adds(kind: str, vectors: str) -> str:
    """Return the name of the limit of multiply-adds of a kind."""
    return f"{kind} {vectors}"


def reading(footprint: int, vectors: str) -> str:
    """Return the name of the limit of repeated reading."""
    return f"read {footprint >> 10} KiB {vectors}"


def _limits() -> dict[str, _Limit]:
    limits = {}
    for (kind, vectors), (function, feature, amount) in _MULTIPLY_ADDS.items():
        limits[multiply_adds(kind, vectors)] = _Limit(function, feature, 2 * amount)
    for vectors, feature in VECTORS.items():
        for footprint in FOOTPRINTS:
            limits[reading(footprint, vectors)] = _Limit(f"read_{vectors}", feature, footprint, footprint)
    return limits


class Limits:
    """Measures 10^9 operations or bytes a second; answers with the best that it has seen so far."""

    def __init__(self) -> None:
        self._library = timer.library("limits.c")
        self._limits = {name: one for name, one in _limits().items() if one.feature in cpu_features()}
        self._memory = empty((max(FOOTPRINTS),), np.dtype(np.uint8))
        self._memory.fill(1)
        self._best = dict.fromkeys(self._limits, 0.0)

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        for name, limit in self._limits.items():
            self._best[name] = max(self._best[name], self._measure(limit))
        return {"limits": self._best}

    def _measure(self, limit: _Limit) -> float:
        steps = 1
        while True:
            work = timer.Work(steps, self._memory.ctypes.data, limit.bytes, 0.0)
            start = time.thread_time()
            getattr(self._library, limit.function)(ctypes.byref(work))
            seconds = time.thread_time() - start
            if seconds >= _SECONDS:
                return steps * limit.amount / seconds / 1e9
            steps *= 2
