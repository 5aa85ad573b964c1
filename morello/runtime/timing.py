"""Times kernels with a loop in C, so that Python is not in the measurement."""

from __future__ import annotations

import statistics
from typing import Any

import attrs
import cffi
import numpy as np

from morello.errors import MorelloError
from morello.runtime.arrays import empty, pack
from morello.runtime.build import build
from morello.runtime.datasets import random_values
from morello.runtime.kernel import Kernel

_LOOP = "double morello_time(void *kernel, int64_t calls, void *const *pointers, const ptrdiff_t *numbers)"

#: The loop is a file, and a library, of its own: the compiler cannot see into the kernel, and so can hoist nothing.
_SOURCE = """\
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "{header}"

/* Named here, where no parameter below can hide the kernel's name. */
typedef __typeof__(&{name}) morello_kernel;

/* Seconds that `calls` calls of the kernel take. */
{loop} {{
    morello_kernel function = (morello_kernel)kernel;
    struct timespec start, end;
    (void)pointers;
    (void)numbers;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int64_t call = 0; call < calls; call++) {{
        function({arguments});
    }}
    clock_gettime(CLOCK_MONOTONIC, &end);
    return (double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec);
}}
"""


@attrs.frozen
class BenchReport:
    """Seconds per call, one for each measurement of `calls` calls.

    `flops` are the operations of one call, `bytes` those of the operands it reads and writes; `threads` could be
    used by parallel loops.
    """

    seconds: tuple[float, ...]
    calls: int
    flops: int
    bytes: int
    threads: int = 1

    @property
    def median(self) -> float:
        """Return the median seconds per call."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """Least seconds per call."""
        return min(self.seconds)

    @property
    def gflops(self) -> float | None:
        """10^9 operations per second at the median; None if there is no arithmetic."""
        return self.flops / self.median / 1e9 if self.flops else None

    @property
    def gbytes(self) -> float:
        """10^9 bytes of operands per second at the median."""
        return self.bytes / self.median / 1e9

    def __str__(self) -> str:
        rate = f"{self.gbytes:.3g} GB/s" if self.gflops is None else f"{self.gflops:.4g} GFLOP/s"
        threads = f" on {self.threads} threads" if self.threads > 1 else ""
        return (
            f"{duration(self.median)} per call{threads} (best {duration(self.best)}), {rate}; "
            f"{len(self.seconds)} × {self.calls} calls"
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
    """Time `kernel` on random data: `repeats` measurements that take at least `min_time` seconds in all.

    Raises what calling the kernel raises, and MorelloError for fewer than one measurement.
    """
    if repeats < 1 or min_time < 0:
        raise MorelloError(f"cannot time {repeats} measurements of {min_time} s in all", "repeats is at least 1")
    rng = np.random.default_rng(seed)
    arrays = []
    for argument, tensor in zip(kernel.arguments, kernel.spec.operands, strict=True):
        alignment = max(argument.alignment, 64)
        array = empty(tensor, alignment)
        array[...] = pack(random_values(rng, tuple(map(int, tensor.shape)), tensor.state.dtype), tensor)
        arrays.append(array)
    count = kernel.threads(threads)
    kernel(*arrays, threads=count)
    timer = _Timer(kernel, arrays, count)
    calls = 1
    while timer(calls) < min_time / repeats:
        calls *= 2
    seconds = tuple(timer(calls) / calls for _ in range(repeats))
    traffic = sum(
        array.nbytes * (argument.reads + argument.writes)
        for argument, array in zip(kernel.arguments, arrays, strict=True)
    )
    return BenchReport(seconds, calls, kernel.spec.logical.flops, traffic, count)


class _Timer:
    """Calls a kernel on the same arrays n times; gives the seconds that took."""

    def __init__(self, kernel: Kernel, arrays: list[np.ndarray], threads: int):
        name = kernel.program.name
        header = f"{name}.h"
        source = _SOURCE.format(header=header, loop=_LOOP, name=name, arguments=_call_arguments(kernel))
        library = build({"morello_time.c": source, header: kernel.header}, kernel.program.flags, kernel.compiler)
        self._ffi = cffi.FFI()
        self._ffi.cdef(f"{_LOOP};")
        self._library: Any = self._ffi.dlopen(str(library))
        self._loaded = kernel.load()
        memory = [*arrays, *([kernel.workspace(threads)] if kernel.program.workspace_for(threads) else [])]
        self._memory = memory
        self._pointers = self._ffi.new("void *[]", [self._ffi.cast("void *", each.ctypes.data) for each in memory])
        strides = [
            stride
            for argument, array in zip(kernel.arguments, arrays, strict=True)
            for stride in argument.form.outer_strides(array)
        ]
        self._numbers = self._ffi.new("ptrdiff_t []", [*strides, threads])

    def __call__(self, calls: int) -> float:
        function = self._loaded.ffi.cast("uintptr_t", self._loaded.function)
        kernel = self._ffi.cast("void *", int(function))
        return self._library.morello_time(kernel, calls, self._pointers, self._numbers)


def _call_arguments(kernel: Kernel) -> str:
    """Return the call's arguments in C."""
    words: list[str] = []
    strides = 0
    for index, parameter in enumerate(kernel.program.parameters):
        words.append(f"pointers[{index}]")
        words += [f"numbers[{strides + position}]" for position in range(parameter.strides)]
        strides += parameter.strides
    if kernel.program.workspace_for(1):
        words.append(f"pointers[{len(kernel.program.parameters)}]")
    if kernel.program.parallel:
        words.append(f"(int)numbers[{strides}]")
    return ", ".join(words)
