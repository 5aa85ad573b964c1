"""Incumbents: the best programs of Specs so far, from earlier searches or from restricted spaces, coarse to fine.

A restricted space is the target with fewer tile sizes and layouts. Its programs are the target's own, at the same
costs, so they prune the search of the whole space. Its lower bounds do not hold there and are dropped.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import attrs

from morello.ir.dtypes import DType
from morello.ir.impl import Impl, Node, cost_and_peak
from morello.ir.layout import Layout
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import layout_name, tried_sizes
from morello.search.budget import DeadlineReached, MemoryLimitReached, RunningBudget, SearchBudget
from morello.search.solve.core import Core
from morello.search.solve.solver import RefinementDue, Solver

#: A Spec with more reachable shapes gets an incumbent from restricted spaces before its tables are built: that is slow.
MANY_SHAPES = 2_000
#: The number of restricted spaces searched before the whole one, from `_FEW_SHAPES` shapes on; with fewer shapes it is
#: 1, as the whole space soon gives better programs.
_BEFORE, _FEW_SHAPES = 2, 500
#: Expansions after which a proof, or a first program, is late.
_LATE = 100_000
#: The share of the budget left to the whole space, relative to 1 for each restricted one.
_WHOLE = 0.5
#: The optimality gap above which restricted spaces are searched although search is under way.
_WIDE = 0.05
#: The least share of a program's cost of a part that is searched for by itself, the most expansions for it, and the
#: part of the budget for all of them.
_WORTH, _PART, _PARTS = 0.01, 8_192, 0.25
#: The optimality gap at which the search of a restricted space ends.
_CLOSE = 0.01
#: The least seconds for a first program, also beyond the deadline: without tables, it may cost ten times as much.
_FIRST = 6.0
#: With a deadline, the estimated times of tables and bounds as multiples of those of the restricted space before: of
#: the next one with some search, and of the whole space after the finest and, with time for most else, the coarsest.
_TABLES, _WHOLE_TABLES, _SLOWER = 2.0, 2.5, 16.0
#: Per restricted space, the multiple of bits of its powers of two for tile sizes: 1 and 4096, then 1, 16, 256...
_SIZE_BITS = (12, 4, 3, 2)
#: The number of named layouts without strips in restricted spaces. Layouts that kernels declare come on top.
_PLAIN = 3


@attrs.frozen
class Incumbent:
    """The best program found for a Spec, its cost, and the proven lower bound on the costs of all programs.

    `expansions` is the budget of expansions that was used up for it, 1 if something else ended the search, 0 before the
    search ends.
    """

    impl: Impl
    cost: int
    low: int
    expansions: int = 0

    @property
    def gap(self) -> float:
        """Return the optimality gap: the cost is at most this fraction above the optimum."""
        return self.cost / self.low - 1 if self.cost > self.low else 0.0

    def meets(self, budget: SearchBudget) -> bool:
        """Return whether an earlier search with this budget cannot have found better. Its time is not recorded.

        An optimal cost without a reconstructed program does not count.
        """
        effort = 1 if budget.accepts_stored else budget.expansions
        tried = effort is not None and self.expansions >= effort
        return self.low < self.cost and (tried or self.cost <= (1 + budget.gap) * self.low)


class RestrictedSession(Protocol):
    """A search of a restricted space (`SearchSession`)."""

    incumbents: Incumbents

    @property
    def solved(self) -> int: ...
    @property
    def expansions(self) -> int: ...
    @property
    def set_up(self) -> float: ...
    def improve(self, spec: Spec, budget: RunningBudget) -> Incumbent | None: ...
    def incumbent(self, spec: Spec) -> Incumbent | None: ...
    def reset(self) -> None: ...


class Incumbents:
    """The best known program of each Spec.

    `restrict` returns a search of a restricted space; `store` is called with each incumbent found there.
    """

    def __init__(
        self,
        target: Target,
        restrict: Callable[[Target], RestrictedSession],
        store: Callable[[Incumbent], None],
    ):
        self._target, self._restrict, self._store = target, restrict, store
        self._known: dict[Spec, Incumbent] = {}
        #: Restricted spaces not yet searched, and the number of all.
        self._spaces: list[Target] = []
        self._count = 0
        #: Specs solved in restricted spaces, and expansions there while a refinement was due.
        self.solved = self.expansions = 0
        #: The seconds that tables and bounds of the last restricted space took.
        self._set_up = 0.0

    def get(self, spec: Spec | None) -> Incumbent | None:
        """Return the best known program of a Spec, or None."""
        return self._known.get(spec) if spec else None

    def costs(self, spec: Spec | None) -> tuple[int, int | None]:
        """Return the lower bound and the cost of a Spec's incumbent; 0 and None without one."""
        known = self.get(spec)
        return (known.low, known.cost) if known else (0, None)

    def add(self, found: Incumbent) -> None:
        """Keep the cheaper of a Spec's incumbent and another program, with the higher bound."""
        before = self._known.get(found.impl.spec, found)
        best = found if found.cost < before.cost else before
        self._known[found.impl.spec] = attrs.evolve(best, low=max(before.low, found.low))

    def approach(
        self,
        spec: Spec,
        solver: Solver,
        goal: int,
        budget: RunningBudget,
        found: Callable[[Spec], Incumbent | None] | None,
    ) -> None:
        """Search a node within a budget; if the proof is late, search restricted spaces for incumbents, too.

        `found` returns the best program so far; if it is None, restricted spaces are not searched.
        """
        self._warm_start(spec, solver.core, goal)
        if found and self._spaces:
            before = solver.expansions
            try:
                solver.approach(goal, _until_late(budget))
            except RefinementDue:
                self.expansions += self._before_refinement(spec, solver.core, goal, budget)
                raise
            budget = budget.less(solver.expansions - before)
            if self._is_wide(solver, goal, budget):
                budget = self._improve_parts(spec, solver, goal, budget, found)
            if self._is_wide(solver, goal, budget):
                budget = self.refine(spec, budget)
                self._warm_start(spec, solver.core, goal)
                budget = self._improve_parts(spec, solver, goal, budget, found)
        solver.approach(goal, budget)

    def _is_wide(self, solver: Solver, goal: int, budget: RunningBudget) -> bool:
        low, high = solver.core.costs(goal)
        return low < high > (1 + max(budget.gap, _WIDE)) * low

    def _improve_parts(
        self,
        spec: Spec,
        solver: Solver,
        goal: int,
        budget: RunningBudget,
        found: Callable[[Spec], Incumbent | None],
    ) -> RunningBudget:
        """Replace parts of the best program by those of short searches, small parts first; return the budget left.

        What is found out about parts stays with the engine, where larger parts and the goal use it.
        """
        if known := found(spec):
            self.add(known)
        if (known := self.get(spec)) is None:
            return budget
        before, improved, now = solver.expansions, dict[Spec, Impl](), time.monotonic()
        share = attrs.evolve(
            budget,
            gap=0.0,
            expansions=None if budget.expansions is None else math.ceil(budget.expansions * _PARTS),
            deadline=now + (budget.deadline - now) * _PARTS,
        )

        def improve(impl: Impl, times: int) -> Impl:
            if not isinstance(impl, Node) or times * cost_and_peak(impl).cost < _WORTH * known.cost:
                return impl
            if impl.spec not in improved:
                parts = zip(impl.children, impl.expansion.parts, strict=True)
                impl = attrs.evolve(impl, children=tuple(improve(one, times * int(part.times)) for one, part in parts))
                better = None
                # Programs of a database may have parts that this search does not try.
                if solver.engine.directory.covers(impl.spec.logical):
                    (node,) = solver.engine.directory.nodes_of([impl.spec])
                    left = share.less(solver.expansions - before)
                    most = _PART if left.expansions is None else min(_PART, left.expansions)
                    solver.approach(node, attrs.evolve(left, expansions=most), part=True)
                    better = found(impl.spec)
                improved[impl.spec] = better.impl if better and better.cost < cost_and_peak(impl).cost else impl
            return improved[impl.spec]

        impl = improve(known.impl, 1)
        self.add(attrs.evolve(known, impl=impl, cost=cost_and_peak(impl).cost))
        self._warm_start(spec, solver.core, goal)
        return budget.less(solver.expansions - before)

    def _warm_start(self, spec: Spec, core: Core, goal: int) -> None:
        """Give the engine the incumbent and the bound of its goal."""
        if known := self.get(spec):
            core.assume(goal, known.low, float("inf"))
            core.tighten(goal, known.cost)

    def leaves_time(self, spec: Spec, budget: RunningBudget) -> bool:
        """Return False with an incumbent where tables and bounds of the whole space would take more than the time."""
        left = budget.deadline - time.monotonic()
        return self.get(spec) is None or left == float("inf") or left > _WHOLE_TABLES * self._set_up

    def begin(self, logical: LogicalSpec) -> int:
        """List the restricted spaces; return how many of them to search before the whole space."""
        self._spaces = restricted(self._target)
        self._count = len(self._spaces)
        shapes = shapes_below(logical, self._target)
        # A Compose has tables for each interval of its stages, of fewer dimensions each.
        op = logical.op.without_constants
        pieces = max(1, len(op.stages) ** 2 // 4) if isinstance(op, Compose) else 1
        if pieces * shapes <= MANY_SHAPES:
            return 0
        return _BEFORE if shapes >= _FEW_SHAPES else 1

    def _before_refinement(self, spec: Spec, core: Core, goal: int, budget: RunningBudget) -> int:
        """Give the engine an initial incumbent before the tighter bounds are built; return the expansions used.

        A Compose gets none: its tables of a restricted space take as long as these bounds.
        """
        if core.costs(goal)[1] < float("inf") or isinstance(spec.op.without_constants, Compose):
            return 0
        left = self.refine(spec, budget, 1)
        self._warm_start(spec, core, goal)
        return (budget.expansions or 0) - (left.expansions or 0)

    def cut_all(self, spec: Spec, budget: RunningBudget) -> None:
        """Search only the spaces in which Composes are cut into single operations."""
        narrow = attrs.evolve(self._target, cuts_all=True)
        self._spaces = [*restricted(narrow), narrow]
        self._count = len(self._spaces)
        self.refine(spec, budget)

    def before_search(
        self, spec: Spec, budget: RunningBudget, spaces: int, build: Callable[[], object]
    ) -> RunningBudget:
        """Search the first restricted `spaces` for an incumbent; return the budget left.

        The engine is built (`build`) as soon as there is one, for its lower bound: later, time may be up. Where it may
        take most of the time, all restricted spaces are searched before it: they are small, and nearly as good.
        """
        if spaces and budget.deadline < float("inf"):
            budget = self.refine(spec, budget, 1)
            if _SLOWER * self._set_up > budget.deadline - time.monotonic():
                return self.refine(spec, budget)
        for most in range(spaces):
            if most:
                with suppress(MemoryLimitReached):
                    build()
            budget = self.refine(spec, budget, most + 1)
        return budget

    def refine(self, spec: Spec, budget: RunningBudget, most: int | None = None) -> RunningBudget:
        """Search restricted spaces for better incumbents, coarse to fine; return the budget left.

        With an incumbent, only the first `most` spaces are searched. Each space gets an equal share of the remaining
        expansions and time, the whole space half of one; its tables and the first program may take longer. An
        interrupt keeps the best program so far.
        """
        while self._spaces and budget.expansions != 0:
            known, now = self.get(spec), time.monotonic()
            if now + (self._set_up if known else 0) >= budget.deadline:
                break
            searched = self._count - len(self._spaces)
            if known and (budget.gap == float("inf") or (most is not None and searched >= most)):
                break
            parts = len(self._spaces) + _WHOLE
            session = self._restrict(self._spaces.pop(0))
            if known:
                session.incumbents.add(known)
            share = attrs.evolve(
                budget,
                gap=max(budget.gap, _CLOSE),
                expansions=None if budget.expansions is None else math.ceil(budget.expansions / parts),
                deadline=now + max((budget.deadline - now) / parts, min(_TABLES * self._set_up, budget.deadline - now)),
            )
            try:
                if not known:
                    first = budget if budget.expansions is None and budget.seconds else _until_late(budget)
                    first = attrs.evolve(first, gap=float("inf"), deadline=max(budget.deadline, now + _FIRST))
                    self._learn(session.improve(spec, first))
                self._learn(session.improve(spec, share.less(session.expansions)))
            except DeadlineReached:
                continue
            except KeyboardInterrupt:
                self._learn(session.incumbent(spec))
                raise
            finally:
                self.solved += session.solved
                self._set_up = session.set_up
                budget = budget.less(session.expansions)
                session.reset()
        return budget

    def _learn(self, found: Incumbent | None) -> None:
        """Add a program of a restricted space without its bound."""
        if found:
            unproven = attrs.evolve(found, low=1)
            self.add(unproven)
            self._store(unproven)


def _until_late(budget: RunningBudget) -> RunningBudget:
    """Return the part of a budget to use before restricted spaces: at most half of the expansions."""
    most = _LATE if budget.expansions is None else min(_LATE, math.ceil(budget.expansions / 2))
    return attrs.evolve(budget, expansions=most)


def restricted(target: Target) -> list[Target]:
    """Return the target with fewer tile sizes and layouts, coarse to fine: subspaces of its own space."""

    def layouts(dtype: DType, rank: int) -> list[Layout]:
        offered = (target.whole or target).layouts(dtype, rank)
        plain = [layout for layout in offered if not layout.has_strips and layout_name(layout, rank)]
        return [*plain[:1], *plain[1:][1 - _PLAIN :], *(one for one in offered if _declared(one, dtype, target))]

    allowed = attrs.evolve(target.allowed, all_layouts=False)
    few = attrs.evolve(target, info=attrs.evolve(target.info, layouts=layouts), allowed=allowed)
    # Powers of 8 are no subset of powers of 4.
    finer = (bits for bits in _SIZE_BITS if bits > target.size_bits and bits % target.size_bits == 0)
    return [attrs.evolve(few, size_bits=bits) for bits in finer]


def _declared(layout: Layout, dtype: DType, target: Target) -> bool:
    """Return whether a kernel declares a layout with strips, up to dimensions that are always 1."""
    return any(
        wanted.dims == tuple(one for one in layout.dims if one.dim in {each.dim for each in wanted.dims})
        for wanted in target.declared_strips(dtype)
    )


def shapes_below(logical: LogicalSpec, target: Target) -> int:
    """Return an estimate of the number of shapes reachable from a Spec, which tables and bounds take time for."""
    return math.prod(1 + len(tried_sizes(size, target)) for size in logical.shape)
