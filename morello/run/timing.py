"""Time functions by a loop in C, so that Python is not measured."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.run.arrays import ALIGNMENT, empty, pack, random_values
from morello.run.function import NativeFunction

#: Seconds of a measurement: longer than reading clocks takes, shorter than a time slice.
_LONG = 1e-3
#: The most measurements for `min_time`.
_MOST = 300
#: Bytes that are read to evict operands from caches: more than these hold.
_CACHES = 256 << 20
#: Calls of the empty function in a measurement, and its measurements.
_EMPTY, _FEW = 100_000, 5
#: Thresholds of a busy machine: share of the time without a core, load beyond this process, median above the least.
_WAITED, _LOAD, _SPREAD = 0.05, 0.7, 0.1


@attrs.frozen
class Times:
    """Seconds per call of each measurement."""

    each: tuple[float, ...]

    @property
    def best(self) -> float:
        """Return the least seconds per call."""
        return min(self.each)

    @property
    def median(self) -> float:
        """Return the median seconds per call."""
        return statistics.median(self.each)


@attrs.frozen
class BenchReport:
    """Times of the calling thread's CPU and on the wall, in measurements of `calls` calls.

    `flops` are the operations of one call, `bytes` those of the operands it reads and writes. `threads` are those
    available to parallel loops, `load` is the load average before. `call` are the seconds of an empty call, which the
    times include. `cold` is True if operands were in memory before each call, else they were in caches if they fit.
    `emulator` is the name of the emulator that ran the program: its times are no CPU's, so there are no rates.
    """

    cpu: Times
    wall: Times
    calls: int
    flops: int
    bytes: int
    threads: int = 1
    load: float = 0.0
    call: float = 0.0
    cold: bool = False
    emulator: str = ""

    @property
    def times(self) -> Times:
        """Return CPU times, which other programs do not affect, or wall times for several threads."""
        return self.cpu if self.threads == 1 else self.wall

    @property
    def median(self) -> float:
        """Return the median seconds per call, of `times`."""
        return self.times.median

    @property
    def best(self) -> float:
        """Return the least seconds per call, of `times`."""
        return self.times.best

    @property
    def gflops(self) -> float | None:
        """Return 10^9 operations per second of the best time; None without arithmetic, or if it is emulated."""
        return self.flops / self.best / 1e9 if self.flops and not self.emulator else None

    @property
    def gbytes(self) -> float | None:
        """Return 10^9 bytes of operands per second of the best time; None if it is emulated."""
        return None if self.emulator else self.bytes / self.best / 1e9

    @property
    def rate(self) -> str:
        """Return the rate of arithmetic as text, or of memory traffic without arithmetic; `emulated` if it is that."""
        if self.emulator:
            return f"emulated by {self.emulator}"
        return f"{self.gbytes:.3g} GB/s" if self.gflops is None else f"{self.gflops:.4g} GFLOP/s"

    @property
    def busy(self) -> tuple[str, ...]:
        """Return the signs that other programs ran meanwhile, so that the times may be wrong."""
        waited = 1 - sum(self.cpu.each) / sum(self.wall.each) if self.threads == 1 else 0.0
        spread = self.median / self.best - 1
        signs = (
            (waited > _WAITED, f"another program had the core for {waited:.0%} of the time"),
            (self.load > max(1, self.threads) + _LOAD, f"its load is {self.load:.1f}"),
            (spread > _SPREAD, f"the median is {spread:.0%} above the least"),
        )
        return tuple(said for found, said in signs if found)

    def __str__(self) -> str:
        threads = f" on {self.threads} threads" if self.threads > 1 else ""
        return (
            f"{duration(self.best)} per call{threads} (median {duration(self.median)}), {self.rate}; "
            f"{len(self.wall.each)} × {self.calls} calls{' from memory' if self.cold else ''}"
        )


def duration(seconds: float) -> str:
    """Return a time as text, in s, ms, µs or ns."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def bench(
    function: NativeFunction,
    min_time: float = 0.3,
    repeats: int = 5,
    seed: int = 0,
    threads: int | None = None,
    *,
    cold: bool = False,
) -> BenchReport:
    """Time a function on random data: at least `repeats` measurements, and `min_time` seconds in all.

    With `cold`, a measurement is one call, before which all operands are evicted from caches, and `min_time` includes
    that. Raises what calls raise, and MorelloError for fewer than one measurement.
    """
    if repeats < 1 or min_time < 0:
        raise MorelloError(f"cannot time {repeats} measurements of {min_time} s in all", "repeats is at least 1")
    if cold and function.runner:
        raise MorelloError(f"calls through `{function.runner}` are not timed from memory", "leave out `cold`")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    count = function.threads(threads)
    arrays = random_operands(function, seed)
    function(arrays, count)
    timer = FunctionTimer(function, arrays, count)
    calls = 1 if cold else timer.calls(measurement_seconds(min_time, repeats))
    others = np.ones(_CACHES // 8) if cold else None
    spent = list[tuple[float, float]]()
    end = time.monotonic() + min_time
    while len(spent) < repeats or (time.monotonic() < end if cold else sum(wall for _, wall in spent) < min_time):
        if others is not None:
            others.sum()
        spent.append(timer(calls))
    cpu, wall = (Times(tuple(seconds / calls for seconds in clock)) for clock in zip(*spent, strict=True))
    traffic = sum(
        array.nbytes * (argument.reads + argument.writes)
        for argument, array in zip(function.arguments, arrays, strict=True)
    )
    call = timer.call(1 if cold else _EMPTY)
    emulator = function.runner.emulator if function.runner else ""
    return BenchReport(cpu, wall, calls, function.spec.logical.flops, traffic, count, load, call, cold, emulator)


def measurement_seconds(min_time: float, repeats: int) -> float:
    """Return the least seconds of one of `repeats` or more measurements that take `min_time` in all."""
    return min(min_time / repeats, max(_LONG, min_time / _MOST))


def random_operands(function: NativeFunction, seed: int) -> list[np.ndarray]:
    """Return new arrays with random values for all operands, in the order of a call."""
    rng = np.random.default_rng(seed)
    arrays = []
    for argument in function.arguments:
        tensor = function.spec.operands[argument.operand]
        array = empty(tensor, max(argument.alignment, ALIGNMENT))
        array[...] = pack(random_values(rng, tuple(map(int, tensor.shape)), tensor.state.dtype), tensor)
        arrays.append(array)
    return arrays


class FunctionTimer:
    """Calls a function repeatedly on the same arrays; returns CPU and wall seconds."""

    def __init__(self, function: NativeFunction, arrays: Sequence[np.ndarray], threads: int):
        self._spent = function.timed(arrays, threads)
        self._clock = 0 if threads == 1 else 1

    def calls(self, seconds: float) -> int:
        """Return the least power of two of calls that take at least `seconds`."""
        calls = 1
        while self.seconds(calls) < seconds:
            calls *= 2
        return calls

    def seconds(self, calls: int) -> float:
        """Return the CPU seconds of `calls` calls, or wall seconds with several threads."""
        return self(calls)[self._clock]

    def call(self, calls: int) -> float:
        """Return the least CPU seconds of an empty call, of `calls` in a measurement."""
        return min(self._spent(calls, True)[0] for _ in range(_FEW)) / calls

    def __call__(self, calls: int) -> tuple[float, float]:
        return self._spent(calls, False)
