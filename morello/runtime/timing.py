"""Times kernels with a loop in C, so that Python is not in the measurement."""

from __future__ import annotations

import os
import re
import statistics
from collections.abc import Sequence
from typing import Any

import attrs
import cffi
import numpy as np

from morello.errors import MorelloError
from morello.runtime.arrays import ALIGNMENT, empty, pack
from morello.runtime.build import build
from morello.runtime.datasets import random_values
from morello.runtime.kernel import Kernel
from morello.runtime.quick import call_words

_LOOP = (
    "void morello_time(void *kernel, int64_t calls, void *const *pointers, const ptrdiff_t *numbers, double *seconds)"
)

#: The loop is a file, and a library, of its own: the compiler cannot see into the kernel, and so can hoist nothing.
_SOURCE = """\
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "{header}"

/* Named here, where no parameter below can hide the kernel's name. */
typedef __typeof__(&{name}) morello_kernel;

/* Takes what the kernel takes, and does nothing; the compiler must not see that. */
static {nothing} {{}}
static volatile morello_kernel morello_empty = morello_nothing;

static double morello_now(clockid_t clock) {{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}}

/* Seconds that `calls` calls of the kernel, or without one of nothing, take: of this thread's CPU, and on the wall. */
{loop} {{
    morello_kernel function = kernel ? (morello_kernel)kernel : morello_empty;
    (void)pointers;
    (void)numbers;
    const double wall = morello_now(CLOCK_MONOTONIC), start = morello_now(CLOCK_THREAD_CPUTIME_ID);
    for (int64_t call = 0; call < calls; call++) {{
        function({arguments});
    }}
    seconds[0] = morello_now(CLOCK_THREAD_CPUTIME_ID) - start;
    seconds[1] = morello_now(CLOCK_MONOTONIC) - wall;
}}
"""


#: Seconds of a measurement: long against reading clocks, short against the time until another program gets the core.
_LONG = 1e-3
#: How many measurements there are, where `min_time` would give more.
_MOST = 300
#: Calls of nothing in a measurement, and measurements of them.
_EMPTY, _FEW = 100_000, 5
#: Share of the time without a core, load besides this process, and median above the least, from which on a machine is
#: busy.
_WAITED, _LOAD, _SPREAD = 0.05, 0.7, 0.1


@attrs.frozen
class Times:
    """Seconds per call, one for each measurement."""

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

    `flops` are the operations of one call, `bytes` those of the operands it reads and writes; `threads` could be
    used by parallel loops. `load` is the machine's load average before. `call` are the seconds of a call that does
    nothing, which are part of the times.
    """

    cpu: Times
    wall: Times
    calls: int
    flops: int
    bytes: int
    threads: int = 1
    load: float = 0.0
    call: float = 0.0

    @property
    def times(self) -> Times:
        """Return the times to go by: of the CPU, which others do not lengthen; on the wall if there are threads."""
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
        """10^9 operations per second at best; None if there is no arithmetic."""
        return self.flops / self.best / 1e9 if self.flops else None

    @property
    def gbytes(self) -> float:
        """10^9 bytes of operands per second at best."""
        return self.bytes / self.best / 1e9

    @property
    def rate(self) -> str:
        """Return arithmetic in words, or memory traffic where there is none."""
        return f"{self.gbytes:.3g} GB/s" if self.gflops is None else f"{self.gflops:.4g} GFLOP/s"

    @property
    def busy(self) -> tuple[str, ...]:
        """Return why the times are not to be trusted: signs that other programs ran meanwhile."""
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
            f"{len(self.wall.each)} × {self.calls} calls"
        )


def duration(seconds: float) -> str:
    """Seconds in the unit that suits them."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


def bench(
    kernel: Kernel, min_time: float = 0.3, repeats: int = 5, seed: int = 0, threads: int | None = None
) -> BenchReport:
    """Time `kernel` on random data: at least `repeats` measurements, which take at least `min_time` seconds in all.

    Raises what calling the kernel raises, and MorelloError for fewer than one measurement.
    """
    if repeats < 1 or min_time < 0:
        raise MorelloError(f"cannot time {repeats} measurements of {min_time} s in all", "repeats is at least 1")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    count = kernel.threads(threads)
    arrays = random_operands(kernel, seed)
    kernel(*arrays, threads=count)
    timer = KernelTimer(kernel, arrays, count)
    calls = timer.calls(measurement_seconds(min_time, repeats))
    spent = list[tuple[float, float]]()
    while len(spent) < repeats or sum(wall for _, wall in spent) < min_time:
        spent.append(timer(calls))
    cpu, wall = (Times(tuple(seconds / calls for seconds in clock)) for clock in zip(*spent, strict=True))
    traffic = sum(
        array.nbytes * (argument.reads + argument.writes)
        for argument, array in zip(kernel.arguments, arrays, strict=True)
    )
    return BenchReport(cpu, wall, calls, kernel.spec.logical.flops, traffic, count, load, timer.call())


def measurement_seconds(min_time: float, repeats: int) -> float:
    """Return the seconds that a measurement takes at least, of `repeats` or more that take `min_time` in all."""
    return min(min_time / repeats, max(_LONG, min_time / _MOST))


def random_operands(kernel: Kernel, seed: int) -> list[np.ndarray]:
    """Return fresh arrays with random values for a kernel's operands, outputs among them, in the order of a call."""
    rng = np.random.default_rng(seed)
    arrays = []
    for argument in kernel.arguments:
        tensor = kernel.spec.operands[argument.operand]
        array = empty(tensor, max(argument.alignment, ALIGNMENT))
        array[...] = pack(random_values(rng, tuple(map(int, tensor.shape)), tensor.state.dtype), tensor)
        arrays.append(array)
    return arrays


class KernelTimer:
    """Calls a kernel on the same arrays so many times; returns the seconds that took, of the CPU and on the wall."""

    def __init__(self, kernel: Kernel, arrays: Sequence[np.ndarray], threads: int):
        name = kernel.program.name
        header = f"{name}.h"
        nothing = re.sub(rf"\b{re.escape(name)}\b", "morello_nothing", kernel.program.prototype, count=1)
        arguments = ", ".join(f"({kind}){word}" for kind, word in call_words(kernel.program, "pointers", "numbers"))
        source = _SOURCE.format(header=header, loop=_LOOP, name=name, arguments=arguments, nothing=nothing)
        library = build({"morello_time.c": source, header: kernel.header}, kernel.program.flags, kernel.compiler)
        self._ffi = cffi.FFI()
        self._ffi.cdef(f"{_LOOP};")
        self._library: Any = self._ffi.dlopen(str(library))
        self._loaded = kernel.load()
        # The workspace must outlive what the thread has as its own.
        self._memory = [*arrays, kernel.workspace(threads)]
        self._pointers = self._ffi.new("void *[]", [self._ffi.cast("void *", each.ctypes.data) for each in arrays])
        self._numbers = self._ffi.new("ptrdiff_t []", kernel.numbers(arrays, threads))
        self._seconds = self._ffi.new("double[2]")
        self._clock = 0 if threads == 1 else 1

    def calls(self, seconds: float) -> int:
        """Return how many calls take so many seconds: a power of two."""
        calls = 1
        while self.seconds(calls) < seconds:
            calls *= 2
        return calls

    def seconds(self, calls: int) -> float:
        """Return the seconds to go by: of the CPU, or on the wall if there are threads."""
        return self(calls)[self._clock]

    def call(self) -> float:
        """Return the least seconds of a call that does nothing."""
        return min(self._spent(self._ffi.NULL, _EMPTY)[0] for _ in range(_FEW)) / _EMPTY

    def __call__(self, calls: int) -> tuple[float, float]:
        function = self._loaded.ffi.cast("uintptr_t", self._loaded.function)
        return self._spent(self._ffi.cast("void *", int(function)), calls)

    def _spent(self, kernel: Any, calls: int) -> tuple[float, float]:
        self._library.morello_time(kernel, calls, self._pointers, self._numbers, self._seconds)
        return self._seconds[0], self._seconds[1]
