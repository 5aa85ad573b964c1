"""Proposers without a language model, by the cost model.

offline chooses items by phase and earlier gains, and their parameters by cost; kbest proposes the exact k cheapest
programs under the model, each with C of its own.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import attrs

from morello.codegen.forms import program_key
from morello.errors import MorelloError
from morello.ir.impl import Impl, Leaf, cost_and_peak
from morello.schedule import Position, Schedule, apply, schedule_of, schedule_text
from morello_tune.interface import (
    PHASES,
    MenuItem,
    PlanRequest,
    Proposal,
    Proposer,
    ProposerSession,
    TuningCandidate,
    TuningSample,
    TuningTask,
)

#: Edits drawn for each requested implementation (the cheapest are proposed), and the most edits of an item.
_DRAWN, _EDITS = 4, 400
#: Programs of kbest without `--top`, and programs examined at most for each one.
TOP, _EXAMINED = 20, 500
#: The ratio of an item's weights in its phase and in the farthest one.
_PHASE = 4.0
#: The weight of an item's past, and the number of proposals without gain that is assumed before the first.
_PAST, _DOUBT = 25.0, 2


@attrs.define
class Offline(ProposerSession):
    """Chooses plans at random, with weights; the same seed and times give the same proposals.

    For each item, it counts proposals, and adds up the logarithms of accepted gains.
    """

    task: TuningTask
    _count: Counter[str] = attrs.field(factory=Counter[str], init=False)
    _gains: dict[str, float] = attrs.field(factory=lambda: defaultdict[str, float](float), init=False)
    _edits: dict[tuple[str, str], list[Schedule]] = attrs.field(factory=dict[tuple[str, str], "list[Schedule]"])

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        return [() if self.task.late else self._plan(request) for request in requests]

    def learn(self, samples: Sequence[TuningSample]) -> None:
        if not self.task.options.get("feedback", True):
            return
        for one in samples:
            self._count[one.proposal.item] += 1
            self._gains[one.proposal.item] += math.log(one.gain) if one.accepted and one.gain else 0.0

    def _plan(self, request: PlanRequest) -> Sequence[Proposal]:
        rng, menu = random.Random(request.seed), [*request.menu]
        while menu:
            item = rng.choices(menu, [self._weight(one, request) for one in menu])[0]
            edits = self._left(item, request.candidate)
            if edits:
                return [*self._implemented(item, edits, request, rng)]
            menu.remove(item)
        return ()

    def _weight(self, item: MenuItem, request: PlanRequest) -> float:
        """Return the weight of an item in the draw, which increases in its phase and with its gains."""
        progress = (request.iteration - 1) / max(1, request.iterations - 1)
        distance = abs(progress - PHASES.index(item.phase) / (len(PHASES) - 1))
        count = self._count[item.name]
        gain = self._gains[item.name] / (count + _DOUBT) + self.task.gains.get(item.name, 0.0)
        tried = 1 / math.sqrt(1 + count / 8)
        return _PHASE**-distance * math.exp(min(3.0, _PAST * gain)) * tried

    def _left(self, item: MenuItem, candidate: TuningCandidate) -> list[Schedule]:
        """Return the edits of an item on a candidate that were not proposed yet."""
        key = item.name, candidate.text
        if key not in self._edits:
            self._edits[key] = [*islice(self.task.in_time(item.edits(candidate)), _EDITS)]
        return self._edits[key]

    def _implemented(
        self, item: MenuItem, edits: list[Schedule], request: PlanRequest, rng: random.Random
    ) -> Iterator[Proposal]:
        drawn = rng.sample(range(len(edits)), min(len(edits), _DRAWN * request.implementations))
        ranked = sorted((estimate(edits[place], request.candidate), place) for place in drawn)
        chosen = [place for _, place in ranked[: request.implementations]]
        for place in chosen:
            yield Proposal(item=item.name, plan=described(edits[place], request.candidate), schedule=edits[place])
        for place in sorted(chosen, reverse=True):
            del edits[place]


def estimate(schedule: Schedule, candidate: TuningCandidate) -> float:
    """Return an estimated cost of a schedule: Specs left to search cost as much per point as the candidate."""
    impl = apply(Position(Leaf(candidate.spec)), schedule, candidate.target, Leaf).impl
    point = cost_and_peak(candidate.impl).cost / max(1, int(candidate.spec.op.volume(candidate.spec.shape)))
    return _estimate(impl, point)


def _estimate(impl: Impl, point: float) -> float:
    if isinstance(impl, Leaf):
        # Fills and moves cost little.
        logical = impl.spec.logical
        small = logical.op.moves_data or logical.op.initializes
        return 0.0 if small else point * int(logical.op.volume(logical.shape))
    parts = zip(impl.expansion.parts, impl.children, strict=True)
    return int(impl.expansion.cost) + sum(int(part.times) * _estimate(child, point) for part, child in parts)


def described(schedule: Schedule, candidate: TuningCandidate) -> str:
    """Return the lines of a schedule that a candidate's does not have, then those that it lacks, in words."""
    before, after = (Counter(map(str.strip, text.splitlines())) for text in (candidate.text, schedule_text(schedule)))
    words: list[str] = []
    for name, lines in (("with", after - before), ("without", before - after)):
        del lines["}"]
        words += [f"{name} {'; '.join(lines.elements())}"] if lines else []
    return ", ".join(words) or "the same steps in another order"


OFFLINE = Proposer(
    name="offline",
    start=Offline,
    description="items by phase and earlier gains, their parameters by cost; from --seed",
)


@attrs.define
class KBest(ProposerSession):
    """Proposes all programs at the first request, cheapest first: they need no beam."""

    once: ClassVar[bool] = True
    task: TuningTask
    _done: bool = attrs.field(default=False, init=False)
    _examined: int = attrs.field(default=0, init=False)

    def propose(self, requests: Sequence[PlanRequest]) -> list[Sequence[Proposal]]:
        made = [] if self._done else self._cheapest()
        self._done = True
        return [made, *([()] * (len(requests) - 1))]

    def facts(self) -> Mapping[str, Any]:
        return {"programs examined": self._examined}

    def _cheapest(self) -> list[Proposal]:
        # Imported late: importing search takes long.
        from morello.search.kbest import cheapest
        from morello.search.session import SearchSession

        start, top = self.task.start, int(self.task.options.get("top") or TOP)
        search = SearchSession(start.target)
        seen: dict[str, Proposal] = {}
        for one in islice(cheapest(search, start.spec, printed=True), _EXAMINED * top):
            self._examined += 1
            key = program_key(one.impl, start.target)
            if key not in seen:
                plan = f"number {len(seen) + 1} of the model: cost {one.cost:,}"
                seen[key] = Proposal(item="kbest", plan=plan, schedule=schedule_of(one.impl))
            if len(seen) == top or self.task.late:
                break
        if not seen:
            raise MorelloError(f"{self.task.name} has no program", "raise its memory limits")
        return [*seen.values()]


KBEST = Proposer(
    name="kbest",
    start=KBest,
    description=f"the cheapest programs under the model, with C of their own: --top N of them ({TOP} by default)",
)
