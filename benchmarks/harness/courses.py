"""Bounds of searches over time, each search measured in its own process."""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from harness.specs import SPECS, Searched
from morello.errors import MorelloError, NoImplementation, Undecided
from morello.search.budget import SearchBudget
from morello.search.progress import Phase, Progress
from morello.search.session import SearchSession

#: CPU seconds by which a search should have a program, and its largest gap then.
SOON, CLOSE = 10.0, 0.05
#: Wall-clock seconds of one of CPU, at most.
_BUSY = 10


@attrs.frozen
class Moment:
    """Bounds on the optimum after `seconds`; `high` is infinite without a program."""

    seconds: float
    low: float
    high: float

    @property
    def gap(self) -> float:
        """Return the largest relative excess of the program over the optimum. A lower bound of 1 does not count."""
        if self.high <= self.low:
            return 0.0
        return self.high / self.low - 1 if self.low > 1 else math.inf


@attrs.frozen
class Course:
    """A search for a Spec: the moments at which something changed, and how it ended.

    `end` is `proved`, `none` (proven infeasible), `time` or the reason why it failed. Seconds are the
    processor's, since the process began; `setup` are those until search itself began, None if it did not.
    """

    name: str
    suite: str
    target: str
    moments: tuple[Moment, ...]
    setup: float | None
    seconds: float
    end: str
    memory: int

    def after(self, seconds: float) -> Moment:
        """Return the bounds after `seconds`."""
        known = [one for one in self.moments if one.seconds <= seconds]
        return known[-1] if known else Moment(seconds, 0.0, math.inf)

    @property
    def first(self) -> float | None:
        """Return the seconds until there was a program."""
        return min((one.seconds for one in self.moments if one.high < math.inf), default=None)

    @property
    def proof(self) -> float | None:
        """Return the seconds until the proof."""
        return self.seconds if self.end in ("proved", "none") else None

    @property
    def miss(self) -> str:
        """Return what falls short of the aim: a program soon, and close to the optimum. Empty if nothing does."""
        if self.end == "none":
            return "" if self.seconds <= SOON else f"no proof of infeasibility in {SOON:g} s"
        soon = self.after(SOON)
        if soon.high == math.inf:
            last = self.end if self.end not in ("proved", "time") else ""
            return "; ".join(filter(None, (f"no program in {SOON:g} s", last)))
        return f"gap over {CLOSE:.0%}" if soon.gap > CLOSE else ""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; infinite values are None."""
        soon = self.after(SOON)
        moments = [[one.seconds, one.low, _finite(one.high)] for one in self.moments]
        summary = {"first": self.first, "proof": self.proof, "gap_soon": _finite(soon.gap), "miss": self.miss}
        return {**attrs.asdict(self), "moments": moments, **summary}


def _finite(value: float) -> float | None:
    return value if value < math.inf else None


class _Over(Exception):
    """The time is up."""


class _Teller:
    """Prints what changes, a line of JSON for each, and ends the search when the time is up."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._told: tuple[int, int | None] | None = None

    def __call__(self, progress: Progress) -> None:
        now = time.process_time()
        known = progress.phase == Phase.SEARCH or progress.high is not None
        if known and self._told != (progress.low, progress.high):
            self.write(progress.low, progress.high)
        if now > self._seconds:
            raise _Over

    def write(self, low: int, high: int | None) -> None:
        """Print between which costs the optimum must be."""
        self._told = low, high
        print(json.dumps([time.process_time(), low, high]), flush=True)


def search(name: str, target: str, seconds: float) -> None:
    """Search for a Spec and print its bounds over time. The process ends when the time is up."""
    # Set-up may be silent for long.
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds) + 1, math.ceil(seconds) + 5))
    spec, made = SPECS[name].for_target(target)
    teller = _Teller(seconds)
    try:
        # A program first, then better ones, until the proof.
        # The teller ends it, by CPU time: a budget is of wall-clock time, which passes faster on a busy machine.
        found = SearchSession(made, progress=teller).search_within(spec, SearchBudget(seconds=_BUSY * seconds))
        teller.write(found.low, found.cost)
        end = "proved" if found.low >= found.cost else "time"
    except (_Over, Undecided):
        end = "time"
    except NoImplementation:
        end = "none"
    except MemoryError:
        end = "out of memory"
    except MorelloError as error:
        end = error.message
    print(json.dumps({"end": end, "seconds": time.process_time()}), flush=True)


def measure(spec: Searched, target: str, seconds: float) -> Course:
    """Return the bounds over time of a search with a limit of CPU seconds."""
    script = Path(__file__).parents[1] / "anytime.py"
    command = [sys.executable, str(script), "--search", spec.name, target, str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            lines = [*process.stdout]
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = code = os.waitstatus_to_exitcode(status)
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    last: dict[str, Any] = records.pop() if records and isinstance(records[-1], dict) else {}
    end = last.get("end") or ("time" if code == -signal.SIGXCPU else f"ended with {code}")
    took = last.get("seconds", usage.ru_utime + usage.ru_stime)
    return Course(
        spec.name,
        spec.suite,
        target,
        _moments(records),
        records[0][0] if records else None,
        took,
        end,
        usage.ru_maxrss * 1024,
    )


def _moments(records: Sequence[Any]) -> tuple[Moment, ...]:
    """Return moments whose bounds only tighten, although a search may restart."""
    low, high, found = 0.0, math.inf, list[Moment]()
    for seconds, least, most in records:
        low, high = max(low, least), min(high, math.inf if most is None else most)
        found.append(Moment(seconds, low, high))
    return tuple(found)


def summary(courses: Sequence[Course]) -> list[str]:
    """Return in words, target by target, how many searches had a program soon, and how close it was."""
    lines: list[str] = []
    for target in dict.fromkeys(one.target for one in courses):
        own = [one for one in courses if one.target == target and one.end != "none"]
        if not own:
            continue
        gaps = [one.after(SOON).gap for one in own]
        found, close = (sum(gap <= limit for gap in gaps) for limit in (sys.float_info.max, CLOSE))
        median = statistics.median(gaps)
        middle = f"{median:.1%}" if median < math.inf else "none"
        proved = sum(one.proof is not None and one.proof <= SOON for one in own)
        lines.append(
            f"{target}: of {len(own)} Specs {found} had a program in {SOON:g} s, {close} one within {CLOSE:.0%}, "
            f"{proved} were proved; median gap {middle}"
        )
    return lines
