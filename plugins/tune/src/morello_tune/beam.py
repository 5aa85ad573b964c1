"""Beam search over schedules ([Hong2025] §3): of all programs that beat their parents the best few are improved on."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import attrs

from morello.errors import MorelloError
from morello.run.paired import Paired
from morello.schedule import Schedule, schedule_text
from morello_tune.evaluate import BuiltProgram, MeasuredProgram, Rejection
from morello_tune.interface import MenuItem, PlanRequest, Proposal, ProposalOutcome, ProposerSession, TuningCandidate
from morello_tune.trace import Trace

#: Programs built together; the deadline is checked after each batch.
_TOGETHER = 12


@attrs.frozen(kw_only=True)
class BeamOptions:
    """The sizes of a beam search: programs kept, plans for each, implementations of each plan, and iterations.

    `dropout` is the probability with which an item is left out of the menu of a plan. The search ends after `samples`
    implementations or `seconds` in all; a sample that is not measured by then does not count. Raises MorelloError for
    sizes below 1.
    """

    beam: int = 6
    plans: int = 6
    implementations: int = 2
    iterations: int = 10
    dropout: float = 0.7
    samples: int | None = None
    seconds: float | None = None
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        for name in ("beam", "plans", "implementations"):
            if getattr(self, name) < 1:
                raise MorelloError(f"{name} is {getattr(self, name)}", f"there is at least 1 of {name}")
        if self.iterations < 0 or not 0 <= self.dropout <= 1:
            raise MorelloError("iterations are not negative, and dropout is a probability", "give others")

    @property
    def time(self) -> float:
        """Return the limit in seconds, infinity without one."""
        return math.inf if self.seconds is None else self.seconds

    @property
    def most_samples(self) -> int:
        """Return the largest number of implementations: the first iteration has the start alone."""
        once = self.plans * self.implementations
        most = once + (self.iterations - 1) * self.beam * once if self.iterations else 0
        return most if self.samples is None else min(most, self.samples)

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the values of these fields, without those of derived classes."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(BeamOptions)}


class Evaluates(Protocol):
    """Makes programs of schedules, and measures them."""

    def prepare(
        self, schedules: Sequence[Schedule], known: Callable[[str], bool]
    ) -> list[BuiltProgram | Rejection]: ...

    def verify(self, built: BuiltProgram) -> Rejection | None: ...

    def measure(
        self, built: BuiltProgram, parent: MeasuredProgram, known: Paired | None = None
    ) -> tuple[MeasuredProgram, Paired]: ...

    def verdict(self, found: Paired) -> Rejection | None: ...


@attrs.frozen(kw_only=True)
class TuningSample:
    """An implementation, and what became of it. `paired` are its times against its parent's, if it was measured."""

    iteration: int
    parent: MeasuredProgram
    proposal: Proposal
    verdict: str
    reason: str = ""
    measured: MeasuredProgram | None = None
    paired: Paired | None = None


@attrs.define
class BeamState:
    """The search so far: all samples, the beam, and the best program."""

    start: MeasuredProgram
    beam: list[MeasuredProgram]
    samples: list[TuningSample] = attrs.field(factory=list[TuningSample])
    iteration: int = 0

    @property
    def best(self) -> MeasuredProgram:
        """Return the fastest program."""
        return self.beam[0]


@attrs.define
class BeamSearch:
    """Finds faster programs. `on_sample` is called after every sample."""

    evaluator: Evaluates
    session: ProposerSession
    menu: Sequence[MenuItem]
    options: BeamOptions
    trace: Trace = attrs.field(factory=Trace)
    on_sample: Callable[[BeamState], None] = lambda state: None
    started: float = attrs.field(factory=time.monotonic)
    #: When to end, of `time.monotonic`.
    deadline: float = attrs.field(default=attrs.Factory(lambda self: self.started + self.options.time, takes_self=True))

    @property
    def seconds(self) -> float:
        """Return the seconds since it was made."""
        return time.monotonic() - self.started

    def run(self, state: BeamState, iterations: int | None = None) -> BeamState:
        """Go on from a state until the iterations or the budget end, or nothing is proposed any more.

        The state is up to date when it is interrupted.
        """
        for number in range(self.options.iterations if iterations is None else iterations):
            if self._left(state) <= 0:
                break
            state.iteration += 1
            if not self._iterate(state, number):
                break
        return state

    def _iterate(self, state: BeamState, number: int) -> bool:
        """Do one iteration; return False if nothing was proposed."""
        options = self.options
        requests, parents = list[PlanRequest](), list[MeasuredProgram]()
        for place, member in enumerate(state.beam):
            for plan in range(options.plans):
                seed = random.Random(f"{options.seed} {state.iteration} {place} {plan}").getrandbits(32)
                menu = drop_items(applicable_items(self.menu, member.candidate), options.dropout, seed)
                requests.append(
                    PlanRequest(
                        candidate=member.candidate,
                        menu=menu,
                        implementations=options.implementations,
                        iteration=number + 1,
                        iterations=options.iterations,
                        seed=seed,
                    )
                )
                parents.append(member)
        made = [
            (parent, one)
            for parent, proposals in zip(parents, self.session.propose(requests), strict=True)
            for one in proposals[: None if self.session.once else options.implementations]
        ]
        made = made[: max(0, self._left(state))]
        outcomes: list[ProposalOutcome] = []
        for first in range(0, len(made), _TOGETHER):
            if self._late():
                break
            outcomes += self._judged(state, made[first : first + _TOGETHER])
        self.session.learn(outcomes)
        return bool(made)

    def _judged(self, state: BeamState, made: Sequence[tuple[MeasuredProgram, Proposal]]) -> list[ProposalOutcome]:
        """Measure proposals, and let those that beat their parents into the beam."""
        keys = {state.start.built.key, *(one.measured.built.key for one in state.samples if one.measured)}
        schedules = [one.schedule for _, one in made if one.schedule is not None]
        prepared = iter(self.evaluator.prepare(schedules, keys.__contains__))
        outcomes: list[ProposalOutcome] = []
        for parent, proposal in made:
            if self._late():
                break
            program = next(prepared, None) if proposal.schedule is not None else Rejection("refused", proposal.refused)
            try:
                sample = program and self._sample(state.iteration, parent, proposal, program)
            except TimeoutError:
                sample = None
            if sample is None:
                break
            state.samples.append(sample)
            if sample.verdict == "accepted" and sample.measured:
                # What was there first comes first of equals.
                state.beam = sorted([*state.beam, sample.measured], key=lambda one: -one.relative)[: self.options.beam]
            self._write(sample, len(state.samples))
            self.on_sample(state)
            outcomes.append(_outcome(sample))
        return outcomes

    def _sample(
        self, iteration: int, parent: MeasuredProgram, proposal: Proposal, program: BuiltProgram | Rejection
    ) -> TuningSample:
        sample = partial(TuningSample, iteration=iteration, parent=parent, proposal=proposal)
        if isinstance(program, Rejection):
            return sample(verdict=program.verdict, reason=program.reason)
        known = self.trace.known.get((parent.built.key, program.key))
        try:
            refusal = None if known else self.evaluator.verify(program)
            if refusal:
                return sample(verdict=refusal.verdict, reason=refusal.reason)
            measured, paired = self.evaluator.measure(program, parent, known)
        except MorelloError as error:
            return sample(verdict="not built", reason=error.message)
        measured = attrs.evolve(measured, way=(*parent.way, (proposal.item, paired.gain)))
        refusal = self.evaluator.verdict(paired)
        if refusal:
            return sample(verdict=refusal.verdict, reason=refusal.reason, measured=measured, paired=paired)
        return sample(verdict="accepted", measured=measured, paired=paired)

    def _write(self, one: TuningSample, number: int) -> None:
        key = one.measured.built.key if one.measured else None
        if key and (one.parent.built.key, key) in self.trace.known:
            return
        self.trace.write(
            "sample", sample=number, seconds=round(time.monotonic() - self.started, 3), **sample_fields(one)
        )

    def _left(self, state: BeamState) -> int:
        """Return how many samples there may still be."""
        if self._late():
            return 0
        samples = self.options.samples
        return 1 << 62 if samples is None else samples - len(state.samples)

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline


def applicable_items(menu: Sequence[MenuItem], candidate: TuningCandidate) -> list[MenuItem]:
    """Return the items that may apply to a candidate."""
    return [item for item in menu if item.applies(candidate)]


def drop_items(menu: Sequence[MenuItem], dropout: float, seed: int) -> tuple[MenuItem, ...]:
    """Return a menu without the items that chance leaves out, each with the same probability; never an empty one."""
    rng = random.Random(seed)
    kept = tuple(item for item in menu if rng.random() >= dropout)
    return kept or tuple(rng.sample([*menu], min(1, len(menu))))


def sample_fields(one: TuningSample) -> Mapping[str, object]:
    """Return what a trace has of a sample."""
    proposal, measured, paired = one.proposal, one.measured, one.paired
    return {
        "iteration": one.iteration,
        "parent": one.parent.built.key,
        "item": proposal.item,
        "plan": proposal.plan,
        "edit": schedule_text(proposal.schedule) if proposal.schedule is not None else proposal.text,
        "verdict": one.verdict,
        "reason": one.reason,
        "key": measured and measured.built.key,
        "schedule": measured and measured.candidate.text,
        "value": measured and measured.value,
        "spread": measured and measured.spread,
        "relative": measured and measured.relative,
        "paired": paired and attrs.astuple(paired),
        "feedback": measured and measured.candidate.feedback and attrs.asdict(measured.candidate.feedback),
    }


def _outcome(one: TuningSample) -> ProposalOutcome:
    return ProposalOutcome(
        parent=one.parent.candidate,
        proposal=one.proposal,
        accepted=one.verdict == "accepted",
        reason=f"{one.verdict}: {one.reason}" if one.reason else one.verdict,
        gain=one.paired and one.paired.gain,
        candidate=one.measured and one.measured.candidate,
    )
