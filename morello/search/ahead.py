"""Looking ahead: programs from smaller spaces come sooner, and search has less to look at once it knows one.

They are the target's own, at the same cost. What programs cost at least in a smaller space is no bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
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
#: With fewer shapes search itself soon comes to better programs than the first.
_FEW_SHAPES = 1_000
#: Specs taken apart after which a first program is late.
_LATE = 100_000
#: How much of an effort, and of a time, is for better programs in a smaller space at most, once there is one. The rest
#: is for a bound, as what they cost at least there is none.
_BETTER, _BETTER_TIME = Fraction(4, 5), Fraction(1, 2)
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

    def shapes(self, logical: LogicalSpec) -> int:
        """Return how many shapes there are below a Spec whose tables and bounds take long, 0 for others."""
        shapes = shapes_below(logical, self._target)
        # Pieces of a Compose, of so many stages from one to another, have tables each, of fewer dimensions.
        pieces = max(1, len(logical.op.stages) ** 2 // 4) if isinstance(logical.op, Compose) else 1
        return shapes if pieces * shapes > MANY_SHAPES else 0

    def until_late(self, effort: Effort) -> Effort:
        """Return as much of an effort as may be made for a first program before it is looked for in smaller spaces."""
        most = _LATE if effort.expansions is None else min(_LATE, effort.expansions)
        return attrs.evolve(effort, gap=float("inf"), expansions=most)

    def look(self, spec: Spec, effort: Effort, deadline: float, shapes: int = 0) -> Effort:
        """Look for programs in smaller spaces; return the effort that is left.

        Once there is one, part of it is for better ones. What Ctrl-C interrupts leaves its best program so far.
        """
        for space in narrowed(self._target):
            known = self.program(spec)
            # Where set-up takes little, search itself soon comes to better ones.
            if effort.expansions == 0 or (known and 0 < shapes < _FEW_SHAPES):
                break
            smaller = self._smaller(space)
            if known:
                smaller.ahead.add(known)
            try:
                near = attrs.evolve(effort, gap=max(effort.gap, _CLOSE))
                if not known and effort.expansions is None:
                    self._learn(smaller.near(spec, attrs.evolve(near, gap=float("inf")), deadline))
                    known = self.program(spec)
                more = _for_better(near, deadline) if known else (near, deadline)
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


def _for_better(effort: Effort, deadline: float) -> tuple[Effort, float]:
    """Return what of an effort that is left, and of its time, is for better programs of a smaller space."""
    now = time.monotonic()
    most = None if effort.expansions is None else int(_BETTER * effort.expansions)
    return attrs.evolve(effort, expansions=most), now + (deadline - now) * float(_BETTER_TIME)
