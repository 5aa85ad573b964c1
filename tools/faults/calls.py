"""Fails every call of a small piece of work, one by one, and checks that nothing is lost and no answer is wrong."""

from __future__ import annotations

import errno
import gc
import os
import re
import shutil
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from morello.db import file
from morello.errors import MorelloError
from tools.faults.forks import Ending, forked
from tools.faults.pieces import Broken
from tools.faults.shim import Fault, Fired, Shim
from tools.faults.works import Promises, Step, Work, scratch, warm

#: Libraries that may end the process if they get no memory.
_FRAGILE = ("_multiarray_umath", "_umath_linalg", "libpython", "python", "libspatialindex", "libstdc++", "ld-linux")
#: The outcome of a step if numpy gets no memory and returns without an exception.
_NUMPY = "no memory: numpy says SystemError"
#: The outcome of a step if OpenSSL gets no memory: hashlib raises ValueError.
_OPENSSL = "no memory: OpenSSL says ValueError"
#: How the C library ends a process that has no memory for the data of a thread.
_ABORT = "cannot allocate memory for thread-local data: ABORT"


@attrs.frozen
class Injection:
    """A fault: what fails, in which call, and whether all calls after it fail, too."""

    work: type[Work]
    what: Fault
    at: int
    forever: bool

    def __str__(self) -> str:
        since = "from call" if self.forever else "in call"
        return f"{self.work.__name__}: {self.what.name} {since} {self.at}"


@attrs.define
class Sweep:
    """The results of injections: how many had each outcome, and the findings, with an injection that shows each."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    findings: dict[str, list[str]] = attrs.field(factory=lambda: defaultdict(list))

    def add(self, outcome: str, finding: str = "", shown_by: str = "") -> None:
        """Count an outcome."""
        self.outcomes[outcome] += 1
        if finding:
            self.findings[finding].append(shown_by)

    def lines(self) -> Iterator[str]:
        """Yield the results as lines of text."""
        yield ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(self.outcomes.items()))
        for finding, shown_by in sorted(self.findings.items()):
            yield f"  {len(shown_by)} × {finding}\n    first: {shown_by[0]}"


class Injector:
    """Injects faults into work, each in a fresh folder and in a process of its own."""

    def __init__(self, shim: Shim):
        self._shim = shim
        self._folder = scratch() / "work"
        # SQLite cannot distinguish a lock that fails from one that another process holds.
        file.PATIENCE = 0
        warm()
        # The garbage collector would make forked processes copy memory.
        gc.freeze()

    def calls(self, work: type[Work], what: Fault) -> int:
        """Return how many calls of the work could fail. Raises Broken if it does not even work without faults."""
        promises = self._fresh(work)
        ending = forked(lambda: self._run(Injection(work, what, 0, False), promises))
        if ending.died or ending.result["broken"] or ending.result["steps"].count("right") != ending.result["length"]:
            raise Broken(f"{work.__name__} does not work without any fault: {ending}")
        return self._shim.fired().calls

    def inject(self, call: Injection) -> tuple[str, str]:
        """Return the outcome of one fault, and its finding or an empty text."""
        promises = self._fresh(call.work)
        ending = forked(lambda: self._run(call, promises))
        fired = self._shim.fired()
        outcome, finding = _judged(ending, call, fired)
        after = forked(lambda: failure_of(lambda: call.work.again(self._folder, promises.made())))
        wrong = after.died or after.result
        if wrong:
            return "broken", f"afterwards: {wrong}, after {fired.call} failed"
        return outcome, finding

    def _fresh(self, work: type[Work]) -> Promises:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o700)
        work.prepare(self._folder)
        return Promises()

    def _run(self, call: Injection, promises: Promises) -> dict[str, Any]:
        work = call.work(self._folder, promises)
        steps = work.steps()
        said = [""] * len(steps)
        self._shim.arm(self._folder, call.what, call.at, forever=call.forever)
        errors = [_tried(step) for step in steps]
        self._shim.disarm()
        for i, error in enumerate(errors):
            said[i] = _named(error)
        return {"steps": said, "length": len(steps), "broken": failure_of(work.settle)}


def _tried(step: Step) -> BaseException | None:
    """Return the exception of a step. Its text is made later, since that takes memory."""
    try:
        step()
    except BaseException as error:
        return error
    return None


def _named(error: BaseException | None) -> str:
    """Return how a step ended: `right`, `refused`, `no memory`, or what no user should see."""
    if error is None:
        return "right"
    if isinstance(error, Broken):
        return f"! {error}"
    if isinstance(error, MorelloError):
        return "refused" if error.hint else f"? a message without a hint: {error.message}"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "no memory"
    if isinstance(error, SystemError) and re.search("without (setting an )?exception", str(error)):
        return _NUMPY
    if isinstance(error, RuntimeError) and str(error) in ("can't allocate lock", "can't allocate read lock"):
        return "no memory"  # as Python says it where it makes a lock
    if isinstance(error, ValueError) and str(error).startswith("[digital envelope routines]"):
        return _OPENSSL
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/testing/" not in frame.filename]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    own = [frame for frame in frames if "/morello/" in frame.filename]
    via = f" from {Path(own[-1].filename).name}:{own[-1].lineno}" if own and own[-1] != frames[-1] else ""
    text = str(error).replace(os.environ.get("TMPDIR", "/tmp"), "")
    return f"? {type(error).__name__} at {place}{via}: {text}"


def failure_of(check: Step) -> str:
    """Return the failure of a check as text, or an empty text."""
    try:
        check()
    except MorelloError as error:
        return error.message
    except BaseException as error:
        return _named(error).removeprefix("! ")
    return ""


def _judged(ending: Ending, call: Injection, fired: Fired) -> tuple[str, str]:
    """Return the outcome of a process that a fault was injected into, and its finding or an empty text."""
    if ending.died:
        if call.what == Fault.ENOMEM and _ABORT in ending.died:
            return "no memory: the C library aborts", ""
        if call.what == Fault.ENOMEM and "hung" not in ending.died and "ended with" not in ending.died:
            if fired.place.startswith(_FRAGILE):
                return f"no memory: {fired.place.partition('.')[0]} crashes", ""
            return "died", f"{ending.died}, after {fired.call} for {fired.place} failed"
        return "died", f"{ending.died}, after {fired.call} failed"
    if ending.result["broken"]:
        return "broken", f"in the same process: {ending.result['broken']}, after {fired.call} failed"
    said = ending.result["steps"]
    if any(text.startswith("!") for text in said):
        return "broken", f"{next(text for text in said if text.startswith('!'))}, after {fired.call} failed"
    if any(text.startswith("?") for text in said):
        return "unforeseen", f"{next(text for text in said if text.startswith('?'))}, after {fired.call} failed"
    if not fired.fired:
        return "not reached", ""
    for outcome in ("refused", _NUMPY, _OPENSSL, "no memory"):
        if outcome in said:
            return outcome, ""
    return "right", ""


def injections(work: type[Work], what: Fault, calls: int, every: int = 1) -> Iterator[Injection]:
    """Yield a fault for each call, first those that happen once, then those that last."""
    for forever in (False, True):
        for at in range(1, calls + 1, every):
            yield Injection(work, what, at, forever)


def sweep(injector: Injector, work: type[Work], what: Fault, every: int = 1) -> Sweep:
    """Fail each call of some work."""
    found = Sweep()
    for one in injections(work, what, injector.calls(work, what), every):
        outcome, finding = injector.inject(one)
        found.add(outcome, finding, str(one))
    return found


def main(shim: Shim, works: list[type[Work]], faults: list[Fault], every: int = 1) -> bool:
    """Fail each call of all this work, or every nth, and print the results. Return whether there was no finding."""
    well = True
    injector = Injector(shim)
    for what in faults:
        for work in works:
            found = sweep(injector, work, what, every)
            print(f"{what.name:<7} {work.__name__:<13}", "\n".join(found.lines()), flush=True)
            well = well and not found.findings
    return well
