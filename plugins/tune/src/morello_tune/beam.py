"""Beam search over schedules ([Hong2025] §3): of all programs that beat their parents, the best few are improved on."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from morello.errors import MorelloError
from morello_tune.evaluate import Evaluator, Rejection
from morello_tune.interface import (
    BuiltProgram,
    MeasuredProgram,
    MenuItem,
    PlanRequest,
    Proposal,
    ProposerSession,
    TuningSample,
)
from morello_tune.trace import Trace

#: Programs built together; the deadline is checked after each batch.
_TOGETHER = 12


#: The largest of these sizes: plans are made before the first is measured.
MOST = 10_000


@attrs.frozen(kw_only=True)
class BeamOptions:
    """The sizes of a beam search: programs kept, plans for each, implementations of each plan, and iterations.

    `dropout` is the probability with which an item is left out of the menu of a plan. The search ends after `samples`
    implementations or `seconds` in all; a sample that is not measured by then does not count. Raises MorelloError for
    sizes below 1 or above `MOST`.
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
        for name, least in (("beam", 1), ("plans", 1), ("implementations", 1), ("iterations", 0)):
            if not least <= getattr(self, name) <= MOST:
                raise MorelloError(f"{name} is {getattr(self, name)}", f"choose {least} to {MOST:,}")
        if not 0 <= self.dropout <= 1:
            raise MorelloError(f"dropout is {self.dropout}", "dropout is a probability, from 0 to 1")

    @property
    def time(self) -> float:
        """Return the limit in seconds, infinity without one."""
        return math.inf if self.seconds is None else self.seconds

    @property
    def sizes(self) -> dict[str, Any]:
        """Return the values of these fields, without those of derived classes."""
        return {field.name: getattr(self, field.name) for field in attrs.fields(BeamOptions)}


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
    """Finds faster programs. `on_sample` is called after every sample; `deadline` is a time of `time.monotonic`."""

    evaluator: Evaluator
    session: ProposerSession
    menu: Sequence[MenuItem]
    options: BeamOptions
    trace: Trace = attrs.field(factory=Trace)
    on_sample: Callable[[BeamState], None] = lambda state: None
    started: float = attrs.field(factory=time.monotonic)
    deadline: float = attrs.field(default=attrs.Factory(lambda self: self.started + self.options.time, takes_self=True))

    @property
    def seconds(self) -> float:
        """Return the seconds since the search began."""
        return time.monotonic() - self.started

    def run(self, state: BeamState) -> BeamState:
        """Continue from a state until iterations, budget or proposals end. The state is valid when interrupted."""
        for number in range(1, self.options.iterations + 1):
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
            items = [item for item in self.menu if item.applies(member.candidate)]
            for plan in range(options.plans):
                seed = random.Random(f"{options.seed} {state.iteration} {place} {plan}").getrandbits(32)
                parents.append(member)
                requests.append(
                    PlanRequest(
                        candidate=member.candidate,
                        menu=drop_items(items, options.dropout, seed),
                        implementations=options.implementations,
                        iteration=number,
                        iterations=options.iterations,
                        seed=seed,
                    )
                )
        made = [
            (parent, one)
            for parent, proposals in zip(parents, self.session.propose(requests), strict=True)
            for one in proposals[: None if self.session.once else options.implementations]
        ]
        made, before = made[: max(0, self._left(state))], len(state.samples)
        for first in range(0, len(made), _TOGETHER):
            if self._late():
                break
            self._evaluate(state, made[first : first + _TOGETHER])
        self.session.learn(state.samples[before:])
        return bool(made)

    def _evaluate(self, state: BeamState, made: Sequence[tuple[MeasuredProgram, Proposal]]) -> None:
        """Measure proposals, and add those that beat their parents to the beam."""
        keys = {state.start.built.key, *(one.measured.built.key for one in state.samples if one.measured)}
        schedules = [one.schedule for _, one in made if one.schedule is not None]
        prepared = iter(self.evaluator.prepare(schedules, keys.__contains__))
        for parent, proposal in made:
            program = next(prepared, None) if proposal.schedule is not None else Rejection("refused", proposal.refused)
            if program is None or self._late():
                break
            sample = TuningSample(iteration=state.iteration, parent=parent, proposal=proposal, verdict="accepted")
            try:
                sample = attrs.evolve(sample, **self._measured(parent, proposal, program))
            except TimeoutError:
                break
            state.samples.append(sample)
            if sample.accepted and sample.measured:
                # The sort is stable: of equals, the earlier program stays first.
                state.beam = sorted([*state.beam, sample.measured], key=lambda one: -one.relative)[: self.options.beam]
            if not sample.measured or (parent.built.key, sample.measured.built.key) not in self.trace.known:
                self.trace.write("sample", sample=len(state.samples), seconds=round(self.seconds, 3), **sample.facts)
            self.on_sample(state)

    def _measured(
        self, parent: MeasuredProgram, proposal: Proposal, program: BuiltProgram | Rejection
    ) -> dict[str, Any]:
        """Return the fields of the sample of a program. Raises TimeoutError if no time is left to measure it."""
        if isinstance(program, Rejection):
            return attrs.asdict(program)
        known = self.trace.known.get((parent.built.key, program.key))
        try:
            if not known and (rejection := self.evaluator.verify(program)):
                return attrs.asdict(rejection)
            measured, paired = self.evaluator.measure(program, parent, known)
        except MorelloError as error:
            return {"verdict": "not built", "reason": error.message}
        measured = attrs.evolve(measured, way=(*parent.way, (proposal.item, paired.gain)))
        rejection = self.evaluator.verdict(paired)
        return {"measured": measured, "paired": paired, **(attrs.asdict(rejection) if rejection else {})}

    def _left(self, state: BeamState) -> int:
        """Return the number of samples left."""
        if self._late():
            return 0
        samples = self.options.samples
        return 1 << 62 if samples is None else samples - len(state.samples)

    def _late(self) -> bool:
        return time.monotonic() >= self.deadline


def drop_items(menu: Sequence[MenuItem], dropout: float, seed: int) -> tuple[MenuItem, ...]:
    """Return a menu from which each item is dropped with the same probability; one item is left at least."""
    rng = random.Random(seed)
    kept = tuple(item for item in menu if rng.random() >= dropout)
    return kept or tuple(rng.sample([*menu], min(1, len(menu))))
