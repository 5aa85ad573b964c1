"""Tunes a Spec: measures edits of its schedule, keeps the fastest program, and reports which optimizations paid."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import geometric_mean
from typing import Any

import attrs

from morello.api import goal_from
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler
from morello.db.default import DatabaseLike, database
from morello.db.measured import MachineKind, Measured
from morello.db.store import SpecStore
from morello.errors import VerificationError
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import leaves
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.profile_choice import ProfileLike
from morello.plugins.registry import installed
from morello.run.metrics import metrics_of
from morello.run.paired import Paired
from morello.run.runner import find_runner, timing_runner
from morello.schedule import schedule_of
from morello.search.budget import SearchBudget
from morello_tune.beam import BeamOptions, BeamSearch, BeamState
from morello_tune.evaluate import BUDGET, Evaluator, Rejection, until
from morello_tune.interface import (
    MeasuredProgram,
    Proposer,
    TuningSample,
    TuningTask,
    tuning_info,
)
from morello_tune.menu import any_of, menu_for
from morello_tune.proposers import proposer
from morello_tune.recorded import machine_of
from morello_tune.reuse import Recipe, recipes, replay
from morello_tune.trace import Trace


@attrs.frozen(kw_only=True)
class TuningOptions(BeamOptions):
    """The options of `morello tune`: the sizes of the beam search, what plans, and where results go.

    Items that paid for similar Specs in the database `reuse` are tried first. Every result is appended to the file
    `trace`. `budget` is for the search of the first program, `completing` for each Spec that an edit leaves open;
    `proposer_options` are those of the proposer. The last two switches leave out a part of the method, to measure it.
    """

    proposer: str | Proposer = "offline"
    reuse: DatabaseLike = False
    trace: str | os.PathLike[str] | None = None
    cc: str | None = None
    runner: str | None = None
    threads: int | None = None
    budget: SearchBudget | None = None
    completing: SearchBudget = BUDGET
    proposer_options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    without_menu: bool = False
    without_feedback: bool = False


@attrs.frozen
class ItemStatistics:
    """The samples of a menu item: the numbers of all, measured and accepted ones, and two gains.

    `gain` is the geometric mean over accepted samples, `best` the largest of all.
    """

    item: str
    samples: int
    measured: int
    accepted: int
    gain: float
    best: float


@attrs.frozen(kw_only=True)
class TuningResult:
    """The outcome of tuning. `final` are the times of the best program against the start's, measured again at the end.

    The best is the start itself if nothing was faster by more than noise; `noise` is the largest that was measured.
    """

    goal: Goal
    kernel: Kernel
    best: MeasuredProgram
    start: MeasuredProgram
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
        """Return the speedup of the best program over the start."""
        return self.final.gain if self.improved else 1.0

    @property
    def schedule(self) -> str:
        """Return the full schedule of the best program, as in a Spec file."""
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
        found: list[ItemStatistics] = []
        for item, count in Counter(one.proposal.item for one in self.samples).items():
            made = [one for one in self.samples if one.proposal.item == item and one.gain]
            gains = [one.gain or 1.0 for one in made]
            accepted = [one.gain or 1.0 for one in made if one.accepted]
            mean = geometric_mean(accepted) if accepted else 1.0
            found.append(ItemStatistics(item, count, len(gains), len(accepted), mean, max(gains, default=0.0)))
        return sorted(found, key=lambda one: (-one.gain, -one.accepted, one.item))

    @property
    def disagreement(self) -> tuple[int, int, float] | None:
        """Return how often clock and model disagree: pairs of programs that both distinguish, those in another order,
        and the largest slowdown by the model's choice of a pair. None if fewer than two programs were measured.

        The clock distinguishes two whose intervals of gains over the start are apart, and whose gains differ by more
        than noise.
        """
        made = [(one.measured.built.cost, one.paired) for one in self.samples if one.measured and one.paired]
        made.append((self.start.built.cost, _itself(self.start)))
        pairs = wrong = 0
        worst = 1.0
        for (cost, one), (other_cost, other) in combinations(sorted(made, key=lambda each: each[0]), 2):
            apart = one.low > other.high or other.low > one.high
            if cost == other_cost or not apart or abs(math.log(one.gain / other.gain)) <= self.noise:
                continue
            pairs += 1
            if other.gain > one.gain:
                wrong, worst = wrong + 1, max(worst, other.gain / one.gain)
        return (pairs, wrong, worst) if len(made) > 1 else None

    @property
    def verdicts(self) -> dict[str, int]:
        """Return the number of samples for each verdict, most frequent first."""
        return dict(Counter(sorted(one.verdict for one in self.samples)).most_common())


def _itself(one: MeasuredProgram) -> Paired:
    """Return the comparison of a program with itself, which needs no timing."""
    return Paired(one.value, one.value, 1.0, 1.0, 1.0)


@attrs.define
class Tuner:
    """Tunes one goal, starting from its schedule, which search completes first. `on_sample` is called after each."""

    goal: Goal
    options: TuningOptions = attrs.field(factory=TuningOptions)
    db: SpecStore | None = None
    on_sample: Callable[[BeamState, Evaluator], None] = lambda state, evaluator: None
    _evaluator: Evaluator = attrs.field(init=False)
    _machine: MachineKind = attrs.field(init=False)

    def run(self) -> TuningResult:
        """Tune. Ctrl-C ends it with the best program so far. Raises what compiling and calling the start raises."""
        goal, options, target = self.goal, self.options, self.goal.target
        began = time.monotonic()
        ends = began + options.time
        planner, reuse = proposer(options.proposer, target.name), database(options.reuse)
        runner = find_runner(target.info, options.runner)
        # An emulator may count instructions, which are as good as a metric.
        runner = runner if metrics_of(target, runner) else timing_runner(target.info, options.runner)
        evaluator = self._evaluator = Evaluator(
            goal,
            find_compiler(options.cc, target.info),
            runner=runner,
            budget=attrs.evolve(options.completing, memory=options.budget.memory if options.budget else None),
            seed=options.seed,
            threads=options.threads,
            clock=installed().contributions(target.name).clock,
            deadline=ends,
        )
        if next(leaves(goal.impl), None) is not None:
            goal = goal.synthesize(self.db or False, False, until(options.budget or SearchBudget.default(), ends))
        start = evaluator.start(goal.impl)
        self._machine = machine_of(start.built.kernel, options.threads)
        known = recipes(reuse, self.goal) if reuse else []
        task = self._task(start, known)
        trace = Trace.open(options.trace, head := self._head())
        search = BeamSearch(
            evaluator=evaluator,
            session=planner.start(task),
            menu=task.menu,
            options=options,
            trace=trace,
            on_sample=self._on_sample,
            started=began,
            deadline=evaluator.deadline,
        )
        trace.write(
            "start",
            **head,
            name=goal.name,
            proposer=planner.name,
            options=options.sizes,
            key=start.built.key,
            schedule=start.candidate.text,
            value=start.value,
            spread=start.spread,
            noise=evaluator.noise,
        )
        state, interrupted = BeamState(start, [start]), False
        before = self.db.measured(target, goal.spec) if self.db else []
        before = [one for one in before if one.machine == self._machine]
        self.on_sample(state, evaluator)
        try:
            for recipe in known:
                replay(search, state, recipe)
            search.run(state)
        except KeyboardInterrupt:
            interrupted = True
        evaluator.deadline = math.inf
        return self._ended(search, state, before, interrupted)

    def _task(self, start: MeasuredProgram, known: Sequence[Recipe]) -> TuningTask:
        gains: dict[str, float] = {}
        for item, gain in (step for recipe in known for step in recipe.way):
            gains[item] = gains.get(item, 0.0) + math.log(max(gain, 1.0))
        items, evaluator = tuple(menu_for(self.goal.target.name).values()), self._evaluator
        return TuningTask(
            name=self.goal.name,
            start=start.candidate,
            info=tuning_info(self.goal.target.name),
            read=evaluator.read,
            deadline=evaluator.deadline,
            menu=(any_of(items),) if self.options.without_menu else items,
            gains=gains,
            options={**self.options.proposer_options, "feedback": not self.options.without_feedback},
        )

    def _head(self) -> dict[str, Any]:
        target, metric = self.goal.target, self._evaluator.metric or None
        facts = {"spec": str(self.goal.spec), "target": target.full_name, "profile": target.profile, "metric": metric}
        return {**facts, **attrs.asdict(self._machine)}

    def _on_sample(self, state: BeamState) -> None:
        """Report a sample; a program that is the fastest so far is stored at once."""
        self.on_sample(state, self._evaluator)
        if state.samples[-1].measured is state.best:
            self._keep(state, state.best, state.best.relative)

    def _keep(self, state: BeamState, best: MeasuredProgram, gain: float) -> None:
        if not self.db:
            return
        kept = Measured(
            machine=self._machine,
            schedule=best.candidate.text,
            key=best.built.key,
            value=best.value,
            spread=best.spread,
            start=state.start.value,
            gain=gain,
            samples=len(state.samples),
            metric=self._evaluator.metric,
            way=best.way,
        )
        self.db.keep_measured(self.goal.target, self.goal.spec, kept)

    def _ended(
        self, search: BeamSearch, state: BeamState, before: Sequence[Measured], interrupted: bool
    ) -> TuningResult:
        """Verify the best program on all data, and time it against the start again.

        If no program is confirmed, the database gets back its program from before.
        """
        best, final = self._confirmed(state, search.started + self.options.time)
        seconds, facts, metric = search.seconds, search.session.facts(), self._evaluator.metric
        if best is not state.start:
            self._keep(state, best, final.gain)
        elif self.db and state.best is not state.start:
            self.db.forget_measured(self.goal.target, self.goal.spec, self._machine)
            for one in before:
                self.db.keep_measured(self.goal.target, self.goal.spec, one)
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
        return TuningResult(
            goal=attrs.evolve(best.built.kernel.goal, measured=None),
            kernel=best.built.kernel,
            best=best,
            start=state.start,
            final=final,
            noise=max((one.paired.noise for one in state.samples if one.paired), default=self._evaluator.noise),
            samples=tuple(state.samples),
            seconds=seconds,
            interrupted=interrupted,
            metric=metric,
            facts=facts,
        )

    def _confirmed(self, state: BeamState, ends: float) -> tuple[MeasuredProgram, Paired]:
        """Return the fastest program that is right on all data and faster than the start when timed again.

        Those after the first are tried only while time is left.
        """
        start, evaluator = state.start, self._evaluator
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
        return start, _itself(start)


def tune(
    what: str | os.PathLike[str] | Spec | Goal,
    options: TuningOptions | None = None,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    cpu: str | None = None,
    db: DatabaseLike = None,
) -> TuningResult:
    """Return the fastest program found by measuring edits of a schedule. It is stored in `db` as measured.

    The first program is that of `compile` with `measured=False`. `what`, `target`, `profile` and `cpu` are those of
    `morello.synthesize`. Raises what `compile` raises, and MorelloError for an unknown proposer.
    """
    return Tuner(goal_from(what, target, profile, cpu), options or TuningOptions(), database(db)).run()
