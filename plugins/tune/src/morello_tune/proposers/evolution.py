"""evolution: mutation and crossover of schedules, of the fastest programs measured so far."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice

import attrs

from morello.errors import Inapplicable
from morello.schedule import Schedule
from morello_tune.edits import StepSite, replace_subtree, sites
from morello_tune.interface import (
    PlanRequest,
    Proposal,
    Proposer,
    ProposerSession,
    TuningCandidate,
    TuningSample,
    TuningTask,
)
from morello_tune.proposers.offline import described

#: The number of parents, the fastest programs so far, and the probability of a crossover of two.
_POPULATION, _CROSSOVER = 24, 0.5
#: Tries until a child is new, and the most edits of a mutation that are drawn from.
_TRIES, _EXAMINED = 12, 200


@attrs.define
class Evolution(ProposerSession):
    """Makes children of measured programs. A mutation is one edit of an item that applies, whatever its phase; a
    crossover takes the outer steps of one program, and from a random step on those of another."""

    task: TuningTask
    _population: list[tuple[float, TuningCandidate]] = attrs.field(init=False)
    _seen: set[Schedule] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._population = [(1.0, self.task.start)]
        self._seen = {self.task.start.schedule}

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        return [() if self.task.late else self._children(request) for request in requests]

    def learn(self, samples: Sequence[TuningSample]) -> None:
        made = [(one.measured.relative, one.measured.candidate) for one in samples if one.measured]
        self._population = sorted([*self._population, *made], key=lambda one: -one[0])[:_POPULATION]

    def _children(self, request: PlanRequest) -> list[Proposal]:
        rng = random.Random(request.seed)
        made: list[Proposal] = []
        for _ in range(_TRIES * request.implementations):
            if len(made) == request.implementations:
                break
            crossed = len(self._population) > 1 and rng.random() < _CROSSOVER
            child = (self._crossed if crossed else self._mutated)(request, rng)
            if child is not None and child.schedule is not None and child.schedule not in self._seen:
                self._seen.add(child.schedule)
                made.append(child)
        return made

    def _mutated(self, request: PlanRequest, rng: random.Random) -> Proposal | None:
        if not request.menu:
            return None
        item = rng.choice(request.menu)
        edits = [*islice(self.task.in_time(item.edits(request.candidate)), _EXAMINED)]
        return _proposal(item.name, rng.choice(edits), request.candidate) if edits else None

    def _crossed(self, request: PlanRequest, rng: random.Random) -> Proposal | None:
        candidate, others = request.candidate, [one for _, one in self._population]
        # A tournament of two: the population is sorted by fitness.
        other = others[min(rng.randrange(len(others)), rng.randrange(len(others)))]
        places = [(site, inner) for site in sites(candidate.impl) if site.path for inner in _alike(site, other)]
        if not places:
            return None
        site, inner = rng.choice(places)
        try:
            return _proposal("crossover", replace_subtree(candidate, site, inner.node), candidate)
        except Inapplicable:
            return None


def _alike(site: StepSite, other: TuningCandidate) -> list[StepSite]:
    """Return the places in another program with the operation of a site."""
    return [one for one in sites(other.impl) if one.path and one.spec.op == site.spec.op and one.node != site.node]


def _proposal(item: str, schedule: Schedule, candidate: TuningCandidate) -> Proposal:
    return Proposal(item=item, plan=described(schedule, candidate), schedule=schedule)


EVOLUTION = Proposer(
    name="evolution", start=Evolution, description="mutation and crossover of the fastest schedules; from --seed"
)
