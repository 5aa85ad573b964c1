"""Choose the compiler whose code for a function is fastest; the cache stores the times."""

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
from morello.build.cache import cache_directory
from morello.build.library import cache_key
from morello.build.toolchain import AUTO, Compiler, available_compilers, find_compiler
from morello.errors import ToolchainError
from morello.host import missing_features
from morello.plugins.profile_choice import microarchitectures
from morello.run.function import NativeFunction
from morello.run.timing import FunctionTimer, duration, random_operands

#: Seconds of one measurement, and of all measurements of a compiler.
_MEASUREMENT, _TIMING = 1e-3, 0.15
#: The least measurements of each compiler.
_ROUNDS = 5
#: Relative differences of times that are noise: the first compiler within it is chosen.
_CHANCE = 0.02


@attrs.frozen
class CompilerTime:
    """A compiler and the least seconds of a call of its code; None if it was not timed."""

    compiler: Compiler
    seconds: float | None

    def __str__(self) -> str:
        return f"{self.compiler}: {'not timed' if self.seconds is None else f'{duration(self.seconds)} per call'}"


@attrs.frozen
class CompilerChoice:
    """The compilers that can build a function, preferred ones first."""

    times: tuple[CompilerTime, ...]

    @property
    def compiler(self) -> Compiler:
        """Return the compiler with the fastest code, the first of equal ones or if none was timed."""
        timed = [(one.compiler, one.seconds) for one in self.times if one.seconds is not None]
        least = min((seconds for _, seconds in timed), default=0.0)
        good = [compiler for compiler, seconds in timed if seconds <= (1 + _CHANCE) * least]
        return good[0] if good else self.times[0].compiler

    def __str__(self) -> str:
        return "; ".join(map(str, self.times))


def choose_compiler(function: NativeFunction) -> CompilerChoice:
    """Return the time of each compiler's code for a function, from the cache if it was measured before.

    Code for another CPU is not timed. Raises ToolchainError without a compiler, or if the cache cannot be used.
    """
    compilers = available_compilers() or [find_compiler(AUTO)]
    if len(compilers) == 1 or missing_features((*function.target.info.cpu_features, *function.program.cpu_features)):
        return CompilerChoice(tuple(CompilerTime(compiler, None) for compiler in compilers))
    record = cache_directory() / f"{_key(function, compilers)}.times"
    seconds = _recorded(record, len(compilers))
    if seconds is None:
        seconds = _timed(function, compilers)
        with suppress(OSError), staging_path(record) as place:
            place.write_text(json.dumps(seconds))
            os.replace(place, record)
    return CompilerChoice(tuple(CompilerTime(*pair) for pair in zip(compilers, seconds, strict=True)))


def _key(function: NativeFunction, compilers: Sequence[Compiler]) -> str:
    """Return a hash of the code, the CPU and the threads."""
    codes = [cache_key(function.files, function.program.flags, compiler) for compiler in compilers]
    return hashlib.sha256(json.dumps([codes, microarchitectures()[0], function.threads()]).encode()).hexdigest()


def _recorded(record: Path, count: int) -> list[float | None] | None:
    """Return the seconds in a record, None if it is missing or damaged."""
    try:
        seconds = json.loads(record.read_text())
        os.utime(record)  # the time of last use
    except (OSError, ValueError):
        return None
    sound = isinstance(seconds, list) and len(seconds) == count
    return seconds if sound and all(one is None or (isinstance(one, float) and one > 0) for one in seconds) else None


def _timed(function: NativeFunction, compilers: Sequence[Compiler]) -> list[float | None]:
    """Return the least seconds per call of each compiler's code, measured in turns on the same operands."""
    threads, arrays = function.threads(), random_operands(function, 0)
    timers: dict[int, tuple[FunctionTimer, int]] = {}
    for number, compiler in enumerate(compilers):
        rival = NativeFunction(function.impl, function.target, function.program, compiler)
        with suppress(ToolchainError):
            timer = FunctionTimer(rival, arrays, threads)
            timers[number] = timer, timer.calls(_MEASUREMENT)
    seconds: list[float | None] = [None] * len(compilers)
    end, rounds = time.monotonic() + _TIMING * len(timers), 0
    while timers and (rounds < _ROUNDS or time.monotonic() < end):
        rounds += 1
        for number, (timer, calls) in timers.items():
            found, least = timer.seconds(calls) / calls, seconds[number]
            seconds[number] = found if least is None else min(least, found)
    return seconds
