"""Solving nodes of one engine, and choosing their programs: what Python does meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from morello.errors import MorelloError
from morello.search.budget import RunningBudget
from morello.search.solve.core import Hyperedge, Suspended
from morello.search.solve.engine import Engine

#: Costs are kept as doubles, which hold integers exactly up to here.
EXACT = 2.0**53
#: Where search may end before the proof: how many times its bound a program may cost, at first, then, and so on.
_SLACKS = (8.0, 1.5, 1.25, 1.125, 1.0625, 1.03125, 1.015625, 1.0078125, 1.0)
#: Seconds between two calls of `often`: to tell of each few turns takes a tenth of search.
_OFTEN = 0.005
#: Turns that may be spent on what the steps of one node that were not chosen cost.
_RANKING_TURNS = 20_000


class Answers(Protocol):
    """Knows answers from earlier."""

    def answer(self, engine: Engine, request: Suspended) -> None:
        """Give the engine what it asks for."""
        ...


class RefinementDue(Exception):
    """The proof is not soon had: search should know layouts, too."""


class _Enough(Exception):
    """The effort that a search may take has been made."""


@attrs.frozen
class Ranked:
    """A step and what the best program that begins with it costs: at least that unless `exact`."""

    priority: int
    cost: float
    exact: bool


class Solver:
    """Solves nodes of one engine.

    While goals are solved, some milliseconds apart, `often` is called, and `save`, which may let go of what was begun.
    `often` is also called when they are. RefinementDue is raised after `refine_after`
    expansions.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        answers: Answers | None = None,
        often: Callable[[Solver], None] | None = None,
        save: Callable[[Solver], None] | None = None,
        refine_after: float = float("inf"),
    ):
        self.engine, self.core = engine, engine.core
        self.goals: list[int] = []
        self._answers = answers
        self._often, self._save = often or _do_nothing, save or _do_nothing
        self._refine_after = refine_after
        self._told = 0.0

    def solve(self, goals: Sequence[int]) -> None:
        """Solve these nodes. Raises MorelloError for costs past 2^53, Uncovered, and RefinementDue."""
        self.goals = [*goals]
        self._check_costs(goals)
        for goal in goals:
            self._solve(goal)
        self._often(self)
        self._check_costs(goals)

    def approach(self, goal: int, budget: RunningBudget) -> None:
        """Solve a node, or find the best program and bounds within a budget.

        Raises what `solve` raises.
        """
        self.goals = [goal]
        self._check_costs([goal])
        before = self.expansions

        def enough() -> bool:
            low, high = self.core.costs(goal)
            used = budget.expansions is not None and self.expansions - before >= budget.expansions
            close = high < float("inf") and high <= (1 + budget.gap) * low
            return used or close or budget.late or budget.memory_reached

        try:
            for slack in [1.0] if self.core.exhaustive or budget.proves else _SLACKS:
                self._solve(goal, slack, enough, proves=budget.proves)
        except _Enough:
            self.core.release()
        self._often(self)
        self._check_costs([goal])

    @property
    def expansions(self) -> int:
        """Return how many Specs were taken apart, abstract ones among them."""
        return int(self.core.progress.expansions + self.core.progress.abstract_expansions)

    def choose(self, nodes: Sequence[int], *, settle: bool = True) -> None:
        """Choose for solved nodes and for all nodes of the programs below them (`Core.start_choice`)."""
        for node in nodes:
            self.core.start_choice(node, settle=settle)
            while not self._going_on(self.core.choose):
                pass

    def choose_own(self, node: int) -> None:
        """Choose for a node whose program is known from earlier as for any other."""
        self.core.forget_program(node)
        self.choose([node])

    def ranking(self, node: int, chosen: int, count: int) -> list[Ranked]:
        """Return the chosen step of a solved node and the `count` best others, cheapest first.

        Costs that are not exact are lower bounds, of steps that are not among the best or have no program at all.
        """
        cost, _ = self.core.costs(node)
        budget, turns = cost, _RANKING_TURNS
        while True:
            best = self._others(node, chosen, budget)[:count]
            if len(best) < count and budget < float("inf"):
                # So little is within this budget that all may be.
                budget = float("inf") if budget > 64 * cost else 2 * budget + 1
                continue
            unsettled = next((edge for edge in best if edge.low < edge.high), None)
            if unsettled is None or turns <= 0:
                break
            turns -= self._settle(unsettled, turns)
        return [Ranked(chosen, cost, True), *(Ranked(edge.priority, edge.low, edge.low >= edge.high) for edge in best)]

    def goal_costs(self) -> tuple[int, int | None]:
        """Return the costs between which that of the first goal must be."""
        if not self.goals:
            return 0, None
        low, high = (int(one) if one < float("inf") else None for one in self.core.costs(self.goals[0]))
        return low or 0, high

    def _others(self, node: int, chosen: int, budget: float) -> list[Hyperedge]:
        """Return steps on a node within a budget, but the chosen one, cheapest first."""
        while True:
            try:
                edges = self.core.hyperedges(node, budget)
                break
            except Suspended as request:
                self._answer(request)
        found: dict[int, Hyperedge] = {}
        for edge in sorted(edges, key=lambda edge: (edge.low, edge.priority)):
            if edge.priority != chosen:
                found.setdefault(edge.priority, edge)
        return [*found.values()]

    def _settle(self, edge: Hyperedge, turns: int) -> int:
        """Solve the part of a step of which the least is known, for some turns. Return how many it took."""
        before = self.core.progress.visits
        costs = [self.core.costs(part) for part in edge.parts]
        parts = zip(edge.parts, costs, edge.times, strict=True)
        _, part = max((low * times, part) for part, (low, high), times in parts if low < high)
        self.core.start(part, float("inf"))
        while self.core.progress.visits - before < turns and not self._going_on(self.core.solve):
            pass
        return max(1, self.core.progress.visits - before)

    def _solve(
        self, node: int, slack: float = 1.0, enough: Callable[[], bool] = lambda: False, *, proves: bool = True
    ) -> None:
        while not self._solved(node, slack):
            self._check_bounds()
            self.core.start(node, float("inf"), slack)
            while not self._going_on(self.core.solve):
                # To save takes search off its way, which would let time decide what it finds first.
                if proves:
                    self._save(self)
                if enough():
                    raise _Enough
                self._check_bounds()

    def _check_bounds(self) -> None:
        """Raise RefinementDue if finer bounds should be made."""
        if self.engine.refines and self.expansions >= self._refine_after:
            raise RefinementDue

    def _solved(self, node: int, slack: float) -> bool:
        low, high = self.core.costs(node)
        return low >= high or high <= slack * low

    def _going_on(self, work: Callable[[], bool]) -> bool:
        """Go on with some work; return whether it is done."""
        try:
            done = work()
        except Suspended as request:
            self._answer(request)
            return False
        if not done and time.monotonic() - self._told >= _OFTEN:
            self._often(self)
            self._told = time.monotonic()
        return done

    def _answer(self, request: Suspended) -> None:
        if request.what == "steps":
            self.engine.generic.expand(self.engine.directory, self.core, self.engine.packed_limits, request.node)
        else:
            assert self._answers, "only an engine that recalls asks"
            self._answers.answer(self.engine, request)

    def _check_costs(self, goals: Sequence[int]) -> None:
        if any(EXACT <= self.core.costs(goal)[0] < float("inf") for goal in goals):
            raise MorelloError("costs past 2^53 cannot be counted exactly", "make the sizes smaller")


def _do_nothing(solver: Solver) -> None: ...
