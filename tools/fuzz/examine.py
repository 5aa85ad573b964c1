"""Examine random Specs: search must return a correct optimal program, or report infeasibility."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

import attrs

from morello import api, crash
from morello.api.pipeline import kernel_of
from morello.api.sizes import SizedGoal
from morello.errors import MorelloError, NoImplementation, VerificationError
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import Impl, Node, cost_and_peak, walk
from morello.ir.ops.constants import Constants
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import Registry
from morello.run.runner import missing_here
from morello.search.budget import SearchBudget
from morello.search.library import library
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook
from morello.testing.trials import Trials
from tools.fuzz.isolated import outcomes
from tools.fuzz.specs import drawn_sizes, drawn_spec

_T = TypeVar("_T")

#: Ends of a Spec.
VERIFIED, NOT_RUN, NO_PROGRAM, OUT_OF_TIME, FAILED = "verified", "not run", "no program", "out of time", "failed"
#: Results of brute force.
EQUAL, TOO_LONG = "equal", "too long"
#: Warnings are errors; optimising takes longer than running.
FLAGS = ("-O0", "-Wall", "-Wextra", "-Werror")
#: Kinds of faults, by a pattern of their messages.
_FAULTS = {
    r" crashes: ": "program crashes",
    r" does not end": "program does not end",
    r"failed with exit code|was stopped after": "C does not compile",
    r"overwritten": "program writes elsewhere",
    r"threads give other values": "threads disagree",
    r"expected .* got ": "wrong result",
}


class OutOfTime(BaseException):
    """The time for one Spec is up; no `except Exception` catches it."""


@attrs.frozen
class Outcome:
    """The outcome of one Spec: its end, the result of brute force, and for a failure its kind and description."""

    number: int
    target: str
    end: str
    brute: str | None = None
    kind: str = ""
    story: str = ""


@attrs.frozen
class Examiner:
    """Examines the Specs of one seed on one target; `seconds` and `patience` limit search and brute force.

    Specs are of the operation `op`, None for any.
    """

    registry: Registry
    target: Target
    seed: int
    seconds: float
    patience: float
    op: str | None = None

    def examine(self, numbers: Sequence[int], begin: Callable[[int | None], None]) -> Iterator[Outcome]:
        """Examine Specs by number; call `begin` with each number first, and with None before programs are built."""
        library()  # an import that a timeout interrupts would stay broken
        programs: dict[int, tuple[Node, str | None]] = {}
        sized: dict[int, tuple[SizedGoal, str | None]] = {}
        for number in numbers:
            begin(number)
            found = self._examine(number)
            if isinstance(found, Outcome):
                yield found
            elif isinstance(found[0], SizedGoal):
                sized[number] = found[0], found[1]
            else:
                programs[number] = found[0], found[1]
        begin(None)
        trials = Trials([packed(impl) for impl, _ in programs.values()], self.target, flags=FLAGS, seed=self.seed)
        yield from self._verified(trials, {number: brute for number, (_, brute) in programs.items()})
        trials = SizedTrials([goal for goal, _ in sized.values()], self.target, self.seed)
        yield from self._verified(trials, {number: brute for number, (_, brute) in sized.items()})

    def _examine(self, number: int) -> Outcome | tuple[Node | SizedGoal, str | None]:
        """Return the outcome of a Spec, or its program to run and the result of brute force."""
        text = f"Spec {number} of seed {self.seed}, which could not be drawn"
        try:
            spec = drawn_spec(self.target, self.seed, number, op=self.op)
            sizes = drawn_sizes(self.seed, number, spec)
            text = show_file(SpecFile(self.target, (Declaration("failing", spec, sizes=sizes),)))
            return self._answered(number, spec, text)
        except OutOfTime:
            return Outcome(number, self.target.name, OUT_OF_TIME)
        except Exception as error:
            bundle = crash.save(error, spec=text, target=self.target.name, seed=str(self.seed), number=str(number))
            said = f"{type(error).__name__}: {error}\n  the report is in {bundle or 'no file'}"
            return self._failure(number, crash.kind(error), f"{said}\n\n{text}")

    def _answered(self, number: int, spec: Spec, text: str) -> Outcome | tuple[Node | SizedGoal, str | None]:
        (goal,) = api.parse(text, registry=self.registry).values()
        if goal.spec != spec:
            return self._failure(number, "text means another Spec", text)
        if isinstance(goal, SizedGoal):
            return self._answered_sizes(number, goal, text)
        impl: Impl | None = None
        with contextlib.suppress(NoImplementation):
            impl = within(self.seconds, lambda: SearchSession(self.target).synthesize(spec))
        brute, fault = self._against_brute_force(spec, impl)
        if fault:
            return self._failure(number, "brute force disagrees", f"{fault}\n\n{text}")
        if not isinstance(impl, Node):
            return Outcome(number, self.target.name, NO_PROGRAM, brute)
        program = self.target.emitter.emit(impl, self.target, "failing")
        if missing_here(self.target.info, program.cpu_features):
            return Outcome(number, self.target.name, NOT_RUN, brute)
        return impl, brute

    def _answered_sizes(self, number: int, goal: SizedGoal, text: str) -> Outcome | tuple[SizedGoal, str | None]:
        """Return the outcome of a Spec with sizes known at run time, or its programs; brute force solves each part."""
        try:
            done = within(self.seconds, partial(goal.synthesize, db=False, progress=False, budget=SearchBudget()))
        except NoImplementation:
            return Outcome(number, self.target.name, NO_PROGRAM)
        assert isinstance(done, SizedGoal)
        assert done.plan
        brute = EQUAL
        for impl in done.plan.parts.programs.values():
            found, fault = self._against_brute_force(impl.spec, impl)
            if fault:
                return self._failure(number, "brute force disagrees", f"{impl.spec}: {fault}\n\n{text}")
            brute = found if brute == EQUAL else brute
        if missing_here(self.target.info, done.program.cpu_features):
            return Outcome(number, self.target.name, NOT_RUN, brute)
        return done, brute

    def _against_brute_force(self, spec: Spec, impl: Impl | None) -> tuple[str, str | None]:
        """Solve by brute force; return the result, and the difference between the answers if any."""
        try:
            found = within(self.patience, lambda: Textbook(self.target).solve(spec))
        except OutOfTime:
            return TOO_LONG, None
        best = found and found.impl
        got, expected = (cost_and_peak(one) if one else "no program" for one in (impl, best))
        if got != expected:
            return "", f"search says {got}, brute force {expected}"
        return EQUAL, None if impl == best else "both find the same cost, and another program"

    def _verified(self, trials: Trials, brute: dict[int, str | None]) -> Iterator[Outcome]:
        """Yield the outcomes of programs, with the results of brute force by number."""
        for number, fault in zip(brute, outcomes(trials) if brute else (), strict=True):
            if fault is None:
                yield Outcome(number, self.target.name, VERIFIED, brute[number])
            else:
                yield self._failure(number, fault_kind(fault), fault)

    def _failure(self, number: int, kind: str, story: str) -> Outcome:
        return Outcome(number, self.target.name, FAILED, None, kind, story)


class SizedTrials(Trials):
    """Programs for sizes known at run time, each verified in several sizes, and built in the process that runs it."""

    def __init__(self, goals: Sequence[SizedGoal], target: Target, seed: int):
        super().__init__([goal.impl for goal in goals if isinstance(goal.impl, Node)], target, seed=seed)
        self._goals = goals

    def build(self) -> None:
        """Build nothing yet."""

    def check(self, index: int) -> None:
        """Verify program number `index`. Raises VerificationError with its Spec."""
        goal = self._goals[index]
        try:
            kernel_of(goal).check(self._seed)
        except MorelloError as error:
            text = show_file(SpecFile(goal.target, (goal.declaration,)))
            raise VerificationError(f"{error.message}\n\n{text}", error.hint) from error


def packed(impl: Impl) -> Node:
    """Return the part of a program that a call runs, whose constant operands are packed."""
    return next(one for one in walk(impl) if isinstance(one, Node) and not isinstance(one.spec.op, Constants))


def fault_kind(fault: str) -> str:
    """Return the kind of a program's fault."""
    head = fault.split("\n\n")[0]
    return next((kind for sign, kind in _FAULTS.items() if re.search(sign, head)), VerificationError.__name__)


def within(seconds: float, work: Callable[[], _T]) -> _T:
    """Return the result of `work`, in the main thread. Raises OutOfTime after `seconds` of CPU."""

    def ring(*_: object) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGPROF, ring)
    try:
        # Repeated, since an exception raised within a destructor is lost.
        signal.setitimer(signal.ITIMER_PROF, seconds, 0.1)
        return work()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
