"""Compare the times of two functions of one Spec, measured in turns on the same data, with a confidence interval."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import attrs

from morello.run.function import NativeFunction
from morello.run.timing import FunctionTimer, random_operands

#: Rounds; each times both functions: the default, and the most if the result is unclear.
ROUNDS, MOST_ROUNDS = 15, 63
#: The probability that the median of ratios lies outside the reported interval.
_DOUBT = 0.01
#: The least seconds of a measurement, unless one call takes longer.
_LONG = 1e-3
#: Rounds after which a function ends that is this many times slower in each.
_FEW, _SLOWER = 3, 1.5


@attrs.frozen
class Paired:
    """The seconds per call of two functions, and the speedup of the second over the first.

    `gain` is the median speedup of all rounds, which lies between `low` and `high` with 99 % confidence. `noise` is the
    absolute logarithm of the speedup that identical functions may show, if it was measured.
    """

    first: float
    second: float
    gain: float
    low: float
    high: float
    noise: float = 0.0

    @property
    def spread(self) -> float:
        """Return half the width of the interval, relative to the gain."""
        return (self.high - self.low) / (2 * self.gain)

    @property
    def farthest(self) -> float:
        """Return the largest absolute logarithm of the interval."""
        return max(abs(math.log(self.low)), abs(math.log(self.high)))


@contextmanager
def pinned(threads: int = 1) -> Iterator[None]:
    """Pin this thread to one core in a block, unless it uses several threads."""
    if threads > 1 or not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def compare(
    first: NativeFunction,
    second: NativeFunction,
    *,
    threads: int = 1,
    seed: int = 0,
    most: int = MOST_ROUNDS,
    until: float = math.inf,
) -> Paired:
    """Time two functions of the same Spec in each round, in alternating order.

    Times are CPU times of this thread, or wall times with several `threads`. There are at most `most` rounds, and few
    if the second is slower in all. Raises what calls raise, and TimeoutError if the result is unclear at the time
    `until`, of `time.monotonic`.
    """
    arrays = random_operands(first, seed)
    with pinned(threads):
        for function in (first, second):
            function(arrays, threads)  # warms up pages and caches
        timers = [FunctionTimer(function, arrays, threads) for function in (first, second)]
        calls = [timer.calls(_LONG) for timer in timers]
        times: list[list[float]] = [[], []]
        while not _clear(times, most):
            if time.monotonic() >= until:
                raise TimeoutError("no time is left to find the faster program")
            for which in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                times[which].append(timers[which].seconds(calls[which]) / calls[which])
    return paired(*times)


def _clear(times: list[list[float]], most: int) -> bool:
    """Return whether the result is clear, or the most rounds are reached."""
    rounds = len(times[0])
    if rounds == _FEW and min(b / a for a, b in zip(*times, strict=True)) > _SLOWER:
        return True
    if rounds < min(ROUNDS, most) or rounds >= most:
        return rounds >= most
    found = paired(*times)
    return found.low > 1 or found.gain <= 1


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Return the comparison of two lists of times, one for each round."""
    ratios = sorted(one / other for one, other in zip(first, second, strict=True))
    outside = _outside(len(ratios))
    low, high = ratios[outside], ratios[-1 - outside]
    return Paired(statistics.median(first), statistics.median(second), statistics.median(ratios), low, high)


@cache
def _outside(count: int) -> int:
    """Return the rank of the confidence limits of the median of `count` values of any distribution."""
    outside, chance = 0, 2 * 0.5**count
    while outside < (count - 1) // 2:
        chance += 2 * math.comb(count, outside + 1) * 0.5**count
        if chance > _DOUBT:
            break
        outside += 1
    return outside
