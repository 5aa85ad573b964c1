"""The budget of a search, and the guard that enforces it while tables and bounds are built.

Imports nothing slow, as its users may not search at all.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import attrs

from morello.errors import MorelloError

_PAGE = os.sysconf("SC_PAGE_SIZE")
#: The default budget of searches, in expansions: about ten seconds.
DEFAULT_EXPANSIONS = 1_200_000
#: Those that all searches for the kernels of a model share by default, and the most bytes: few need half of them.
MODEL_EXPANSIONS, MODEL_MEMORY = 10 * DEFAULT_EXPANSIONS, 4 << 30
#: The most spaces, and class tuples in their bounds, of a search within a number of expansions: tables and bounds take
#: seconds, where those of a Compose of 12 operations take minutes.
MOST_SPACES, MOST_TUPLES = 100, 40_000
#: The seconds from which on a search with a time limit has tables and bounds of any size.
_LONG = 30.0
#: Seconds for which a reading of resident memory is reused: reading takes longer than most work between two checks.
_FRESH = 0.005
#: The time of the last reading, by `time.perf_counter`, and the bytes read.
_last = float("-inf"), 0
#: Threads that set up searches, and whether numpy used huge pages before.
_set_ups, _huge_pages = 0, True
_counting = threading.Lock()
#: The bytes that `release_memory` does something for.
_WORTH_RELEASING = 64 << 20


class LimitReached(MorelloError):
    """A limit ends a search where it cannot return its best program."""


class MemoryLimitReached(LimitReached):
    """The memory of a search is used up."""


class DeadlineReached(LimitReached):
    """The time of a search is up."""


class SpaceTooLarge(LimitReached):
    """Tables or bounds would take much longer than a search within a number of expansions."""


@attrs.frozen
class SearchBudget:
    """The limits at which a search ends and returns its best program, proven optimal or not.

    A search ends after `seconds`, after expanding `expansions` Specs, with a program whose cost is at most `gap` above
    the proven lower bound (0.05: 5 %), or when the process takes more than `memory` bytes. By default it ends with the
    proof. With `accepts_stored`, a program that an earlier search returned, and a database has, ends it at once.
    With `seconds`, it ends early where it could do nothing in the time left, and late for a first program.
    """

    seconds: float | None = None
    gap: float = 0.0
    expansions: int | None = None
    memory: int | None = None
    accepts_stored: bool = False

    @classmethod
    def default(cls, memory: int | None = None) -> SearchBudget:
        """Return the budget of all commands and functions without limits, by default with half of the free memory."""
        memory = available_memory() // 2 if memory is None else memory
        return cls(expansions=DEFAULT_EXPANSIONS, memory=memory, accepts_stored=True)

    @property
    def memory_reached(self) -> bool:
        """Return whether the process takes more memory than granted."""
        return self.memory is not None and _exceeds(resident_recently(), self.memory)

    @property
    def proves(self) -> bool:
        """Return whether the search ends with the proof only."""
        return self.seconds is None and not self.gap and self.expansions is None

    @property
    def counted(self) -> bool:
        """Return whether tables and bounds are limited by counts: they may take minutes, which the search has not."""
        return self.expansions is not None if self.seconds is None else self.seconds < _LONG

    def start(self) -> RunningBudget:
        """Return the budget of a search that begins now."""
        deadline = float("inf") if self.seconds is None else time.monotonic() + self.seconds
        return RunningBudget(**attrs.asdict(self), deadline=deadline)


@attrs.frozen
class RunningBudget(SearchBudget):
    """A budget with its `deadline`, in seconds of `time.monotonic`."""

    deadline: float = float("inf")

    @property
    def late(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() >= self.deadline

    def less(self, expansions: int) -> RunningBudget:
        """Return the budget left after some expansions."""
        left = None if self.expansions is None else max(0, self.expansions - expansions)
        return attrs.evolve(self, expansions=left)


_memory: ContextVar[int | None] = ContextVar("memory", default=None)
_deadline: ContextVar[float] = ContextVar("deadline", default=float("inf"))
_counted: ContextVar[bool] = ContextVar("counted", default=False)
#: The memory limits that searches of this thread have reached since `watch_memory` began.
_reached: ContextVar[list[int] | None] = ContextVar("reached", default=None)


@contextmanager
def budget_guard(memory: int | None, deadline: float = float("inf"), *, counted: bool = False) -> Generator[None]:
    """Let `check_budget` enforce a limit of memory, in bytes (None: the outer one), and a deadline in this thread.

    If `counted`, `check_size` limits tables and bounds.
    """
    memory_before = _memory.set(_memory.get() if memory is None else memory)
    deadline_before = _deadline.set(min(_deadline.get(), deadline))
    counted_before = _counted.set(counted)
    try:
        yield
    finally:
        _memory.reset(memory_before)
        _deadline.reset(deadline_before)
        _counted.reset(counted_before)


def check_budget(more: int = 0) -> None:
    """Raise MemoryLimitReached if the process takes too much memory, or would with `more` bytes; or DeadlineReached."""
    memory = _memory.get()
    if memory is not None and _exceeds(resident_recently() + more, memory):
        raise MemoryLimitReached(
            f"search takes more than {memory:,} bytes of memory", "give it more, or make the sizes smaller"
        )
    if time.monotonic() >= _deadline.get():
        raise DeadlineReached("the time for the search is up", "give it more")


def check_size(*, spaces: int = 0, tuples: int = 0) -> None:
    """Raise SpaceTooLarge if a search within a number of expansions has more spaces, or class tuples, than it may."""
    if _counted.get() and (spaces > MOST_SPACES or tuples > MOST_TUPLES):
        counts = f"{MOST_SPACES} spaces, {MOST_TUPLES:,} class tuples"
        raise SpaceTooLarge(f"a search within expansions has up to {counts}", "limit it by time in place of expansions")


@contextmanager
def watch_memory() -> Generator[list[int]]:
    """Yield a list of the memory limits that searches of this thread reach, and that may have changed their results."""
    before = _reached.set(limits := [])
    try:
        yield limits
    finally:
        _reached.reset(before)


def _exceeds(needed: int, memory: int) -> bool:
    """Return whether bytes exceed a limit of memory, and note it for `watch_memory`."""
    if needed > memory and (limits := _reached.get()) is not None:
        limits.append(memory)
    return needed > memory


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE


def resident_recently() -> int:
    """Return the resident memory of this process in bytes, as of at most a few milliseconds ago."""
    global _last
    now = time.perf_counter()
    if now - _last[0] >= _FRESH:
        _last = now, resident()
    return _last[1]


def release_memory(before: int) -> None:
    """Free what a search left, if the process takes much more memory than `before`.

    Tables refer to each other, and Python's collector counts objects, not bytes.
    """
    if resident() > before + _WORTH_RELEASING:
        gc.collect()
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)


def available_memory() -> int:
    """Return the bytes of memory available to new allocations without swapping."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    amounts = dict(line.split(":") for line in lines)
    return int(amounts["MemAvailable"].split()[0]) << 10


@contextmanager
def setting_up() -> Generator[None]:
    """Disable the cyclic garbage collector, and huge pages of numpy's arrays, while tables and bounds are built.

    The former costs 10 % and frees almost nothing; clearing huge pages for arrays that live briefly costs as much.
    """
    enabled = gc.isenabled()
    gc.disable()
    _note_set_up(1)
    try:
        yield
    finally:
        _note_set_up(-1)
        if enabled:
            gc.enable()


def _note_set_up(change: int) -> None:
    """Count the threads that set up searches; numpy uses huge pages, if it did before, when there are none."""
    global _set_ups, _huge_pages
    # The switch has no public name: without it, set-up takes longer.
    switch = getattr(sys.modules.get("numpy._core.multiarray"), "_set_madvise_hugepage", bool)
    with _counting:
        if not _set_ups:
            _huge_pages = switch(False)
        _set_ups += change
        if not _set_ups:
            switch(_huge_pages)
