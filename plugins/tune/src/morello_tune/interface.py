"""The data that plugins of `morello tune` use: menu items, descriptions of targets, and proposers."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeAlias

import attrs

from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule, schedule_of, schedule_text

#: When an item is likely to pay: while loops are shaped, while data is placed, or while kernels are polished.
Phase: TypeAlias = Literal["early", "middle", "late"]
PHASES: tuple[Phase, ...] = ("early", "middle", "late")


@attrs.frozen(kw_only=True)
class Feedback:
    """The facts of a program that was measured.

    `value` is its time in seconds per call, or what the target's first `Metric` says, and `spread` the relative half of
    the interval that its median is in. `percent` is its share of the peak, None if the peak is unknown.
    `holds` are the most bytes it holds of each level, fastest first, and `shares` the parts of its cost in percent.
    """

    value: float
    spread: float
    percent: float | None
    cost: int
    holds: Mapping[str, int]
    shares: Mapping[str, float]


@attrs.frozen(kw_only=True)
class TuningCandidate:
    """A finished program, whose schedule may be changed; `feedback` is None before it is measured."""

    target: Target
    impl: Impl
    feedback: Feedback | None = None

    @property
    def spec(self) -> Spec:
        return self.impl.spec

    @property
    def schedule(self) -> Schedule:
        """Return the schedule that makes all of the program."""
        return schedule_of(self.impl)

    @property
    def text(self) -> str:
        """Return the schedule as a Spec file has it."""
        return schedule_text(self.schedule)


@attrs.frozen(kw_only=True)
class MenuItem:
    """An optimization that a plan may choose: a name of one word, and what to do in one line.

    `edits(candidate)` gives the candidate's schedule with the item applied, once for each choice of its parameters,
    whole or with parts left out: search completes these. `morello_tune.edits` helps with that. What it gives has to
    apply, and the same candidate gets the same edits. `applies` is a fast check if there are any. `example` is shown
    to language models whose plan has one of the words `triggers`, by default the name.
    """

    name: str
    text: str
    edits: Callable[[TuningCandidate], Iterable[Schedule]]
    applies: Callable[[TuningCandidate], bool] = lambda candidate: True
    phase: Phase = "middle"
    example: str = ""
    triggers: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TuningInfo:
    """The description of a target for language models, and rules for its schedules."""

    description: str = ""
    rules: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class PlanRequest:
    """A plan that is asked for: an item of `menu` for a candidate, and `implementations` of it.

    `seed` is another one for each request of a run.
    """

    candidate: TuningCandidate
    menu: tuple[MenuItem, ...]
    implementations: int
    iteration: int
    iterations: int
    seed: int


@attrs.frozen(kw_only=True)
class Proposal:
    """An edit: the item of the menu, the plan in words, and the schedule that comes of it.

    If an answer has no valid schedule, `schedule` is None and `refused` is the reason. `text` is what was answered.
    """

    item: str
    plan: str
    schedule: Schedule | None
    refused: str = ""
    text: str = ""


@attrs.frozen(kw_only=True)
class ProposalOutcome:
    """The fate of a proposal: whether it enters the beam, and how many times as fast as its parent it is.

    `gain` is None where it was not measured, and `candidate` then too.
    """

    parent: TuningCandidate
    proposal: Proposal
    accepted: bool
    reason: str
    gain: float | None = None
    candidate: TuningCandidate | None = None


@attrs.frozen(kw_only=True)
class TuningTask:
    """A Spec that is tuned, as a session of a proposer is given it.

    `read` turns an answer's text into a schedule that applies to a candidate's Spec, or raises MorelloError with the
    message a person gets. `cost` completes a schedule and returns its cost under the model, None if it has
    no program. `gains` are what items were worth before, as a mean of logarithms. `options` are the user's, by name.
    `deadline` is when tuning ends, of `time.monotonic`: proposals that come later are for nothing.
    """

    name: str
    start: TuningCandidate
    info: TuningInfo
    seed: int
    read: Callable[[str], Schedule]
    cost: Callable[[Schedule], int | None]
    menu: tuple[MenuItem, ...] = ()
    gains: Mapping[str, float] = attrs.field(factory=dict[str, float])
    options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])
    deadline: float = math.inf

    @property
    def late(self) -> bool:
        """Return True if tuning has ended."""
        return time.monotonic() >= self.deadline

    def in_time(self, edits: Iterable[Schedule]) -> Iterator[Schedule]:
        """Yield edits until there are no more, or tuning has ended: some take long to make."""
        for edit in edits:
            yield edit
            if self.late:
                return


class ProposerSession(ABC):
    """A proposer at work on one task.

    One that is for `once` answers the first request alone, with as many proposals as it likes: all for the start.
    """

    once: ClassVar[bool] = False

    @abstractmethod
    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        """Return proposals for each request, at most as many as it asks for; all that are none ends the search."""

    def learn(self, outcomes: Sequence[ProposalOutcome]) -> None:
        """Use the outcomes of the proposals of an iteration."""
        return

    def facts(self) -> Mapping[str, Any]:
        """Return figures for the summary, such as tokens used."""
        return {}


@attrs.frozen(kw_only=True)
class Proposer:
    """Proposes edits of schedules for `morello tune`, by a session for each task."""

    name: str
    start: Callable[[TuningTask], ProposerSession]
    description: str = ""
