"""Tunes a Spec: measures edits of its schedule, keeps the fastest program, and says which optimizations paid."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler, find_compiler
from morello.db.measured import Machine, Measured
from morello.db.store import SpecStore
from morello.errors import VerificationError
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import leaves
from morello.plugins.registry import installed
from morello.progress import Listener
from morello.run.paired import Paired
from morello.schedule import schedule_of
from morello.search.budget import SearchBudget
from morello_tune import evaluate
from morello_tune.beam import BeamOptions, BeamSearch, BeamState, TuningSample
from morello_tune.evaluate import Evaluator, Rejection
from morello_tune.hooks import tuning_info
from morello_tune.interface import MenuItem, Proposer, TuningCandidate, TuningInfo, TuningTask
from morello_tune.menu import menu_for
from morello_tune.recorded import machine_of
from morello_tune.reuse import Recipe, recipes, replay
from morello_tune.trace import Trace


@attrs.frozen
class ItemStatistics:
    """The samples of an item of the menu: how many there were, were measured, and paid, and the product of gains."""

    item: str
    samples: int
    measured: int
    accepted: int
    gain: float
    best: float


@attrs.frozen(kw_only=True)
class TuningResult:
    """The outcome of tuning. `final` are the times of the best program against the start's, measured again at the end.

    The best is the start itself where nothing was faster by more than noise; `noise` is the most that there was of it.
    """

    goal: Goal
    kernel: Kernel
    best: evaluate.MeasuredProgram
    start: evaluate.MeasuredProgram
    final: Paired
    noise: float
    samples: tuple[TuningSample, ...]
    seconds: float
    interrupted: bool = False
    metric: str = ""
    facts: Mapping[str, Any] = attrs.field(factory=dict[str, Any])

    @property
    def improved(self) -> bool:
        """Return True if a program is faster than the start by more than noise."""
        return self.best.built.key != self.start.built.key

    @property
    def gain(self) -> float:
        """Return how many times as fast as the start the best program is."""
        return self.final.gain if self.improved else 1.0

    @property
    def schedule(self) -> str:
        """Return the schedule that makes all of the best program, as a Spec file has it."""
        return self.best.candidate.text

    @property
    def spec_file(self) -> str:
        """Return the text of a Spec file with the best program's schedule, to be replayed."""
        impl, goal = self.best.built.impl, self.goal
        declared = Declaration(goal.name, goal.spec, schedule_of(impl), goal.signature)
        return show_file(SpecFile(goal.target, (declared,)))

    @property
    def items(self) -> list[ItemStatistics]:
        """Return the statistics of each item, largest gain first."""
        by_item: dict[str, list[TuningSample]] = {}
        for one in self.samples:
            by_item.setdefault(one.proposal.item, []).append(one)
        found = [_paid(item, samples) for item, samples in by_item.items()]
        return sorted(found, key=lambda one: (-one.gain, -one.accepted, one.item))

    @property
    def disagreement(self) -> tuple[int, int, float] | None:
        """Return how often clock and model disagree: pairs of programs that both distinguish, those in another order,
        and the most that the model's choice of a pair takes longer. None where fewer than two were measured.

        The clock distinguishes two whose gains over the start differ by more than the intervals that these are in, and
        by more than noise.
        """
        made = [(one.measured.built.cost, one.paired) for one in self.samples if one.measured and one.paired]
        made.append((self.start.built.cost, _beside_itself(self.start)))
        pairs = wrong = 0
        worst = 1.0
        for (cost, one), (other_cost, other) in combinations(sorted(made, key=lambda each: each[0]), 2):
            apart = one.low > other.high or other.low > one.high
            if cost == other_cost or not apart or abs(math.log(one.gain / other.gain)) <= self.noise:
                continue
            pairs += 1
            if other.gain > one.gain:
                wrong += 1
                worst = max(worst, other.gain / one.gain)
        return (pairs, wrong, worst) if len(made) > 1 else None

    @property
    def verdicts(self) -> dict[str, int]:
        """Return how many samples there are by what became of them."""
        counts: dict[str, int] = {}
        for one in self.samples:
            counts[one.verdict] = counts.get(one.verdict, 0) + 1
        return dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))


def _beside_itself(one: evaluate.MeasuredProgram) -> Paired:
    """Return what a program is beside itself, which needs no timing."""
    return Paired(one.value, one.value, 1.0, 1.0, 1.0)


def _paid(item: str, samples: Sequence[TuningSample]) -> ItemStatistics:
    gains = [one.paired.gain for one in samples if one.paired]
    accepted = [one.paired.gain for one in samples if one.verdict == "accepted" and one.paired]
    gain = math.exp(sum(map(math.log, accepted)) / len(accepted)) if accepted else 1.0
    return ItemStatistics(item, len(samples), len(gains), len(accepted), gain, max(gains, default=0.0))


@attrs.define(kw_only=True)
class Tuner:
    """Tunes one goal. Schedules that the goal comes with are where it starts; search completes them first."""

    goal: Goal
    proposer: Proposer
    options: BeamOptions = attrs.field(factory=BeamOptions)
    db: SpecStore | None = None
    reuse: SpecStore | None = None
    trace: str | Path | None = None
    compiler: Compiler | str | None = None
    threads: int | None = None
    #: SearchBudget of the search for the start, and of those that complete edits.
    budget: SearchBudget | None = None
    completing: SearchBudget = evaluate.BUDGET
    extra: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    without_menu: bool = False
    without_feedback: bool = False
    on_sample: Callable[[BeamState, Evaluator], None] = lambda state, evaluator: None

    def run(self, progress: Listener = False) -> TuningResult:
        """Tune. Ctrl-C ends it with the best program so far. Raises what compiling and calling the start raises."""
        goal, target = self.goal, self.goal.target
        info = tuning_info(target.name)
        began = time.monotonic()
        ends = began + self.options.time
        compiler = self.compiler if isinstance(self.compiler, Compiler) else find_compiler(self.compiler)
        evaluator = Evaluator(
            goal,
            compiler,
            budget=attrs.evolve(self.completing, memory=self.budget.memory if self.budget else None),
            seed=self.options.seed,
            threads=self.threads,
            clock=installed().clock(target.name),
            deadline=ends,
        )
        done = goal.synthesize(self.db or False, progress, self._budget(ends)) if _is_open(goal) else goal
        start = evaluator.start(done.impl)
        machine = machine_of(start.built.kernel, self.threads)
        known = recipes(self.reuse, goal) if self.reuse else []
        menu = () if self.without_menu else tuple(menu_for(target.name).values())
        task = self._task(evaluator, start, menu, info, known)
        head = self._head(machine, evaluator)
        trace = Trace.open(self.trace, head)
        search = BeamSearch(
            evaluator=evaluator,
            session=self.proposer.start(task),
            menu=menu or task.menu,
            options=self.options,
            trace=trace,
            on_sample=lambda state: self._on_sample(state, evaluator, machine),
            started=began,
            deadline=evaluator.deadline,
        )
        trace.write(
            "start",
            **head,
            name=goal.name,
            proposer=self.proposer.name,
            options=self.options.sizes,
            key=start.built.key,
            schedule=start.candidate.text,
            value=start.value,
            spread=start.spread,
            noise=evaluator.noise,
        )
        state = BeamState(start, [start])
        before = [one for one in self.db.measured(target, goal.spec) if one.machine == machine] if self.db else []
        self.on_sample(state, evaluator)
        interrupted = False
        try:
            for recipe in known:
                replay(search, state, recipe)
            search.run(state)
        except KeyboardInterrupt:
            interrupted = True
        evaluator.deadline = math.inf
        return self._ended(search, state, evaluator, machine, before, interrupted)

    def _budget(self, ends: float) -> SearchBudget | None:
        """Return the effort of the search for the start, with no more seconds than there are."""
        if ends == math.inf:
            return self.budget
        budget, left = self.budget or SearchBudget(), max(0.0, ends - time.monotonic())
        return attrs.evolve(budget, seconds=left if budget.seconds is None else min(left, budget.seconds))

    def _task(
        self,
        evaluator: Evaluator,
        start: evaluate.MeasuredProgram,
        menu: tuple[MenuItem, ...],
        info: TuningInfo,
        known: Sequence[Recipe],
    ) -> TuningTask:
        gains: dict[str, float] = {}
        for item, gain in (step for recipe in known for step in recipe.way):
            gains[item] = gains.get(item, 0.0) + math.log(max(gain, 1.0))
        return TuningTask(
            name=self.goal.name,
            start=start.candidate,
            info=info,
            seed=self.options.seed,
            read=evaluator.read,
            cost=evaluator.cost,
            deadline=evaluator.deadline,
            menu=menu or (self._everything(),),
            gains=gains,
            options={**self.extra, "feedback": not self.without_feedback},
        )

    def _everything(self) -> MenuItem:
        """Return the one item there is without a menu: any edit."""
        items = [*menu_for(self.goal.target.name).values()]

        def edits(candidate: TuningCandidate) -> Iterable[Any]:
            for item in items:
                if item.applies(candidate):
                    yield from item.edits(candidate)

        return MenuItem(name="any", text="change anything", edits=edits)

    def _head(self, machine: Machine, evaluator: Evaluator) -> dict[str, Any]:
        spec, target, metric = self.goal.spec, self.goal.target, evaluator.judged_by or None
        facts = {"spec": str(spec), "target": target.name, "profile": target.profile, "metric": metric}
        return {**facts, **attrs.asdict(machine)}

    def _on_sample(self, state: BeamState, evaluator: Evaluator, machine: Machine) -> None:
        """Pass on how far it is; a program that is the fastest so far is kept at once."""
        self.on_sample(state, evaluator)
        best = state.best
        if self.db and state.samples[-1].measured is best:
            self._keep(state, evaluator, machine, best, best.relative)

    def _keep(
        self, state: BeamState, evaluator: Evaluator, machine: Machine, best: evaluate.MeasuredProgram, gain: float
    ) -> None:
        assert self.db
        self.db.keep_measured(
            self.goal.target,
            self.goal.spec,
            Measured(
                machine=machine,
                schedule=best.candidate.text,
                key=best.built.key,
                value=best.value,
                spread=best.spread,
                start=state.start.value,
                gain=gain,
                samples=len(state.samples),
                metric=evaluator.judged_by,
                way=best.way,
            ),
        )

    def _ended(
        self,
        search: BeamSearch,
        state: BeamState,
        evaluator: Evaluator,
        machine: Machine,
        before: Sequence[Measured],
        interrupted: bool,
    ) -> TuningResult:
        """Verify the best program on all data, and time it against the start again.

        What the database had before comes back where nothing is confirmed.
        """
        best, final = self._confirmed(state, evaluator, search.started + self.options.time)
        seconds = search.seconds
        if self.db and best is not state.start:
            self._keep(state, evaluator, machine, best, final.gain)
        elif self.db and state.best is not state.start:
            self.db.forget_measured(self.goal.target, self.goal.spec, machine)
            for one in before:
                self.db.keep_measured(self.goal.target, self.goal.spec, one)
        facts = search.session.facts()
        search.trace.write(
            "end",
            key=best.built.key,
            schedule=best.candidate.text,
            paired=attrs.astuple(final),
            samples=len(state.samples),
            seconds=round(seconds, 3),
            interrupted=interrupted,
            facts=dict(facts),
        )
        goal = attrs.evolve(best.built.kernel.goal, measured=None)
        noise = max((one.paired.noise for one in state.samples if one.paired), default=evaluator.noise)
        return TuningResult(
            goal=goal,
            kernel=best.built.kernel,
            best=best,
            start=state.start,
            final=final,
            noise=noise,
            samples=tuple(state.samples),
            seconds=seconds,
            interrupted=interrupted,
            metric=evaluator.judged_by,
            facts=facts,
        )

    def _confirmed(
        self, state: BeamState, evaluator: Evaluator, ends: float
    ) -> tuple[evaluate.MeasuredProgram, Paired]:
        """Return the fastest program that is right on all data and faster than the start when timed again.

        After the first there are others only as long as there is time.
        """
        start = state.start
        for best in state.beam:
            if best is start or (best is not state.best and time.monotonic() >= ends):
                break
            try:
                best.built.kernel.check(evaluator.seed)
            except VerificationError:
                continue
            final = evaluator.compared(start.built, best.built)
            if not isinstance(evaluator.verdict(final), Rejection):
                return best, final
        return start, _beside_itself(start)


def _is_open(goal: Goal) -> bool:
    return next(leaves(goal.impl), None) is not None
