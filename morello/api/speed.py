"""Times of a kernel, compared with those of a library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from morello.api.kernel import Kernel
from morello.errors import MorelloError
from morello.run.timing import BenchReport, Times, duration

if TYPE_CHECKING:
    from morello_baselines import BaselineReport

_REPEATS = 5
#: A ratio is meaningful only if calls take at least this multiple of an empty call.
_SIGNIFICANT = 2
#: Compare with no library.
NO_LIBRARY = "none"


def require_library(library: str) -> None:
    """Raise MorelloError if a library to compare with, other than `none`, is not installed."""
    if library != NO_LIBRARY:
        try:
            from morello_baselines import require
        except ModuleNotFoundError:
            raise MorelloError(f"cannot compare with {library}", "pip install morello-baselines") from None
        require(library)


@attrs.frozen
class Speed:
    """A kernel's timing and a library's; `why` is the reason if the library has none."""

    report: BenchReport
    baseline: BaselineReport | None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Return the speedup over the library by minimum times, without empty calls; None if those dominate."""
        return self._ratio(lambda times: times.best)

    @property
    def median_ratio(self) -> float | None:
        """Return the same by medians."""
        return self._ratio(lambda times: times.median)

    def _ratio(self, of: Callable[[Times], float]) -> float | None:
        if self.baseline is None or self.unclear:
            return None
        return (of(self.baseline.times) - self.baseline.call) / (of(self.report.times) - self.report.call)

    @property
    def unclear(self) -> str:
        """Return the name of the side whose time is mostly that of an empty call, or an empty string."""
        if self.baseline is not None and self.baseline.times.best < _SIGNIFICANT * self.baseline.call:
            return self.baseline.name
        return "the program" if self.report.best < _SIGNIFICANT * self.report.call else ""

    @property
    def verdict(self) -> str:
        """Return the comparison in words."""
        if self.baseline is None:
            return f"not compared: {self.why}" if self.why else ""
        best, median = duration(self.baseline.times.best), duration(self.baseline.times.median)
        took = f"{self.baseline.name} takes {best} (median {median})"
        if self.ratio is None or self.median_ratio is None:
            call = self.baseline.call if self.unclear == self.baseline.name else self.report.call
            return f"{took}; not compared: the call, {duration(call)}, dominates the time of {self.unclear}"
        return f"{took}: {times_text(self.ratio)} its speed ({times_text(self.median_ratio)} by medians)"

    def as_dict(self) -> dict[str, Any]:
        report, baseline = self.report, self.baseline
        return {
            "cpu_seconds": _as_dict(report.cpu),
            "wall_seconds": _as_dict(report.wall),
            "call_seconds": report.call,
            "calls": report.calls,
            "threads": report.threads,
            "flops": report.flops,
            "bytes": report.bytes,
            "gflops": report.gflops,
            "gbytes": report.gbytes,
            "load": report.load,
            "cold": report.cold,
            "emulator": report.emulator or None,
            "busy": list(report.busy),
            "against": baseline
            and {
                "library": baseline.library,
                "version": baseline.version,
                "note": baseline.note,
                "threads": baseline.threads,
                "cpu_seconds": _as_dict(baseline.cpu),
                "wall_seconds": _as_dict(baseline.wall),
                "call_seconds": baseline.call,
            },
            "not_compared": self.why or (f"the call dominates the time of {self.unclear}" if self.unclear else None),
            "times_as_fast": self.ratio,
            "times_as_fast_by_medians": self.median_ratio,
        }


def times_text(ratio: float | None) -> str:
    """Return a ratio as text, a dash for None."""
    return "–" if ratio is None else f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def _as_dict(times: Times) -> dict[str, Any]:
    return {"best": times.best, "median": times.median, "each": list(times.each)}


def measure_speed(
    kernel: Kernel,
    library: str = NO_LIBRARY,
    min_time: float = 0.3,
    seed: int = 0,
    threads: int | None = None,
    *,
    cold: bool = False,
) -> Speed:
    """Time a kernel, then a library on as many threads: numpy, torch, onednn or none.

    With `cold`, operands are in memory before each call, and no library is timed; neither is one for programs that run
    elsewhere.
    Raises what calling the kernel raises, and MorelloError for a library that fails.
    """
    report = kernel.bench(min_time, _REPEATS, seed, threads, cold=cold)
    if library == NO_LIBRARY:
        return Speed(report, None)
    if kernel.function.is_elsewhere:
        return Speed(report, None, f"{library} runs on this machine, and the program through `{kernel.runner}`")
    if cold:
        return Speed(report, None, "libraries are timed with operands in caches")
    from morello_baselines import NotOffered, compare

    try:
        return Speed(report, compare(kernel.spec.logical, library, report.threads, min_time, _REPEATS, seed))
    except NotOffered as error:
        return Speed(report, None, f"{library} has {error}")
