"""ensemble: requests divided between several proposers, in turns ([Hong2025] §3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from morello_tune.interface import PlanRequest, Proposal, ProposalOutcome, Proposer, ProposerSession, TuningTask


@attrs.define
class Ensemble(ProposerSession):
    """Gives requests to sessions in turns; every session gets all outcomes."""

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

    def learn(self, outcomes: Sequence[ProposalOutcome]) -> None:
        for session in self.sessions.values():
            session.learn(outcomes)

    def facts(self) -> Mapping[str, Any]:
        return {name: facts for name, session in self.sessions.items() if (facts := session.facts())}


def ensemble(proposers: Sequence[Proposer]) -> Proposer:
    """Return the proposer that divides requests between others."""

    def start(task: TuningTask) -> ProposerSession:
        return Ensemble({one.name: one.start(task) for one in proposers})

    names = ",".join(one.name for one in proposers)
    return Proposer(name=f"ensemble:{names}", start=start, description=f"in turns {names}")
