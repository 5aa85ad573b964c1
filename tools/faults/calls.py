"""Fails every call of a small piece of work, one by one, and checks that nothing is lost and no answer is wrong."""

from __future__ import annotations

import errno
import os
import re
import shutil
import traceback
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import attrs

from morello.errors import MorelloError
from tools.children import Ending, ending_of
from tools.faults.pieces import Broken
from tools.faults.shim import Fault, Fired, Shim
from tools.faults.works import Promises, Step, Work, ready, scratch

#: Libraries that may end the process if they get no memory.
_FRAGILE = ("_multiarray_umath", "_umath_linalg", "libpython", "python", "libspatialindex", "libstdc++", "ld-linux")
#: How the C library ends a process that has no memory for the data of a thread.
_ABORT = "cannot allocate memory for thread-local data: ABORT"
#: Outcomes of a step without memory, by type and text of the exception where libraries raise no MemoryError.
_MEMORY = {
    "no memory: numpy raises SystemError": (SystemError, "without (setting an )?exception"),
    "no memory: OpenSSL raises ValueError": (ValueError, r"^\[digital envelope routines\]"),
    "no memory": (RuntimeError, "^can't allocate (read )?lock$"),
}


@attrs.define
class Sweep:
    """The results of injections: how many had each outcome, and the findings, with an injection that shows each."""

    outcomes: Counter[str] = attrs.field(factory=Counter)
    findings: dict[str, list[str]] = attrs.field(factory=lambda: defaultdict(list))

    def add(self, outcome: str, finding: str, shown_by: str) -> None:
        """Count an outcome; a finding may be an empty text."""
        self.outcomes[outcome] += 1
        if finding:
            self.findings[finding].append(shown_by)

    def print(self, title: str) -> bool:
        """Print the results; return whether there was no finding."""
        print(title, ", ".join(f"{outcome} {count:,}" for outcome, count in sorted(self.outcomes.items())), flush=True)
        for finding, shown_by in sorted(self.findings.items()):
            print(f"  {len(shown_by)} × {finding}\n    first: {shown_by[0]}", flush=True)
        return not self.findings


def sweep(shim: Shim, work: type[Work], what: Fault, every: int = 1) -> Sweep:
    """Fail each call of some work, or every nth: alone, then with all that follow.

    Each fault has a fresh folder and a process of its own. Raises Broken if the work fails without any fault.
    """
    ready()
    folder, found = scratch() / "work", Sweep()

    def inject(at: int, forever: bool) -> tuple[Ending, Promises]:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        work.prepare(folder)
        promises = Promises()
        return ending_of(lambda: _steps(shim, work(folder, promises), what, at, forever)), promises

    ending, _ = inject(0, False)
    if ending.died or ending.result["broken"] or {*ending.result["steps"]} != {"right"}:
        raise Broken(f"{work.__name__} does not work without any fault: {ending}")
    calls = shim.fired().calls
    for forever in (False, True):
        for at in range(1, calls + 1, every):
            ending, promises = inject(at, forever)
            fired = shim.fired()
            outcome, finding = _judged(ending, what, fired)
            after = ending_of(lambda kept=promises: failure_of(lambda: work.again(folder, kept.made())))
            if wrong := after.died or after.result:
                outcome, finding = "broken", f"afterwards: {wrong}, after {fired.call} failed"
            found.add(outcome, finding, f"{work.__name__}: {what.name} {'from' if forever else 'in'} call {at}")
    return found


def _steps(shim: Shim, work: Work, what: Fault, at: int, forever: bool) -> dict[str, Any]:
    steps = work.steps()
    shim.arm(work.folder, what, at, forever=forever)
    # Their texts are made later, since that takes memory.
    errors = [_tried(step) for step in steps]
    shim.disarm()
    return {"steps": [_named(error) for error in errors], "broken": failure_of(work.settle)}


def _tried(step: Step) -> BaseException | None:
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
    for outcome, (kind, text) in _MEMORY.items():
        if isinstance(error, kind) and re.search(text, str(error)):
            return outcome
    frames = traceback.extract_tb(error.__traceback__)
    place = " from ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames[-2:]))
    return f"? {type(error).__name__} at {place}: {str(error).replace(os.environ.get('TMPDIR', '/tmp'), '')}"


def failure_of(check: Step) -> str:
    """Return the failure of a check as text, or an empty text."""
    error = _tried(check)
    if isinstance(error, MorelloError):
        return error.message
    return "" if error is None else _named(error).removeprefix("! ")


def _judged(ending: Ending, what: Fault, fired: Fired) -> tuple[str, str]:
    """Return the outcome of a process that a fault was injected into, and its finding or an empty text."""
    if ending.died:
        if what == Fault.ENOMEM and _ABORT in ending.died:
            return "no memory: the C library aborts", ""
        if what == Fault.ENOMEM and "killed by" in ending.died and fired.place.startswith(_FRAGILE):
            return f"no memory: {fired.place.partition('.')[0]} crashes", ""
        return "died", f"{ending.died}, after {fired.call} for {fired.place} failed"
    if broken := ending.result["broken"]:
        return "broken", f"in the same process: {broken}, after {fired.call} failed"
    said = ending.result["steps"]
    for mark, outcome in (("!", "broken"), ("?", "unforeseen")):
        for text in said:
            if text.startswith(mark):
                return outcome, f"{text}, after {fired.call} failed"
    if not fired.fired:
        return "not reached", ""
    return next((one for one in ("refused", *_MEMORY) if one in said), "right"), ""


def main(shim: Shim, works: list[type[Work]], faults: list[Fault], every: int = 1) -> bool:
    """Fail each call of all this work, or every nth, and print the results. Return whether there was no finding."""
    well = True
    for what in faults:
        for work in works:
            well = sweep(shim, work, what, every).print(f"{what.name:<7} {work.__name__}") and well
    return well
