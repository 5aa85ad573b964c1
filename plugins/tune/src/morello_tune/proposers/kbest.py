"""kbest: the exact k cheapest programs under the model, each with C of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

import attrs

from morello.codegen.forms import program_key
from morello.errors import MorelloError
from morello.schedule import schedule_of
from morello_tune.interface import PlanRequest, Proposal, Proposer, ProposerSession, TuningTask

#: Programs without `--top`, and programs examined at most for each one.
TOP, _EXAMINED = 20, 500


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
