"""Time small C functions on a shared machine: the minimum CPU time of the thread over many rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.plugins.measure import Clock

_DECLARED = "void morello_measure(int which, int64_t calls, void *memory, double *seconds);"
_SOURCE = """\
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

{source}

typedef void morello_probe(void *memory);
static morello_probe *const probes[] = {{{names}}};

static double morello_now(clockid_t clock) {{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}}

/* Store the seconds of `calls` calls of a function: CPU time of the thread, wall time. */
void morello_measure(int which, int64_t calls, void *memory, double *seconds) {{
    /* Volatile: the compiler must not inline the function. */
    morello_probe *volatile const chosen = probes[which];
    morello_probe *const probe = chosen;
    /* Reading the CPU time takes as long as some calls, so the wall time excludes it. */
    const double start = morello_now(CLOCK_THREAD_CPUTIME_ID);
    const double wall = morello_now(CLOCK_MONOTONIC);
    for (int64_t call = 0; call < calls; ++call) {{
        probe(memory);
    }}
    seconds[1] = morello_now(CLOCK_MONOTONIC) - wall;
    seconds[0] = morello_now(CLOCK_THREAD_CPUTIME_ID) - start;
}}
"""
#: Seconds of one timing: much longer than reading the clocks, much shorter than a time slice.
_LONG = 1e-4
#: The fewest rounds, and the most as a multiple of them.
_ROUNDS, _QUICK_ROUNDS, _MOST = 60, 20, 5
#: For functions that start threads: the factor of rounds of single calls, and the most seconds.
_MORE, _THREADS_SECONDS = 50, 6.0
#: A time below this fraction of the minimum counts as an improvement.
_BETTER = 0.995
#: The machine counts as busy if other programs had the core for this share of the time.
BUSY = 0.05


class Timer:
    """Times C functions, and the waits for a core. `deadline` is the monotonic time when it has to end."""

    def __init__(self, compiler: Compiler, flags: Sequence[str], memory: int, quick: bool, deadline: float):
        self.compiler = compiler
        self.quick = quick
        self.deadline = deadline
        self.flags = tuple(flags)
        # Written to, so that all pages exist.
        self._memory = np.ones(memory + 4096, np.uint8)
        self._address = self._memory.ctypes.data + -self._memory.ctypes.data % 4096
        self._spent = [0.0, 0.0]

    @property
    def waited(self) -> float:
        """Return the share of the time in which another program had the core."""
        cpu, wall = self._spent
        return max(0.0, 1 - cpu / wall) if wall else 0.0

    def seconds(
        self, source: str, names: Sequence[str], flags: Sequence[str] = (), *, wall: bool = False
    ) -> list[float]:
        """Return the minimum seconds of a call of each function: CPU time, or `wall` time if it starts threads.

        Functions take turns, and rounds continue until the last third of them brings no improvement. With threads,
        rounds are more and of single calls, and end after seconds: while another program has one of the cores, all
        threads wait. Raises ToolchainError for C that cannot be built.
        """
        text = _SOURCE.format(source=source, names=", ".join(names))
        probes = _Probes(build({"probes.c": text}, (*self.flags, *flags), self.compiler), self._address)
        calls = [1 if wall else self._calls(probes, which) for which in range(len(names))]
        least = [float("inf")] * len(names)
        rounds = (_QUICK_ROUNDS if self.quick else _ROUNDS) * (_MORE if wall else 1)
        deadline = min(self.deadline, time.monotonic() + _THREADS_SECONDS) if wall else self.deadline
        better = count = 0
        while count < rounds or (count - better < rounds // 3 and count < _MOST * rounds):
            if count and time.monotonic() > deadline:
                break
            count += 1
            for which, number in enumerate(calls):
                spent = probes(which, number)
                if not wall:
                    self._spent = [total + one for total, one in zip(self._spent, spent, strict=True)]
                found = spent[wall] / number
                if found < _BETTER * least[which]:
                    better = count
                least[which] = min(found, least[which])
        return least

    def _calls(self, probes: _Probes, which: int) -> int:
        """Return the number of calls that take long enough to be timed."""
        calls = 1
        while min(probes(which, calls)[1] for _ in range(2)) < _LONG:
            calls *= 2
        return calls


class _Probes:
    """Functions of a library, by number."""

    def __init__(self, library: object, memory: int):
        self._ffi = cffi.FFI()
        self._ffi.cdef(_DECLARED)
        self._library: Any = self._ffi.dlopen(str(library))
        self._memory = self._ffi.cast("void *", memory)
        self._seconds: Any = self._ffi.new("double[2]")

    def __call__(self, which: int, calls: int) -> tuple[float, float]:
        """Return the CPU and wall seconds of calls of a function."""
        self._library.morello_measure(which, calls, self._memory, self._seconds)
        return self._seconds[0], self._seconds[1]


class UnitMeter:
    """Times C in units of a target's costs. The clock is measured each time, because the frequency changes."""

    def __init__(self, timer: Timer, clock: Clock):
        self.timer = timer
        self.clock = clock
        self.compiler = timer.compiler
        self.quick = timer.quick

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        """Return the path of a shared object built from C. Raises ToolchainError."""
        return build({"measured.c": source}, flags, self.compiler)

    def megahertz(self, units_per_cycle: int) -> int:
        """Return the frequency of the core."""
        (seconds,) = self.timer.seconds(self.clock.source, ["morello_clock"])
        return round(self.clock.units / units_per_cycle / seconds / 1e6)

    def units(self, source: str, names: Sequence[str], flags: Sequence[str] = (), *, wall: bool = False) -> list[float]:
        """Return the minimum cost of a call of each function, in units."""
        together = f"{self.clock.source}\n{source}"
        clock, *found = self.timer.seconds(together, ["morello_clock", *names], flags, wall=wall)
        return [one / clock * self.clock.units for one in found]
