"""Looking ahead: programs from smaller spaces come sooner, and search has less to look at once it knows one.

They are the target's own, at the same cost. What programs cost at least in a smaller space is no bound.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import attrs

from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.search.found import Found
from morello.search.narrow import narrowed, shapes_below
from morello.search.solve.solver import Solver
from morello.search.watch import Full, Late

#: Specs with more shapes below them take long to begin with: a program is looked for in smaller spaces before.
MANY_SHAPES = 2_000
#: So many of these spaces are looked at before search begins, and one where there are few shapes: it then soon comes to
#: better programs by itself.
_BEFORE, _FEW_SHAPES = 2, 500
#: Specs taken apart after which a proof is late, or a first program.
_LATE = 100_000
#: The part of an effort that is left for the whole space, beside parts of 1 for smaller ones: for large Specs it has no
#: more than the bound.
_WHOLE = 0.5
#: How much more than proven a program costs at least for others to be looked for while search goes on.
WIDE = 0.05
#: How close to the cheapest program of a smaller space is close enough.
_CLOSE = 0.01


class Smaller(Protocol):
    """A search of a smaller space, which begins with what is known `ahead`."""

    ahead: Ahead

    @property
    def solved(self) -> int:
        """Specs solved so far."""
        ...

    @property
    def expansions(self) -> int:
        """Specs taken apart so far."""
        ...

    def near(self, spec: Spec, budget: SearchBudget, deadline: float) -> Found | None:
        """Return a program that comes of some effort, None if none does."""
        ...

    def so_far(self, spec: Spec) -> Found | None:
        """Return the best program so far that can be built without a search, None if there is none."""
        ...


class Ahead:
    """The best programs that are known of Specs ahead of search itself: from smaller spaces, or kept from before.

    `smaller` gives a search of a smaller space, and `keep` stores what is found there.
    """

    def __init__(self, target: Target, smaller: Callable[[Target], Smaller], keep: Callable[[Found], None]):
        self._target, self._smaller, self._keep = target, smaller, keep
        self._known: dict[Spec, Found] = {}
        #: Spaces that were not looked at yet, and how many there are.
        self._spaces: list[Target] = []
        self._count = 0
        #: Specs solved in smaller spaces.
        self.solved = 0

    def program(self, spec: Spec) -> Found | None:
        """Return the best program that is known of a Spec, and its bound: 1 where there is none."""
        return self._known.get(spec)

    def costs(self, spec: Spec | None) -> tuple[int, int | None]:
        """Return what a Spec costs at least, and what the best program that is known costs: 0 and None without one."""
        found = self._known.get(spec) if spec else None
        return (found.low, found.cost) if found else (0, None)

    def add(self, found: Found) -> None:
        """Take in another program of a Spec: the cheaper one stays, with the higher bound."""
        before = self._known.get(found.impl.spec, found)
        best = found if found.cost < before.cost else before
        self._known[found.impl.spec] = attrs.evolve(best, low=max(before.low, found.low))

    def inform(self, spec: Spec, solver: Solver, goal: int) -> None:
        """Tell search what is known of its goal."""
        if known := self.program(spec):
            solver.core.assume(goal, known.low, float("inf"))
            solver.core.tighten(goal, known.cost)

    def begin(self, logical: LogicalSpec) -> int:
        """Let all smaller spaces be looked at; return how many of them should be before search begins."""
        self._spaces = narrowed(self._target)
        self._count = len(self._spaces)
        shapes = shapes_below(logical, self._target)
        # Pieces of a Compose, of so many stages from one to another, have tables each, of fewer dimensions.
        pieces = max(1, len(logical.op.stages) ** 2 // 4) if isinstance(logical.op, Compose) else 1
        if pieces * shapes <= MANY_SHAPES:
            return 0
        return _BEFORE if shapes >= _FEW_SHAPES else 1

    @property
    def left(self) -> bool:
        """Return True if there are smaller spaces that were not looked at yet."""
        return bool(self._spaces)

    def until_late(self, budget: SearchBudget) -> SearchBudget:
        """Return as much of an effort as may be made before smaller spaces are looked at: half of it at most."""
        most = _LATE if budget.expansions is None else min(_LATE, math.ceil(budget.expansions / 2))
        return attrs.evolve(budget, expansions=most)

    def first(self, spec: Spec, solver: Solver, goal: int, budget: SearchBudget, deadline: float) -> int:
        """Tell search of a program if it has none before finer bounds are made; return the effort that it took.

        These take long; but of graphs, tables of a smaller space take as long.
        """
        if solver.core.costs(goal)[1] < float("inf") or isinstance(spec.logical.op, Compose):
            return 0
        left = self.look(spec, budget, deadline, 1)
        self.inform(spec, solver, goal)
        return (budget.expansions or 0) - (left.expansions or 0)

    def look_before(
        self, spec: Spec, budget: SearchBudget, deadline: float, spaces: int, begin: Callable[[], object]
    ) -> SearchBudget:
        """Look for programs in the first smaller `spaces` before search begins; return the effort that is left.

        It begins once there is one, as with its tables comes a bound: after more of them, time may be up.
        """
        for most in range(spaces):
            if most:
                with suppress(Full):
                    begin()
            budget = self.look(spec, budget, deadline, most + 1)
        return budget

    def look(self, spec: Spec, budget: SearchBudget, deadline: float, most: int | None = None) -> SearchBudget:
        """Look for programs in smaller spaces, coarse to fine; return the effort that is left.

        Once there is a program, only the first `most` are looked at. Each is given an equal part of the effort
        and the time that are left, and the whole space half of one. What Ctrl-C interrupts leaves its best program.
        """
        while self._spaces and budget.expansions != 0:
            known, now = self.program(spec), time.monotonic()
            if now >= deadline:
                break
            if known and (budget.gap == float("inf") or (most is not None and self._count - len(self._spaces) >= most)):
                break
            parts = len(self._spaces) + _WHOLE
            smaller = self._smaller(self._spaces.pop(0))
            if known:
                smaller.ahead.add(known)
            share = None if budget.expansions is None else math.ceil(budget.expansions / parts)
            near = attrs.evolve(budget, gap=max(budget.gap, _CLOSE), expansions=share)
            try:
                if not known:
                    # One that takes more than its part for tables or search still comes to a program.
                    self._learn(smaller.near(spec, attrs.evolve(self.until_late(budget), gap=float("inf")), deadline))
                self._learn(smaller.near(spec, near.less(smaller.expansions), now + (deadline - now) / parts))
            except Late:
                continue
            except KeyboardInterrupt:
                self._learn(smaller.so_far(spec))
                raise
            finally:
                self.solved += smaller.solved
            budget = budget.less(smaller.expansions)
        return budget

    def _learn(self, found: Found | None) -> None:
        """Take in a program of a smaller space, if there is one."""
        if found:
            unproven = attrs.evolve(found, low=1)
            self.add(unproven)
            self._keep(unproven)
