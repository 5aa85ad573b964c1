"""Finds the compiler whose code for a kernel runs fastest; the cache remembers which."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import attrs

from morello.atomic_write import staging_path
from morello.errors import ToolchainError
from morello.host import missing_features
from morello.plugins.profile_choice import microarchitectures
from morello.runtime.build import key_of
from morello.runtime.cache import cache_directory
from morello.runtime.kernel import Kernel
from morello.runtime.timing import KernelTimer, duration, random_operands
from morello.runtime.toolchain import AUTO, Compiler, available_compilers, find_compiler

#: Seconds of one measurement, and of all of a compiler's.
_MEASUREMENT, _TIMING = 1e-3, 0.15
#: Measurements of each compiler at least.
_ROUNDS = 5
#: Shares by which times differ by chance: within them the compiler that comes first is chosen.
_CHANCE = 0.02


@attrs.frozen
class Trial:
    """A compiler, and the least seconds that a call of its code takes; None if there is no code that runs here."""

    compiler: Compiler
    seconds: float | None

    def __str__(self) -> str:
        return f"{self.compiler}: {'not timed' if self.seconds is None else f'{duration(self.seconds)} per call'}"


@attrs.frozen
class Choice:
    """All compilers that could build a kernel, those first that are preferred."""

    trials: tuple[Trial, ...]

    @property
    def compiler(self) -> Compiler:
        """Return the compiler with the fastest code; of equals, and where none was timed, the first."""
        timed = [(one.compiler, one.seconds) for one in self.trials if one.seconds is not None]
        least = min((seconds for _, seconds in timed), default=0.0)
        good = [compiler for compiler, seconds in timed if seconds <= (1 + _CHANCE) * least]
        return good[0] if good else self.trials[0].compiler

    def __str__(self) -> str:
        return "; ".join(map(str, self.trials))


def fastest(kernel: Kernel) -> Choice:
    """Return how fast each compiler's code for a kernel is, from the cache if that was measured before.

    Code for another CPU is not timed. Raises ToolchainError without a compiler, or a cache that cannot be used.
    """
    compilers = available_compilers() or [find_compiler(AUTO)]
    if len(compilers) == 1 or missing_features((*kernel.target.info.cpu_features, *kernel.program.cpu_features)):
        return Choice(tuple(Trial(compiler, None) for compiler in compilers))
    record = cache_directory() / f"{_key(kernel, compilers)}.times"
    seconds = _recorded(record, len(compilers))
    if seconds is None:
        seconds = _timed(kernel, compilers)
        # Without a record it is measured again, which does no harm.
        with suppress(OSError), staging_path(record) as place:
            place.write_text(json.dumps(seconds))
            os.replace(place, record)
    return Choice(tuple(Trial(*pair) for pair in zip(compilers, seconds, strict=True)))


def _key(kernel: Kernel, compilers: Sequence[Compiler]) -> str:
    """Names what decides the times: the code, the CPU and the threads."""
    codes = [key_of(kernel.files, kernel.program.flags, compiler) for compiler in compilers]
    return hashlib.sha256(json.dumps([codes, microarchitectures()[0], kernel.threads()]).encode()).hexdigest()


def _recorded(record: Path, count: int) -> list[float | None] | None:
    """Return the seconds in a record; None if there is none, or one that is damaged."""
    try:
        seconds = json.loads(record.read_text())
        os.utime(record)  # the time of its last use
    except (OSError, ValueError):
        return None
    sound = isinstance(seconds, list) and len(seconds) == count
    return seconds if sound and all(one is None or (isinstance(one, float) and one > 0) for one in seconds) else None


def _timed(kernel: Kernel, compilers: Sequence[Compiler]) -> list[float | None]:
    """Return the least seconds per call with each compiler, on the same fresh operands, in turns."""
    threads, arrays = kernel.threads(), random_operands(kernel, 0)
    timers: dict[int, tuple[KernelTimer, int]] = {}
    for number, compiler in enumerate(compilers):
        rival = Kernel(kernel.impl, kernel.target, kernel.program, compiler)
        with suppress(ToolchainError):
            timer = KernelTimer(rival, arrays, threads)
            timers[number] = timer, timer.calls(_MEASUREMENT)
    seconds: list[float | None] = [None] * len(compilers)
    end, rounds = time.monotonic() + _TIMING * len(timers), 0
    while timers and (rounds < _ROUNDS or time.monotonic() < end):
        rounds += 1
        for number, (timer, calls) in timers.items():
            found, least = timer.seconds(calls) / calls, seconds[number]
            seconds[number] = found if least is None else min(least, found)
    return seconds
