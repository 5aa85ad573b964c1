"""Evaluates candidates: completes schedules, builds programs, verifies them, and times them against their parents."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import takewhile
from typing import Literal, TypeAlias

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.codegen.forms import program_key
from morello.codegen.loops import goes_on
from morello.db.searches import Searches
from morello.errors import Inapplicable, MorelloError, NoImplementation, ToolchainError, Undecided, VerificationError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Impl, Leaf, Loop, cost_and_peak
from morello.kernels.target import Metric
from morello.plugins.measure import Clock
from morello.report.balance import balance
from morello.report.tree import by_level
from morello.run.paired import Paired, compare
from morello.schedule import Position, Schedule, apply, schedule_text
from morello.search.budget import SearchBudget
from morello.verify.check import Verification
from morello_tune.edits import remove_step, sites
from morello_tune.interface import Feedback, TuningCandidate
from morello_tune.peak import PeakMeter

#: Specs that search takes apart to complete a schedule, and seconds at most, for each Spec that it leaves.
BUDGET = SearchBudget(expansions=20_000, seconds=30.0)
#: Data sets that each candidate is verified on; the best is verified on all.
_SETS = 2
#: Gains that are no gain even where no noise is measured.
_LEAST = 0.002
#: Measurements of a program against itself that noise is the median of, comparisons until there is a new one, and
#: seconds after which there are no more of them to begin with.
_SELVES, _EVERY, _LONG = 5, 5, 3.0
#: Times that a peak is timed at most, where programs seem to pass it.
_PEAKS = 5
#: The reasons why a proposal does not enter the beam, and that it does.
Verdict: TypeAlias = Literal["accepted", "slower", "noise", "duplicate", "refused", "no program", "not built", "wrong"]


@attrs.frozen
class Rejection:
    """A proposal that is not measured, and why."""

    verdict: Verdict
    reason: str


@attrs.frozen(eq=False)
class BuiltProgram:
    """A program that can be measured; `key` is a hash of its C."""

    kernel: Kernel
    key: str
    cost: int

    @property
    def impl(self) -> Impl:
        return self.kernel.impl


@attrs.frozen(eq=False)
class MeasuredProgram:
    """A program with its value, which is seconds per call unless the target has a metric, and how sure that is."""

    built: BuiltProgram
    candidate: TuningCandidate
    value: float
    spread: float
    #: How many times as fast as the start it is, by the gains on the way, and the items with theirs.
    relative: float = 1.0
    way: tuple[tuple[str, float], ...] = ()


@attrs.define
class Evaluator:
    """Turns schedules of one Spec into measured programs. Searches, builds and verified data are shared by all."""

    goal: Goal
    compiler: Compiler
    budget: SearchBudget = BUDGET
    seed: int = 0
    threads: int | None = None
    jobs: int = attrs.field(factory=lambda: os.cpu_count() or 1)
    #: What programs are judged by in place of time.
    metric: Metric | None = attrs.field(
        default=attrs.Factory(lambda self: next(iter(self.goal.target.metrics), None), takes_self=True)
    )
    clock: Clock | None = None
    #: The time, of `time.monotonic`, from which nothing is begun and searches and timing end.
    deadline: float = math.inf
    _selves: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=_SELVES), init=False)
    _comparisons: int = attrs.field(default=0, init=False)
    _searches: Searches = attrs.field(init=False)
    _completed: dict[str, Impl | MorelloError] = attrs.field(factory=dict[str, "Impl | MorelloError"], init=False)
    _verification: Verification | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._searches = Searches(self.goal.target)

    @property
    def judged_by(self) -> str:
        """Return the name of the metric that programs are judged by, nothing for time."""
        return self.metric.name if self.metric else ""

    @property
    def noise(self) -> float:
        """Return how far from 1, as a logarithm, the gain of a program over itself may be now; 0 for a metric.

        That is the median of the last few programs timed against themselves in the way that all are, of each the
        farther end of the interval that its gain lies in with 99 % confidence: one that was disturbed decides nothing.
        """
        return 0.0 if self.metric else max([_LEAST, *([statistics.median(self._selves)] if self._selves else [])])

    @property
    def late(self) -> bool:
        """Return True if nothing may begin any more."""
        return time.monotonic() >= self.deadline

    def read(self, text: str) -> Schedule:
        """Return the schedule that a text is, if it applies to the Spec. Raises MorelloError as for a Spec file."""
        schedule = parse_schedule(text, self.goal.target, "<answer>")
        apply(Position(Leaf(self.goal.spec)), schedule, self.goal.target, Leaf)
        return schedule

    def complete(self, schedule: Schedule) -> Impl:
        """Return the program that a schedule makes, with the best that search finds for what it leaves open.

        Raises Inapplicable, NoImplementation, and Undecided where that takes too much effort, or no time is left.
        """
        key = schedule_text(schedule)
        if key not in self._completed:
            try:
                self._completed[key] = self._made(schedule)
            except (Inapplicable, NoImplementation, Undecided) as error:
                self._completed[key] = error
        known = self._completed[key]
        if isinstance(known, MorelloError):
            raise known
        return known

    def cost(self, schedule: Schedule) -> int | None:
        """Return the cost of a schedule's program under the model, None without a program."""
        try:
            return int(cost_and_peak(self.complete(schedule)).cost)
        except MorelloError:
            return None

    def _made(self, schedule: Schedule) -> Impl:
        if self.late:
            raise Undecided(f"{self.goal.name}: no time is left to complete it", "give a larger budget")
        if self.budget.memory_reached:
            self._searches = Searches(self.goal.target)
        left = min(self.deadline - time.monotonic(), math.inf if self.budget.seconds is None else self.budget.seconds)
        budget = attrs.evolve(self.budget, seconds=None if left == math.inf else max(0.0, left))
        goal = Goal.of(self.goal.spec, self.goal.target, self.goal.name, self._searches, self.goal.signature)
        return goal.apply(schedule).synthesize(db=False, progress=False, budget=budget).impl

    def built(self, impl: Impl) -> BuiltProgram:
        """Return the program of an implementation, emitted; it is built when it is first needed."""
        impl = simplified(TuningCandidate(target=self.goal.target, impl=impl), self._key)
        goal = attrs.evolve(self.goal, position=Position(impl), before_search=None)
        program = goal.target.emitter.emit(impl, goal.target, goal.name, goal.signature)
        return BuiltProgram(Kernel(goal, program, self.compiler), self._key(impl), int(cost_and_peak(impl).cost))

    def _key(self, impl: Impl) -> str:
        return program_key(impl, self.goal.target)

    def prepare(self, schedules: Sequence[Schedule], known: Callable[[str], bool]) -> list[BuiltProgram | Rejection]:
        """Complete schedules, and build their programs in parallel. Those whose C is `known`, or came before, are not.

        Searches end with the effort of one each, so that what comes of them does not depend on the machine. There are
        fewer programs than schedules where no time is left for more.
        """
        found = [*self._prepared(schedules, known)]
        with ThreadPoolExecutor(self.jobs) as pool:
            made = [*pool.map(lambda one: one if isinstance(one, Rejection) else self._with_library(one), found)]
        return [one for one in takewhile(lambda one: one is not None, made) if one]

    def _prepared(
        self, schedules: Sequence[Schedule], known: Callable[[str], bool]
    ) -> Iterator[BuiltProgram | Rejection]:
        seen = set[str]()
        for schedule in schedules:
            if self.late:
                return
            try:
                built = self.built(self.complete(schedule))
            except Inapplicable as error:
                yield Rejection("refused", str(error))
            except (NoImplementation, Undecided) as error:
                yield Rejection("no program", error.message)
            else:
                again = known(built.key) or built.key in seen
                seen.add(built.key)
                yield Rejection("duplicate", "its C is that of a program before") if again else built

    def verify(self, built: BuiltProgram) -> Rejection | None:
        """Return why a program is wrong, None if it is right on a few data sets."""
        if self._verification is None:
            self._verification = Verification(built.kernel.function, self.seed, sets=_SETS)
        try:
            self._verification.check(built.kernel.function)
        except VerificationError as error:
            return Rejection("wrong", error.message)
        return None

    def start(self, impl: Impl) -> MeasuredProgram:
        """Return the program that tuning starts with, measured, and learn how far its own times differ.

        From then on the deadline is so much earlier that the best program can be confirmed: checked and timed as this.
        Raises what building, verifying or calling it raises.
        """
        built, deadline = self.built(impl), self.deadline
        _ = built.kernel.library
        self.deadline, began = math.inf, time.monotonic()
        built.kernel.check(self.seed)
        found = [] if self.metric else [self._beside_itself(built)]
        self.deadline = deadline - (time.monotonic() - began)
        if self.metric:
            return self._measured(built, self._value(built), 0.0)
        with suppress(TimeoutError):
            while len(found) < _SELVES and time.monotonic() - began < _LONG:
                found.append(self._beside_itself(built))
        same = sorted(found, key=lambda one: one.farthest)[len(found) // 2]
        return self._measured(built, same.first, same.spread)

    def measure(
        self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
    ) -> tuple[MeasuredProgram, Paired]:
        """Return a program measured against its parent, or with `known` times.

        Raises TimeoutError where no time is left for that.
        """
        found = known or self.compared(parent.built, built)
        return self._measured(built, found.second, found.spread, parent.relative * found.gain), found

    def compared(self, first: BuiltProgram, second: BuiltProgram) -> Paired:
        """Return the times of two programs, measured in turns, or what the metric says of them.

        Now and then the first is timed against itself, too, as noise changes with what else the machine does.
        """
        if self.metric:
            values = self._value(first), self._value(second)
            gain = values[0] / values[1]
            return Paired(*values, gain, gain, gain)
        self._comparisons += 1
        if self._comparisons % _EVERY == 0:
            self._beside_itself(first)
        return attrs.evolve(self._timed(first, second), noise=self.noise)

    def _beside_itself(self, built: BuiltProgram) -> Paired:
        found = self._timed(built, built)
        self._selves.append(found.farthest)
        return found

    def _timed(self, first: BuiltProgram, second: BuiltProgram) -> Paired:
        return compare(
            first.kernel.function,
            second.kernel.function,
            threads=self._threads(second),
            seed=self.seed,
            until=self.deadline,
        )

    def verdict(self, found: Paired) -> Rejection | None:
        """Return why a program does not enter the beam by its times, None if it does."""
        if found.low > 1 and math.log(found.gain) > found.noise:
            return None
        if found.gain > 1 and not self.metric:
            interval = f"{percent(found.low)} to {percent(found.high)}"
            noise = percent(math.exp(found.noise))
            return Rejection("noise", f"{percent(found.gain)} faster, {interval}, with noise of {noise}")
        return Rejection("slower", f"{found.gain:.3g} times as fast")

    def _with_library(self, built: BuiltProgram) -> BuiltProgram | Rejection | None:
        """Return a program that is built, or why it cannot be; None where no time is left."""
        if self.late:
            return None
        try:
            _ = built.kernel.library
        except ToolchainError as error:
            return Rejection("not built", error.message.splitlines()[0])
        return built

    def _threads(self, built: BuiltProgram) -> int:
        return built.kernel.threads(self.threads if built.kernel.program.parallel else None)

    def _value(self, built: BuiltProgram) -> float:
        return float(next(one.value for one in built.kernel.readings(self.seed) if one.metric == self.metric))

    def _measured(self, built: BuiltProgram, value: float, spread: float, relative: float = 1.0) -> MeasuredProgram:
        target, impl = self.goal.target, built.impl
        feedback = Feedback(
            value=value,
            spread=spread,
            percent=self._percent(built, value),
            cost=built.cost,
            holds=by_level(built.kernel.peak, target),
            shares=balance(impl, target).shares,
        )
        return MeasuredProgram(
            built, TuningCandidate(target=target, impl=impl, feedback=feedback), value, spread, relative
        )

    def _percent(self, built: BuiltProgram, value: float) -> float | None:
        """Return a program's share of the peak in percent, None if the peak is unknown.

        The peak is timed right after the program, as the speed that a core runs at changes, and a few times more where
        it was slower than the program: then the core was, or something else had it.
        """
        if self.clock is None or self.metric:
            return None
        meter = PeakMeter(self.goal.target, self.clock, built.kernel.compiler)
        threads = min(self._threads(built), os.cpu_count() or 1)
        rate, peak = self.goal.spec.logical.flops / value / threads, 0.0
        for _ in range(_PEAKS):
            peak = max(peak, meter.rate(built.impl))
            if not peak or rate <= peak or self.late:
                break
        return 100 * rate / peak if peak else None


def percent(ratio: float) -> str:
    """Return how much more than 1 a ratio is, in words."""
    return f"{100 * (ratio - 1):.2g} %"


def simplified(candidate: TuningCandidate, key: Callable[[Impl], str]) -> Impl:
    """Return the program without loops that go on in another one over the same dimension, where its C is the same."""
    while found := _without_one(candidate, key):
        candidate = attrs.evolve(candidate, impl=found)
    return candidate.impl


def _without_one(candidate: TuningCandidate, key: Callable[[Impl], str]) -> Impl | None:
    own: str | None = None
    for site in sites(candidate.impl):
        expansion = site.node.expansion
        if not isinstance(expansion, Loop) or expansion.parallel or len(expansion.parts) != 1:
            continue
        if not goes_on(expansion.parts[0], site.node.children[0]):
            continue
        try:
            schedule = remove_step(candidate, site)
            impl = apply(Position(Leaf(candidate.spec)), schedule, candidate.target, Leaf).impl
            own = own or key(candidate.impl)
            if key(impl) == own:
                return impl
        except MorelloError:
            continue
    return None
