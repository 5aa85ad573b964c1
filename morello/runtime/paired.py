"""Times two kernels of one Spec in turns, on the same data, and tells which is faster and how sure that is."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import attrs

from morello.runtime.kernel import Kernel
from morello.runtime.timing import KernelTimer, random_operands

#: Rounds, of which each times both kernels: at first, and where it is not clear by then which is faster.
ROUNDS, MOST_ROUNDS = 15, 63
#: How likely the median of all ratios is to lie outside of the interval that is told.
_DOUBT = 0.01
#: Seconds that a measurement takes at least, beside a single call.
_LONG = 1e-3
#: After so many rounds there are no more for a kernel that takes so many times as long in each of them.
_FEW, _SLOWER = 3, 1.5


@attrs.frozen
class Paired:
    """The seconds per call of two kernels, and how many times as fast the second is as the first.

    `gain` is the median of the ratios of all rounds, which lies between `low` and `high` with 99 % confidence. `noise`
    is how far from 1, as a logarithm, this may be where both are the same, if that is known.
    """

    first: float
    second: float
    gain: float
    low: float
    high: float
    noise: float = 0.0

    @property
    def spread(self) -> float:
        """Return half of the interval that the ratio lies in, relative to it."""
        return (self.high - self.low) / (2 * self.gain)

    @property
    def farthest(self) -> float:
        """Return how far from 1 the ratio may be, as a logarithm: the farther end of the interval that it lies in."""
        return max(abs(math.log(self.low)), abs(math.log(self.high)))


@contextmanager
def pinned(threads: int = 1) -> Iterator[None]:
    """Keep this thread on one core for the time of a block, unless its work is for several threads."""
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
    first: Kernel,
    second: Kernel,
    *,
    threads: int = 1,
    seed: int = 0,
    most: int = MOST_ROUNDS,
    until: float = math.inf,
) -> Paired:
    """Time two kernels of the same Spec, one right after the other in each round, in alternating order.

    Times are those of this thread's CPU, or on the wall with several `threads`. There are at most `most` rounds, and
    few for a kernel that is slower in all of them. Raises what calling the kernels raises, and TimeoutError when it is
    not clear by the time `until`, of `time.monotonic`, which is faster.
    """
    arrays = random_operands(first, seed)
    with pinned(threads):
        for kernel in (first, second):
            # Once, for pages and caches.
            kernel(*arrays, threads=threads)
        timers = [KernelTimer(kernel, arrays, threads) for kernel in (first, second)]
        calls = [timer.calls(_LONG) for timer in timers]
        times: list[list[float]] = [[], []]
        while not _clear(times, most):
            if time.monotonic() >= until:
                raise TimeoutError("no time is left to tell which program is faster")
            for which in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                times[which].append(timers[which].seconds(calls[which]) / calls[which])
    return paired(*times)


def _clear(times: list[list[float]], most: int) -> bool:
    """Return True if further rounds would tell nothing new, or there are enough."""
    rounds = len(times[0])
    if rounds == _FEW and min(b / a for a, b in zip(*times, strict=True)) > _SLOWER:
        return True
    if rounds < min(ROUNDS, most) or rounds >= most:
        return rounds >= most
    found = paired(*times)
    return found.low > 1 or found.gain <= 1


def paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Return what the times of both kernels, round by round, come to."""
    ratios = sorted(one / other for one, other in zip(first, second, strict=True))
    outside = _outside(len(ratios))
    low, high = ratios[outside], ratios[-1 - outside]
    return Paired(statistics.median(first), statistics.median(second), statistics.median(ratios), low, high)


@cache
def _outside(count: int) -> int:
    """Return how many of the least, and of the largest, of so many values the median is beyond with little doubt.

    That holds whatever the values' distribution is: each is below the median with a chance of one half.
    """
    outside, chance = 0, 2 * 0.5**count
    while outside < (count - 1) // 2:
        chance += 2 * math.comb(count, outside + 1) * 0.5**count
        if chance > _DOUBT:
            break
        outside += 1
    return outside
