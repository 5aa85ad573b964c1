"""Times of a kernel, and of a library that computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import click

from morello.runtime.compiled import CompiledKernel
from morello.runtime.peers import LIBRARIES, NotOffered, PeerReport, compare, require
from morello.runtime.timing import BenchReport, Times, duration

_REPEATS = 5
#: How many times as long as a call of nothing a call takes at least, for its time to tell of what it computes.
_TELLING = 2
#: The choice to compare with nothing.
NONE = "none"


def _required(_ctx: click.Context, _param: click.Parameter, library: str) -> str:
    if library != NONE:
        require(library)
    return library


against_option = click.option(
    "--against",
    type=click.Choice([*LIBRARIES, NONE]),
    default="numpy",
    callback=_required,
    help="The library to compare with: numpy (with scipy where that is installed), torch (with oneDNN on or off, "
    "whichever is faster), or onednn, as torch has it.  [default: numpy]",
)


@attrs.frozen
class Speed:
    """A kernel's timing, and a library's for the same; `why` says why there is none."""

    report: BenchReport
    peer: PeerReport | None
    why: str = ""

    @property
    def ratio(self) -> float | None:
        """Return how many times as fast as the library it is at best, without what calls take; None if they hide it."""
        return self._ratio(lambda times: times.best)

    @property
    def median_ratio(self) -> float | None:
        """Return the same of medians."""
        return self._ratio(lambda times: times.median)

    def _ratio(self, of: Callable[[Times], float]) -> float | None:
        if self.peer is None or self.unclear:
            return None
        return (of(self.peer.times) - self.peer.call) / (of(self.report.times) - self.report.call)

    @property
    def unclear(self) -> str:
        """Return whose time is mostly the call's, so that it tells nothing of what is computed; nothing if neither."""
        if self.peer is not None and self.peer.times.best < _TELLING * self.peer.call:
            return self.peer.name
        return "the program" if self.report.best < _TELLING * self.report.call else ""

    @property
    def verdict(self) -> str:
        """Return in words how it compares."""
        if self.peer is None:
            return f"not compared: {self.why}" if self.why else ""
        took = f"{self.peer.name} takes {duration(self.peer.times.best)} (median {duration(self.peer.times.median)})"
        if self.ratio is None or self.median_ratio is None:
            call = self.peer.call if self.unclear == self.peer.name else self.report.call
            return f"{took}; not compared: most of what {self.unclear} takes is the call, {duration(call)}"
        return f"{took}: {times(self.ratio)} its speed ({times(self.median_ratio)} by medians)"

    def warn(self) -> None:
        """Tell on stderr if other programs disturbed the measurement."""
        if self.report.busy:
            click.echo(
                f"warning: the machine is busy: {'; '.join(self.report.busy)}; time again when it is idle", err=True
            )

    def as_dict(self) -> dict[str, Any]:
        report, peer = self.report, self.peer
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
            "busy": list(report.busy),
            "against": peer
            and {
                "library": peer.library,
                "version": peer.version,
                "note": peer.note,
                "threads": peer.threads,
                "cpu_seconds": _as_dict(peer.cpu),
                "wall_seconds": _as_dict(peer.wall),
                "call_seconds": peer.call,
            },
            "not_compared": self.why or (f"most of what {self.unclear} takes is the call" if self.unclear else None),
            "times_as_fast": self.ratio,
            "times_as_fast_by_medians": self.median_ratio,
        }


def times(ratio: float | None) -> str:
    """Return a ratio in words; a dash where there is none."""
    return "–" if ratio is None else f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.3g}×"


def _as_dict(times: Times) -> dict[str, Any]:
    return {"best": times.best, "median": times.median, "each": list(times.each)}


def measure(kernel: CompiledKernel, library: str, min_time: float, seed: int, threads: int | None = None) -> Speed:
    """Time a kernel, then a library on as many threads.

    Raises what calling the kernel raises, and MorelloError for a library that fails.
    """
    report = kernel.bench(min_time, _REPEATS, seed, threads)
    if library == NONE:
        return Speed(report, None)
    try:
        return Speed(report, compare(kernel.spec.logical, library, report.threads, min_time, _REPEATS, seed))
    except NotOffered as error:
        return Speed(report, None, f"{library} has {error}")
