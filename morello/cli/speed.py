"""Times of a kernel, and of numpy doing the same."""

from __future__ import annotations

import statistics
import timeit
from typing import Any

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.runtime.compiled import CompiledKernel
from morello.runtime.timing import BenchReport

_REPEATS = 5


@attrs.frozen
class Speed:
    """A kernel's timing, and numpy's median seconds for the same in f32; None where numpy has nothing to compute."""

    report: BenchReport
    numpy: float | None

    @property
    def ratio(self) -> float | None:
        """Return how many times as fast as numpy it is."""
        return self.numpy / self.report.median if self.numpy else None

    @property
    def times(self) -> str:
        """Return the ratio in words; nothing where there is none."""
        ratio = self.ratio
        return "" if ratio is None else f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"

    @property
    def rate(self) -> str:
        """Return arithmetic, or memory traffic where there is none."""
        gflops = self.report.gflops
        return f"{self.report.gbytes:.3g} GB/s" if gflops is None else f"{gflops:.4g} GFLOP/s"

    def as_dict(self) -> dict[str, Any]:
        report = self.report
        return {
            "seconds": report.median,
            "best_seconds": report.best,
            "measurements": list(report.seconds),
            "calls": report.calls,
            "threads": report.threads,
            "flops": report.flops,
            "bytes": report.bytes,
            "gflops": report.gflops,
            "gbytes": report.gbytes,
            "numpy_seconds": self.numpy,
            "times_as_fast_as_numpy": self.ratio,
        }


def measure(kernel: CompiledKernel, min_time: float, seed: int, threads: int | None = None) -> Speed:
    """Time a kernel, then numpy. Raises what calling the kernel raises."""
    report = kernel.bench(min_time, _REPEATS, seed, threads)
    return Speed(report, numpy_seconds(kernel.spec.logical, min_time, seed))


def numpy_seconds(logical: LogicalSpec, min_time: float, seed: int) -> float | None:
    """Return the median seconds of numpy for the meaning on f32 arrays; None if it has no arithmetic."""
    if not logical.flops:
        return None
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, logical.shape))
    inputs = [rng.random(one.shape(shape), np.float32) for one in logical.op.operands(len(shape)) if one.reads]
    timer = timeit.Timer(lambda: logical.op.meaning(shape, inputs, []))
    calls = 1
    while timer.timeit(calls) < min_time / _REPEATS:
        calls *= 2
    return statistics.median(timer.repeat(_REPEATS, calls)) / calls
