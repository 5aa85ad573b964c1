"""The data that plugins of `morello tune` use, and their hooks: menu items, descriptions of targets, and proposers.

An entry point of the group `morello_tune` names a `TuningPlugin`, or a module with hooks marked by `hookimpl`. Only
morello_tune imports it.
"""

from __future__ import annotations

import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Literal, TypeAlias

import attrs
import pluggy

from morello.api.kernel import Kernel
from morello.errors import PluginError
from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.discovery import load
from morello.plugins.registry import installed
from morello.run.paired import Paired
from morello.schedule import Schedule, schedule_of, schedule_text

#: The entry point group, and the name under which hooks are marked.
GROUP = "morello_tune"
hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)
#: When an item is likely to pay: while loops are shaped, while data is placed, or while kernels are polished.
Phase: TypeAlias = Literal["early", "middle", "late"]
PHASES: tuple[Phase, ...] = ("early", "middle", "late")
#: The reasons why a proposal does not enter the beam, and that it does.
Verdict: TypeAlias = Literal["accepted", "slower", "noise", "duplicate", "refused", "no program", "not built", "wrong"]


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
    """A program with its value, in seconds per call unless the target has a metric, and the relative spread of that.

    `relative` is the speedup over the start, the product of gains along `way`: the items, each with its gain.
    """

    built: BuiltProgram
    candidate: TuningCandidate
    value: float
    spread: float
    relative: float = 1.0
    way: tuple[tuple[str, float], ...] = ()


@attrs.frozen(kw_only=True)
class TuningSample:
    """An implementation and its verdict. `paired` are its times against its parent's, if it was measured."""

    iteration: int
    parent: MeasuredProgram
    proposal: Proposal
    verdict: Verdict
    reason: str = ""
    measured: MeasuredProgram | None = None
    paired: Paired | None = None

    @property
    def accepted(self) -> bool:
        """Return True if the program entered the beam."""
        return self.verdict == "accepted"

    @property
    def gain(self) -> float | None:
        """Return the speedup over the parent, None if it was not measured."""
        return self.paired and self.paired.gain

    @property
    def facts(self) -> Mapping[str, object]:
        """Return the sample as a trace stores it."""
        proposal, measured, paired = self.proposal, self.measured, self.paired
        feedback = measured and measured.candidate.feedback
        edit = proposal.text if proposal.schedule is None else schedule_text(proposal.schedule)
        return {
            "iteration": self.iteration,
            "parent": self.parent.built.key,
            "item": proposal.item,
            "plan": proposal.plan,
            "edit": edit,
            "verdict": self.verdict,
            "reason": self.reason,
            "key": measured and measured.built.key,
            "schedule": measured and measured.candidate.text,
            **{name: measured and getattr(measured, name) for name in ("value", "spread", "relative")},
            "paired": paired and attrs.astuple(paired),
            "feedback": feedback and attrs.asdict(feedback),
        }


@attrs.frozen(kw_only=True)
class TuningTask:
    """A tuned Spec, as a session of a proposer gets it.

    `read` parses a schedule that applies to the Spec, or raises MorelloError. `gains` are the earlier gains of items,
    as sums of logarithms. `options` are the user's, by name. Proposals after `deadline`, of `time.monotonic`, are not
    used.
    """

    name: str
    start: TuningCandidate
    info: TuningInfo
    read: Callable[[str], Schedule]
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

    def learn(self, samples: Sequence[TuningSample]) -> None:
        """Use the samples of an iteration: the proposals with their verdicts and gains."""
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


@hookspec
def morello_optimization_menu(target: str) -> Iterable[MenuItem] | None:
    """Return items for the menu of the target of this name, besides those of all targets."""


@hookspec
def morello_tuning(target: str) -> TuningInfo | None:
    """Return the description of the target of this name for language models."""


@hookspec
def morello_proposers(target: str) -> Iterable[Proposer] | None:
    """Return proposers for the target of this name."""


@attrs.frozen(kw_only=True, eq=False)
class TuningPlugin:
    """All that a plugin adds for one target, as a single object that implements every hook."""

    target: str
    menu: Sequence[MenuItem] = ()
    info: TuningInfo | None = None
    proposers: Sequence[Proposer] = ()

    @hookimpl
    def morello_optimization_menu(self, target: str) -> Sequence[MenuItem]:
        return self.menu if target == self.target else ()

    @hookimpl
    def morello_tuning(self, target: str) -> TuningInfo | None:
        return self.info if target == self.target else None

    @hookimpl
    def morello_proposers(self, target: str) -> Sequence[Proposer]:
        return self.proposers if target == self.target else ()


@cache
def installed_plugins() -> pluggy.PluginManager:
    """Return the plugins of all installed distributions."""
    return load(GROUP, sys.modules[__name__])


def tuning_info(target: str, plugins: pluggy.PluginManager | None = None) -> TuningInfo:
    """Return the description of a target by plugins (default: installed), an empty one without a plugin.

    Raises PluginError if several plugins describe it, or one returns something else.
    """
    hook = (plugins or installed_plugins()).hook.morello_tuning
    found = next(filter(None, (hook(target=name) for name in installed().lineage(target))), [])
    if len(found) > 1 or not all(isinstance(one, TuningInfo) for one in found):
        rule = f"morello_tuning returns one morello_tune.TuningInfo for target {target}, not {found!r}"
        raise PluginError(rule, "uninstall or correct one of the plugins")
    return found[0] if found else TuningInfo()
