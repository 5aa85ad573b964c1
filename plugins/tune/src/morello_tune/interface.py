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
    """The measurements of a program.

    `value` is its time in seconds per call, or the value of the target's first `Metric`, `spread` the relative half
    width of its interval, `percent` the share of the peak, None if that is unknown. `holds` is the largest use of each
    level in bytes, fastest first, and `shares` the parts of the cost in percent.
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
    """An optimization that a plan may choose: a name of one word, and a description in one line.

    `edits(candidate)` yields the candidate's schedule with the item applied, once for each choice of its parameters.
    Schedules must apply, may leave Specs to search, and are the same each time; see `morello_tune.edits`. `applies` is
    a fast check. `example` is shown to language models whose plan has one of the words `triggers` (default: the name).
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
    """A request for a plan: one item of `menu` for a candidate, and `implementations` of it, with a `seed`."""

    candidate: TuningCandidate
    menu: tuple[MenuItem, ...]
    implementations: int
    iteration: int
    iterations: int
    seed: int


@attrs.frozen(kw_only=True)
class Proposal:
    """An edit: the item of the menu, the plan in words, and the schedule.

    If an answer has no valid schedule, `schedule` is None and `refused` is the reason. `text` is the answer.
    """

    item: str
    plan: str
    schedule: Schedule | None
    refused: str = ""
    text: str = ""


@attrs.frozen(kw_only=True)
class ProposalOutcome:
    """The outcome of a proposal: if it entered the beam, and its speedup over its parent.

    `gain` and `candidate` are None if it was not measured.
    """

    parent: TuningCandidate
    proposal: Proposal
    accepted: bool
    reason: str
    gain: float | None = None
    candidate: TuningCandidate | None = None


@attrs.frozen(kw_only=True)
class TuningTask:
    """A tuned Spec, as a session of a proposer gets it.

    `read` parses a schedule that applies to the Spec, or raises MorelloError. `cost` completes a schedule and returns
    its cost under the model, None without a program. `gains` are the earlier gains of items, as sums of logarithms.
    `options` are the user's, by name. Proposals after `deadline`, of `time.monotonic`, are not used.
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
        """Yield edits until tuning has ended: some take long to make."""
        for edit in edits:
            yield edit
            if self.late:
                return


class ProposerSession(ABC):
    """A proposer's work on one task. With `once`, it answers only the first request, with any number of proposals."""

    once: ClassVar[bool] = False

    @abstractmethod
    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        """Return proposals for each request, at most `implementations` of it. The search ends if all are empty."""

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
