"""Looking ahead: programs from smaller spaces come sooner, and search has less to look at once it knows one.

They are the target's own, at the same cost. What programs cost at least in a smaller space is no bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import attrs

from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.search.effort import Effort
from morello.search.found import Found
from morello.search.narrow import narrowed, shapes_below
from morello.search.solve.solver import Solver
from morello.search.watch import Late

#: Specs with more shapes below them take long to begin with: a program is looked for in a smaller space before.
MANY_SHAPES = 2_000
#: What tables and bounds of a shape take, in Specs taken apart.
_PER_SHAPE = 100
#: Specs taken apart after which a first program is late.
_LATE = 100_000
#: What tables and bounds take, in Specs taken apart, where no more than a first program is looked for before.
_SOON = 100_000
#: Specs taken apart for better programs in a smaller space, at most: what they cost at least is no bound here.
_BETTER = 400_000
#: How close to the cheapest program of the smaller space is close enough.
_CLOSE = 0.05


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

    def near(self, spec: Spec, effort: Effort, deadline: float) -> Found | None:
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
            solver.core.believe(goal, known.low, float("inf"))
            solver.core.know(goal, known.cost)

    def setup(self, logical: LogicalSpec) -> int:
        """Return what tables and bounds of a Spec take, in Specs taken apart, 0 where that is little."""
        shapes = shapes_below(logical, self._target)
        # Pieces of a Compose, of so many stages from one to another, have tables each, of fewer dimensions.
        pieces = max(1, len(logical.op.stages) ** 2 // 4) if isinstance(logical.op, Compose) else 1
        return _PER_SHAPE * shapes if pieces * shapes > MANY_SHAPES else 0

    def until_late(self, effort: Effort) -> Effort:
        """Return as much of an effort as may be made for a first program before it is looked for in smaller spaces."""
        most = _LATE if effort.expansions is None else min(_LATE, effort.expansions)
        return attrs.evolve(effort, gap=float("inf"), expansions=most)

    def look(self, spec: Spec, effort: Effort, deadline: float, setup: int = 0) -> Effort:
        """Look for programs in smaller spaces; return the effort that is left.

        Once there is one, `_for_better` is for better ones. What Ctrl-C interrupts leaves its best program so far.
        """
        for space in narrowed(self._target):
            known = self.program(spec)
            # Where set-up takes little, search itself soon comes to better ones.
            if effort.expansions == 0 or (known and 0 < setup < _SOON):
                break
            smaller = self._smaller(space)
            if known:
                smaller.ahead.add(known)
            try:
                near = attrs.evolve(effort, gap=max(effort.gap, _CLOSE))
                if not known and effort.expansions is None:
                    self._learn(smaller.near(spec, attrs.evolve(near, gap=float("inf")), deadline))
                    known = self.program(spec)
                more = _for_better(near, deadline, setup) if known else (near, deadline)
                self._learn(smaller.near(spec, *more))
            except Late:
                break
            except KeyboardInterrupt:
                self._learn(smaller.so_far(spec))
                raise
            finally:
                self.solved += smaller.solved
            effort = effort.less(smaller.expansions)
        return effort

    def _learn(self, found: Found | None) -> None:
        """Take in a program of a smaller space, if there is one."""
        if found:
            unproven = attrs.evolve(found, low=1)
            self.add(unproven)
            self._keep(unproven)


def _for_better(effort: Effort, deadline: float, setup: int) -> tuple[Effort, float]:
    """Return what of an effort and its time is for better programs of a smaller space, once there is one.

    It is a third of the time, or half of an effort in numbers, so that there is a bound, too: tables and bounds take
    long there. It is all of an effort with which search itself would not get past `setup`.
    """
    if effort.expansions is None:
        now = time.monotonic()
        return attrs.evolve(effort, expansions=_BETTER), now + (deadline - now) / 3
    if effort.expansions > setup:
        effort = attrs.evolve(effort, expansions=min(_BETTER, effort.expansions // 2))
    return effort, deadline
