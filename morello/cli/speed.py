"""Times of a kernel, and of numpy doing the same."""

from __future__ import annotations

import time
import timeit
from typing import Any

import attrs
import click
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.runtime.compiled import CompiledKernel
from morello.runtime.timing import BenchReport, Times, measurement_seconds

_REPEATS = 5


@attrs.frozen
class Speed:
    """A kernel's timing, and numpy's least seconds for the same in f32; None where numpy has nothing to compute."""

    report: BenchReport
    numpy: float | None

    @property
    def ratio(self) -> float | None:
        """Return how many times as fast as numpy it is, on the wall."""
        return self.numpy / self.report.wall.best if self.numpy else None

    @property
    def times(self) -> str:
        """Return the ratio in words; nothing where there is none."""
        ratio = self.ratio
        return "" if ratio is None else f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"

    def warn(self) -> None:
        """Tell on stderr if other programs disturbed the measurement."""
        if self.report.busy:
            click.echo(
                f"warning: the machine is busy: {'; '.join(self.report.busy)}; time again when it is idle", err=True
            )

    def as_dict(self) -> dict[str, Any]:
        report = self.report
        return {
            "cpu_seconds": _as_dict(report.cpu),
            "wall_seconds": _as_dict(report.wall),
            "calls": report.calls,
            "threads": report.threads,
            "flops": report.flops,
            "bytes": report.bytes,
            "gflops": report.gflops,
            "gbytes": report.gbytes,
            "load": report.load,
            "busy": list(report.busy),
            "numpy_seconds": self.numpy,
            "times_as_fast_as_numpy": self.ratio,
        }


def _as_dict(times: Times) -> dict[str, Any]:
    return {"best": times.best, "median": times.median, "each": list(times.each)}


def measure(kernel: CompiledKernel, min_time: float, seed: int, threads: int | None = None) -> Speed:
    """Time a kernel, then numpy. Raises what calling the kernel raises."""
    report = kernel.bench(min_time, _REPEATS, seed, threads)
    return Speed(report, numpy_seconds(kernel.spec.logical, min_time, seed))


def numpy_seconds(logical: LogicalSpec, min_time: float, seed: int) -> float | None:
    """Return the least seconds of numpy, on the wall, for the meaning on f32 arrays; None if it has no arithmetic."""
    if not logical.flops:
        return None
    rng = np.random.default_rng(seed)
    shape = tuple(map(int, logical.shape))
    inputs = [rng.random(one.shape(shape), np.float32) for one in logical.op.operands(len(shape)) if one.reads]
    timer = timeit.Timer(lambda: logical.op.meaning(shape, inputs, []))
    calls = 1
    while timer.timeit(calls) < measurement_seconds(min_time, _REPEATS):
        calls *= 2
    end, spent = time.monotonic() + min_time, []
    while len(spent) < _REPEATS or time.monotonic() < end:
        spent.append(timer.timeit(calls))
    return min(spent) / calls
