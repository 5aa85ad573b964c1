"""Proposers plan the edits that `morello tune` measures; see docs/tuning.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pluggy

from morello.errors import MorelloError, UnknownName, suggestion
from morello.frontend.diagnostics import quoted
from morello.plugins.discovery import contributions
from morello.plugins.registry import installed
from morello_tune.interface import (
    PlanRequest,
    Proposal,
    Proposer,
    ProposerSession,
    TuningSample,
    TuningTask,
    installed_plugins,
)
from morello_tune.proposers.command import COMMAND
from morello_tune.proposers.evolution import EVOLUTION
from morello_tune.proposers.offline import KBEST, OFFLINE
from morello_tune.proposers.openai import openai

#: Those that every target has.
STANDARD = (OFFLINE, EVOLUTION, KBEST, openai(), COMMAND)
_ENSEMBLE, _MODEL = "ensemble:", "openai:"


def proposers_for(target: str, plugins: pluggy.PluginManager | None = None) -> Mapping[str, Proposer]:
    """Return the proposers for a target by name: the standard ones, then those of plugins (default: installed).

    Raises PluginError if a proposer of a plugin is not a Proposer, or its name is taken.
    """
    own = {one.name: one for one in STANDARD}
    lineage, manager = installed().lineage(target), plugins or installed_plugins()
    return {**own, **contributions(manager, "morello_proposers", lineage, Proposer, own)}


def proposer(name: str | Proposer, target: str) -> Proposer:
    """Return the proposer of a name, `ensemble:A,B` for several. Raises MorelloError for an unknown one."""
    if isinstance(name, Proposer):
        return name
    known = {**proposers_for(target)}
    names = name.removeprefix(_ENSEMBLE).split(",") if name.startswith(_ENSEMBLE) else [name]
    for one in names:
        if one.startswith(_MODEL) and (model := one.removeprefix(_MODEL)):
            known[one] = openai(model)
        if one not in known:
            hint = suggestion(one, known, f"there are {', '.join(known)}, and {_ENSEMBLE}A,B for several")
            raise UnknownName(f"{target} has no proposer {quoted(one)}", hint)
    if len({*names}) < len(names):
        raise MorelloError(f"{quoted(name)} names a proposer twice", "name each once")
    if name in known:
        return known[name]

    def start(task: TuningTask) -> ProposerSession:
        return Ensemble({one: known[one].start(task) for one in names})

    return Proposer(name=name, start=start, description=f"in turns {','.join(names)}")


@attrs.define
class Ensemble(ProposerSession):
    """Divides requests between sessions in turns ([Hong2025] §3.4); every session gets all samples."""

    sessions: Mapping[str, ProposerSession]
    _next: int = attrs.field(default=0, init=False)

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        names = [*self.sessions]
        whose = [names[(self._next + number) % len(names)] for number in range(len(requests))]
        self._next += len(requests)
        made = {
            name: iter(session.propose([one for one, owner in zip(requests, whose, strict=True) if owner == name]))
            for name, session in self.sessions.items()
        }
        return [next(made[name]) for name in whose]

    def learn(self, samples: Sequence[TuningSample]) -> None:
        for session in self.sessions.values():
            session.learn(samples)

    def facts(self) -> Mapping[str, Any]:
        return {name: facts for name, session in self.sessions.items() if (facts := session.facts())}
