"""Evaluates candidates: completes schedules, builds and verifies programs, and times them against their parents."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.calibration.meter import Timer
from morello.codegen.forms import program_key
from morello.codegen.loops import goes_on
from morello.db.searches import Searches
from morello.errors import Inapplicable, MorelloError, NoImplementation, ToolchainError, Undecided, VerificationError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Impl, KernelCall, Leaf, Loop, cost_and_peak, walk
from morello.kernels.target import Target
from morello.plugins.measure import Clock
from morello.report.balance import balance
from morello.report.tree import by_level
from morello.run.metrics import metrics_of
from morello.run.paired import Paired, compare, pinned
from morello.run.runner import Runner
from morello.schedule import Position, Schedule, apply, schedule_text
from morello.search.budget import SearchBudget
from morello.verify.check import Verification
from morello_tune.edits import remove_step, sites
from morello_tune.interface import BuiltProgram, Feedback, MeasuredProgram, TuningCandidate, Verdict

#: The search for each Spec that a schedule leaves open.
BUDGET = SearchBudget(expansions=20_000, seconds=30.0)
#: Data sets that each candidate is verified on; the best is verified on all.
_SETS = 2
#: The least noise, as a logarithm.
_LEAST = 0.002
#: Noise is the median of this many self-comparisons; comparisons between two of them; their seconds at the start.
_SELVES, _EVERY, _LONG = 5, 5, 3.0
#: The most times that a peak is timed when a program seems to exceed it, its seconds at most, and its bytes of memory.
_PEAKS, _SECONDS, _MEMORY = 5, 1.0, 1 << 16


@attrs.frozen
class Rejection:
    """A proposal that is not measured, and why."""

    verdict: Verdict
    reason: str


@attrs.define
class Evaluator:
    """Turns schedules of one Spec into measured programs. Searches, builds and data are shared.

    At `deadline`, of `time.monotonic`, searches and timing end, and nothing new begins.
    """

    goal: Goal
    compiler: Compiler
    budget: SearchBudget = BUDGET
    seed: int = 0
    threads: int | None = None
    clock: Clock | None = None
    deadline: float = math.inf
    runner: Runner | None = None
    _selves: deque[float] = attrs.field(factory=lambda: deque[float](maxlen=_SELVES), init=False)
    _comparisons: int = attrs.field(default=0, init=False)
    _searches: Searches = attrs.field(init=False)
    _completed: dict[str, BuiltProgram | Rejection] = attrs.field(
        factory=dict[str, "BuiltProgram | Rejection"], init=False
    )
    _verification: Verification | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._searches = Searches(self.goal.target, shared=True)

    @property
    def metric(self) -> str:
        """Return the name of the first metric, which is measured in place of time; empty for time."""
        return next((one.name for one in metrics_of(self.goal.target, self.runner)), "")

    @property
    def noise(self) -> float:
        """Return how far from 1, as a logarithm, the gain of a program over itself may be now; 0 for a metric.

        It is the median over the last few self-comparisons of the farther end of the 99 % confidence interval.
        """
        return 0.0 if self.metric else max(_LEAST, statistics.median(self._selves or [0.0]))

    @property
    def late(self) -> bool:
        """Return True if nothing may begin any more."""
        return time.monotonic() >= self.deadline

    def read(self, text: str) -> Schedule:
        """Return the schedule in a text, if it applies to the Spec. Raises MorelloError as for a Spec file."""
        schedule = parse_schedule(text, self.goal.target, "<answer>")
        apply(Position(Leaf(self.goal.spec)), schedule, self.goal.target, Leaf)
        return schedule

    def complete(self, schedule: Schedule) -> BuiltProgram | Rejection:
        """Return the program of a schedule, which search completes, or the reason without one."""
        key = schedule_text(schedule)
        if key not in self._completed:
            try:
                self._completed[key] = self.built(self._searched(schedule))
            except Inapplicable as error:
                self._completed[key] = Rejection("refused", str(error))
            except (NoImplementation, Undecided) as error:
                self._completed[key] = Rejection("no program", error.message)
        return self._completed[key]

    def _searched(self, schedule: Schedule) -> Impl:
        if self.budget.memory_reached:
            self._searches = Searches(self.goal.target, shared=True)
        budget = until(self.budget, self.deadline)
        goal = Goal.of(self.goal.spec, self.goal.target, self.goal.name, self._searches, self.goal.signature)
        # The step `synthesize` leaves Specs open, so that their search has this budget too.
        goal = attrs.evolve(goal, position=apply(goal.position, schedule, goal.target, Leaf))
        return goal.synthesize(db=False, progress=False, budget=budget).impl

    def built(self, impl: Impl) -> BuiltProgram:
        """Return the emitted program of an implementation; its library is built at the first use."""
        target, goal = self.goal.target, self.goal
        impl = simplified(TuningCandidate(target=target, impl=impl))
        program = target.emitter.emit(impl, target, goal.name, goal.signature)
        kernel = Kernel(
            attrs.evolve(goal, position=Position(impl), before_search=None), program, self.compiler, self.runner
        )
        return BuiltProgram(kernel, program_key(impl, target), int(cost_and_peak(impl).cost))

    def prepare(
        self, schedules: Sequence[Schedule], known: Callable[[str], bool]
    ) -> list[BuiltProgram | Rejection | None]:
        """Complete schedules, and build their programs in parallel, except those whose C is `known` or a repetition.

        Each search has a budget of its own, so that the programs do not depend on the machine. If no time is left, the
        list ends early, or has None for programs.
        """
        found, seen = list[BuiltProgram | Rejection](), set[str]()
        for schedule in schedules:
            if self.late:
                break
            made = self.complete(schedule)
            if isinstance(made, BuiltProgram):
                again = known(made.key) or made.key in seen
                seen.add(made.key)
                made = Rejection("duplicate", "its C is that of a program before") if again else made
            found.append(made)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return [*pool.map(self._with_library, found)]

    def _with_library(self, built: BuiltProgram | Rejection) -> BuiltProgram | Rejection | None:
        """Return a program that is built, or the reason if it cannot be; None if no time is left."""
        if isinstance(built, Rejection):
            return built
        if self.late:
            return None
        try:
            _ = built.kernel.library
        except ToolchainError as error:
            return Rejection("not built", error.message.splitlines()[0])
        return built

    def verify(self, built: BuiltProgram) -> Rejection | None:
        """Return the reason if a program is wrong, None if it is right on a few data sets."""
        if self._verification is None:
            self._verification = Verification(built.kernel.function, self.seed, sets=_SETS)
        try:
            self._verification.check(built.kernel.function)
        except VerificationError as error:
            return Rejection("wrong", error.message)
        return None

    def start(self, impl: Impl) -> MeasuredProgram:
        """Return the first program, measured. Self-comparisons of it give the first noise.

        Move the deadline forward by the time that confirming the best program will take: that of checking and timing
        this one. Raises what building, verifying or calling it raises.
        """
        built, deadline = self.built(impl), self.deadline
        _ = built.kernel.library
        self.deadline, began = math.inf, time.monotonic()
        built.kernel.check(self.seed)
        found = [] if self.metric else [self._itself(built)]
        self.deadline = deadline - (time.monotonic() - began)
        if self.metric:
            return self._measured(built, self._value(built), 0.0)
        with suppress(TimeoutError):
            while len(found) < _SELVES and time.monotonic() - began < _LONG:
                found.append(self._itself(built))
        same = sorted(found, key=lambda one: one.farthest)[len(found) // 2]
        return self._measured(built, same.first, same.spread)

    def measure(
        self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
    ) -> tuple[MeasuredProgram, Paired]:
        """Return a program measured against its parent, or with `known` times. Raises TimeoutError if it is late."""
        found = known or self.compared(parent.built, built)
        return self._measured(built, found.second, found.spread, parent.relative * found.gain), found

    def compared(self, first: BuiltProgram, second: BuiltProgram) -> Paired:
        """Return the times of two programs, measured in turns, or their values of the metric.

        Every few comparisons the first is also timed against itself: noise changes with the load of the machine.
        """
        if self.metric:
            values = self._value(first), self._value(second)
            gain = values[0] / values[1]
            return Paired(*values, gain, gain, gain)
        self._comparisons += 1
        if self._comparisons % _EVERY == 0:
            self._itself(first)
        return attrs.evolve(self._timed(first, second), noise=self.noise)

    def _itself(self, built: BuiltProgram) -> Paired:
        found = self._timed(built, built)
        self._selves.append(found.farthest)
        return found

    def _timed(self, first: BuiltProgram, second: BuiltProgram) -> Paired:
        functions, threads = (first.kernel.function, second.kernel.function), self._threads(second)
        return compare(*functions, threads=threads, seed=self.seed, until=self.deadline)

    def verdict(self, found: Paired) -> Rejection | None:
        """Return the reason if times keep a program out of the beam, None if it enters."""
        if found.low > 1 and math.log(found.gain) > found.noise:
            return None
        if found.gain > 1 and not self.metric:
            gain, low, high, noise = (
                f"{100 * (one - 1):.2g} %" for one in (found.gain, found.low, found.high, math.exp(found.noise))
            )
            return Rejection("noise", f"{gain} faster, {low} to {high}, with noise of {noise}")
        return Rejection("slower", f"{found.gain:.3g} times as fast")

    def _threads(self, built: BuiltProgram) -> int:
        return built.kernel.threads(self.threads if built.kernel.program.parallel else None)

    def _value(self, built: BuiltProgram) -> float:
        return float(next(one.value for one in built.kernel.readings(self.seed) if one.metric.name == self.metric))

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
        candidate = TuningCandidate(target=target, impl=impl, feedback=feedback)
        return MeasuredProgram(built, candidate, value, spread, relative)

    def _percent(self, built: BuiltProgram, value: float) -> float | None:
        """Return a program's share of the peak in percent, None if the peak is unknown.

        The peak is timed right after the program, since clock rates change, and repeated while it seems exceeded:
        then the core was slower, or shared.
        """
        if self.clock is None or self.metric or self.runner:
            return None
        threads = min(self._threads(built), os.cpu_count() or 1)
        rate, peak = self.goal.spec.logical.flops / value / threads, 0.0
        for _ in range(_PEAKS):
            peak = max(peak, peak_rate(built.impl, self.goal.target, self.clock, self.compiler))
            if not peak or rate <= peak or self.late:
                break
        return 100 * rate / peak if peak else None


def until(budget: SearchBudget, deadline: float) -> SearchBudget:
    """Return a budget that ends at a time of `time.monotonic`, too."""
    left = min(max(0.0, deadline - time.monotonic()), math.inf if budget.seconds is None else budget.seconds)
    return attrs.evolve(budget, seconds=None if left == math.inf else left)


def peak_rate(impl: Impl, target: Target, clock: Clock, compiler: Compiler) -> float:
    """Return the FLOPs per second of a core that does multiply-adds alone, timed now on the core of the programs.

    It is the highest over the types of the program's summing kernels, 0 if none has a known peak, as for elementwise
    functions, which memory limits. Raises ToolchainError.
    """
    calls = (node.spec.logical for node in walk(impl) if isinstance(getattr(node, "expansion", None), KernelCall))
    summing = (logical for logical in calls if logical.op.reductions(len(logical.shape)))
    peaks = (clock.peak(types) for types in {tuple(state.dtype.name for state in one.states) for one in summing})
    flags, rates = getattr(target.emitter, "flags", ()), [0.0]
    for peak in filter(None, peaks):
        with pinned():
            timer = Timer(compiler, flags, _MEMORY, True, time.monotonic() + _SECONDS)
            (seconds,) = timer.seconds(peak.source, ["morello_peak"], peak.flags)
        rates.append(peak.flops / seconds)
    return max(rates)


def simplified(candidate: TuningCandidate) -> Impl:
    """Return the program without loops that continue another one over the same dimension, if its C stays the same."""
    target, own = candidate.target, ""
    for site in sites(candidate.impl):
        expansion = site.node.expansion
        if not isinstance(expansion, Loop) or expansion.parallel or len(expansion.parts) != 1:
            continue
        if not goes_on(expansion.parts[0], site.node.children[0]):
            continue
        with suppress(MorelloError):
            impl = apply(Position(Leaf(candidate.spec)), remove_step(candidate, site), target, Leaf).impl
            own = own or program_key(candidate.impl, target)
            if program_key(impl, target) == own:
                return simplified(attrs.evolve(candidate, impl=impl))
    return candidate.impl
