"""Run the search of one engine: solve nodes, choose their programs, and serve the requests of the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from morello.errors import MorelloError
from morello.rewrites.base import Rewrite
from morello.search.budget import RunningBudget
from morello.search.solve.core import RECALLED, Hyperedge, Suspended
from morello.search.solve.engine import Engine

#: Doubles hold integers exactly up to here.
EXACT = 2.0**53
#: Slacks of an approach that may end before the proof, one after another: cost of a program over its bound.
_SLACKS = (8.0, 1.5, 1.25, 1.125, 1.0625, 1.03125, 1.015625, 1.0078125, 1.0)
#: Seconds between two calls of `often`: after each few turns they would take a tenth of the time.
_OFTEN = 0.005
#: Turns that `ranking` may spend on the steps of one node that were not chosen.
_RANKING_TURNS = 20_000


class Answers(Protocol):
    """Provides answers of earlier searches."""

    def answer(self, engine: Engine, request: Suspended) -> None:
        """Serve a request of the search."""
        ...


class RefinementDue(Exception):
    """The proof takes long: search should go on with bounds by layout."""


class _Enough(Exception):
    """The budget of a search is used up."""


@attrs.frozen
class Alternative:
    """A step, and the cost of the best program that begins with it: a lower bound unless `exact`."""

    step: Rewrite
    cost: int
    exact: bool


class Solver:
    """Solves nodes of one engine.

    While goals are solved, `often` is called every few milliseconds and at the end, and `save`, which may abandon the
    running search. RefinementDue is raised after `refine_after` expansions.
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
        self._last = 0.0

    def solve(self, goals: Sequence[int]) -> None:
        """Solve these nodes. Raises MorelloError for costs past 2^53, Uncovered, and RefinementDue."""
        self.goals = [*goals]
        self._check_costs(goals)
        for goal in goals:
            self._solve(goal)
        self._often(self)
        self._check_costs(goals)

    def approach(self, goal: int, budget: RunningBudget, *, part: bool = False) -> None:
        """Solve a node, or find the best program and bounds within a budget. A `part` of the goal is not reported.

        Raises what `solve` raises.
        """
        self.goals = self.goals if part else [goal]
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
        """Return the number of expansions, those of abstract nodes included."""
        return int(self.core.progress.expansions + self.core.progress.abstract_expansions)

    def choose(self, nodes: Sequence[int], *, settle: bool = True) -> None:
        """Choose for solved nodes and all nodes below (`Core.start_choice`)."""
        for node in nodes:
            self.core.start_choice(node, settle=settle)
            while not self._going_on(self.core.choose):
                pass

    def choose_own(self, node: int) -> None:
        """Choose for a node with a recalled program as for any other."""
        self.core.forget_program(node)
        self.choose([node])

    def ranking(self, node: int, count: int) -> list[Alternative]:
        """Return the chosen step of a solved node and the `count` best others, cheapest first."""
        if self.core.chosen(node).priority == RECALLED:
            self.choose_own(node)
        chosen, (cost, _) = self.core.chosen(node).priority, self.core.costs(node)
        budget, turns = cost, _RANKING_TURNS
        while True:
            best = self._others(node, chosen, budget)[:count]
            if len(best) < count and budget < float("inf"):
                # A larger budget may have more steps.
                budget = float("inf") if budget > 64 * cost else 2 * budget + 1
                continue
            unsettled = next((edge for edge in best if edge.low < edge.high), None)
            if unsettled is None or turns <= 0:
                break
            turns -= self._settle(unsettled, turns)
        found = [(chosen, cost, True), *((edge.priority, edge.low, edge.low >= edge.high) for edge in best)]
        return [Alternative(self.engine.step(node, priority), int(low), exact) for priority, low, exact in found]

    def goal_costs(self) -> tuple[int, int | None]:
        """Return the bounds of the first goal, None for infinity."""
        if not self.goals:
            return 0, None
        low, high = (int(one) if one < float("inf") else None for one in self.core.costs(self.goals[0]))
        return low or 0, high

    def _others(self, node: int, chosen: int, budget: float) -> list[Hyperedge]:
        """Return the steps on a node within a budget except the chosen one, cheapest first."""
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
        """Solve the unsolved part of a step that adds the most, for some turns. Return the turns taken."""
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
                # Saving abandons the running search: time would decide which program is found first.
                if proves:
                    self._save(self)
                if enough():
                    raise _Enough
                self._check_bounds()

    def _check_bounds(self) -> None:
        """Raise RefinementDue if bounds by layout are due."""
        if self.engine.refines and self.expansions >= self._refine_after:
            raise RefinementDue

    def _solved(self, node: int, slack: float) -> bool:
        low, high = self.core.costs(node)
        return low >= high or high <= slack * low

    def _going_on(self, work: Callable[[], bool]) -> bool:
        """Go on with some work; return whether it is finished."""
        try:
            done = work()
        except Suspended as request:
            self._answer(request)
            return False
        if not done and time.monotonic() - self._last >= _OFTEN:
            self._often(self)
            self._last = time.monotonic()
        return done

    def _answer(self, request: Suspended) -> None:
        if request.what == "steps":
            self.engine.generic.expand(self.engine.directory, self.core, self.engine.limit_codes, request.node)
        else:
            assert self._answers, "only an engine that recalls has such requests"
            self._answers.answer(self.engine, request)

    def _check_costs(self, goals: Sequence[int]) -> None:
        if any(EXACT <= self.core.costs(goal)[0] < float("inf") for goal in goals):
            raise MorelloError("costs past 2^53 cannot be counted exactly", "make the sizes smaller")


def _do_nothing(solver: Solver) -> None: ...
