"""Search on blocks: the cheapest programs of Specs, found for whole arrays of Specs at once.

It gives the same answers as `morello.testing.textbook`: the same costs, peaks and programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import attrs

from morello.ir.impl import CostAndPeak, Impl, Node, cost_and_peak, expand
from morello.ir.limits import Limits, fits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.ahead import WIDE, Ahead
from morello.search.bounds.solve import Bounds
from morello.search.budget import SearchBudget
from morello.search.found import Found
from morello.search.infeasible import impossible, missing, undecided
from morello.search.memory import uncollected
from morello.search.progress import Phase, Progress
from morello.search.solution_cache import SolutionCache
from morello.search.solve.core import RECALLED
from morello.search.solve.directory import least
from morello.search.solve.engine import Engine
from morello.search.solve.generic_rewrites import Uncovered
from morello.search.solve.solver import RefinementDue, Solver
from morello.search.step_kinds import is_known
from morello.search.tables.step_tables import SearchTables
from morello.search.watch import Full, Late, check, watched

#: Specs taken apart before search knows layouts: where that is the proof, it would be later by what these bounds take.
REFINE_AFTER = 16_384
#: Specs that search takes apart to say which limit is too small.
_TRIED = 30_000


@attrs.frozen
class Alternative:
    """A step that might be taken, and what the best program that begins with it costs: at least that unless `exact`."""

    step: Rewrite
    cost: int
    exact: bool


class BlockSearch:
    """Finds the cheapest programs of Specs of one target; what it has solved serves later Specs of the same sizes.

    Without `prune` every program is looked at; the answers are the same, and so they are however many Specs are taken
    apart before it knows layouts (`refine_after`).
    """

    def __init__(
        self,
        target: Target,
        *,
        prune: bool = True,
        progress: Callable[[Progress], None] | None = None,
        cache: SolutionCache | None = None,
        refine_after: int | None = None,
    ):
        self.target = target
        self.prune = prune
        self.progress = progress
        self.cache = cache
        self._started = time.monotonic()
        self._seeds: dict[LogicalSpec, None] = {}
        #: The largest limits of Specs so far.
        self._ceilings: Limits = (0,) * len(target.levels)
        self._solver: Solver | None = None
        #: Specs solved by engines that are not used any more.
        self._earlier = 0
        #: Specs taken apart before an engine that knows layouts took the place of another, and how many that one may.
        self._before, self._refine_after = 0, REFINE_AFTER if refine_after is None else refine_after
        self._impls: dict[Spec, Impl] = {}
        #: What is known before search has come to it.
        self.ahead = Ahead(target, self._smaller, self._keep)
        #: The effort that it may take now, until when, and for which goal.
        self._budget, self._deadline = SearchBudget(), float("inf")
        self._goal: Spec | None = None

    @property
    def solved(self) -> int:
        """Specs solved so far, in smaller spaces too."""
        return self._earlier + self.ahead.solved + (int(self._solver.core.progress.solved) if self._solver else 0)

    @property
    def expansions(self) -> int:
        """Specs taken apart so far by the engine that is used, and before it knew layouts."""
        return self._before + (self._solver.expansions if self._solver else 0)

    @property
    def slow_rewrites(self) -> tuple[str, ...]:
        """The keywords of rewrites that have to be taken Spec by Spec, for want of a form on blocks."""
        return tuple(rewrite.keyword for rewrite in rewrites_of(self.target) if not is_known(rewrite))

    def details(self) -> list[str]:
        """Return in words how the search went."""
        lines: list[str] = []
        if self._solver:
            told = self._solver.core.progress
            lines.append(
                f"{told.nodes - 1:,} Specs met in {told.tables:,} tables, {told.solved:,} of them solved; "
                f"{told.expansions:,} Specs taken apart in {told.hyperedges:,} steps, {told.depth:,} deep at most"
            )
            if told.abstract_nodes:
                lines.append(
                    f"bounds by layout: {told.abstract_nodes:,} abstract Specs met, "
                    f"{told.abstract_expansions:,} of them taken apart"
                )
        for keyword in self.slow_rewrites:
            lines.append(f"`{keyword}` is taken Spec by Spec, which is slow: search cannot tell what it does to blocks")
        return lines

    def solve(self, spec: Spec) -> CostAndPeak | None:
        """Return cost and peak memory of the cheapest program, None if there is none."""
        (program,) = self.programs([spec])
        return cost_and_peak(program) if program else None

    def synthesize(self, spec: Spec) -> Impl:
        """Return the cheapest program. Raises NoImplementation, saying which memory limit is too small if one is."""
        (program,) = self.programs([spec])
        if program is None:
            raise missing(spec, self.target, self._some, self._maybe)
        return program

    def programs(self, specs: Sequence[Spec]) -> list[Impl | None]:
        """Return the cheapest program of each Spec; None where there is none."""
        self.settle(specs)
        return [self._program(spec) for spec in specs]

    def approach(self, spec: Spec, budget: SearchBudget) -> Found:
        """Return the cheapest program, or the best that comes of some effort, with a bound.

        Raises NoImplementation as `synthesize` does, and Undecided where the effort did not suffice.
        """
        self._budget, self._goal, self._deadline = budget, spec, budget.deadline()
        try:
            start = self._kept(spec)
            if start and budget.has_made(start):
                return start
            found = self._best_in_memory(spec, budget)
            if self.cache and found.low < found.cost:
                self.cache.store_incumbent(found)
            elif self.cache:
                self.cache.drop_incumbent(spec)
            return found
        finally:
            self._budget, self._goal, self._deadline = SearchBudget(), None, float("inf")

    def _best_in_memory(self, spec: Spec, budget: SearchBudget) -> Found:
        """Return the best program that comes of some effort, or what is known where tables take too much of it."""
        try:
            return self._best(spec, budget)
        except (Full, Late):
            known = self.ahead.program(spec)
            if known is None:
                raise
            return attrs.evolve(known, expansions=0)

    def _best(self, spec: Spec, budget: SearchBudget) -> Found:
        """Return the best program that comes of some effort."""
        asked, deadline = budget, self._deadline
        before = self.ahead.begin(spec.logical)
        if self._looks_ahead(budget) and self._solver is None:
            budget = self.ahead.look_before(spec, budget, deadline, before, lambda: self._made_for(spec))
        goal, low, high = self._approached(spec, budget, deadline)
        if low < high > (1 + budget.gap) * low and self._ceilings != spec.limits:
            # Bounds for so little memory alone may know more.
            self._ceilings = spec.limits
            goal, low, high = self._approached(spec, budget, deadline)
        if low >= high:
            impl = self.synthesize(spec)
            return Found(impl, int(high), int(high))
        if high == float("inf"):
            raise undecided(spec, asked, late=time.monotonic() >= deadline)
        impl = self._best_found(spec, goal)
        found = Found(impl, int(cost_and_peak(impl).cost), int(low))
        early = time.monotonic() >= deadline or asked.full or found.gap <= asked.gap
        return found if early else attrs.evolve(found, expansions=asked.expansions or 0)

    def _kept(self, spec: Spec) -> Found | None:
        """Return the best program so far that was kept of a Spec, and let search go on from there."""
        if self.cache is None:
            return None
        self.cache.attach(self.target)
        found = self.cache.incumbent(spec)
        if found:
            self.ahead.add(found)
        return found

    def _best_found(self, spec: Spec, goal: int, missing: Callable[[Spec], Impl] | None = None) -> Impl:
        """Return the best program that is known of a goal; `missing` is as in `_found`."""
        core, ahead = self._made().core, self.ahead.program(spec)
        best = core.best(goal)
        if ahead and not best and ahead.cost == core.costs(goal)[1]:
            return ahead.impl
        return self._found(spec, goal, best, missing)

    def _approach(self, spec: Spec, solver: Solver, goal: int, budget: SearchBudget, deadline: float) -> None:
        """Do as `Solver.approach`; where the proof is late, programs of smaller spaces help on."""
        self.ahead.inform(spec, solver, goal)
        if self._looks_ahead(budget) and self.ahead.left:
            before = solver.expansions
            try:
                solver.approach(goal, self.ahead.until_late(budget), deadline)
            except RefinementDue:
                self._before += self.ahead.first(spec, solver, goal, budget, deadline)
                raise
            budget = budget.less(solver.expansions - before)
            low, high = solver.core.costs(goal)
            if low < high > (1 + max(budget.gap, WIDE)) * low:
                if known := self.so_far(spec):
                    self.ahead.add(known)
                budget = self.ahead.look(spec, budget, deadline)
                self.ahead.inform(spec, solver, goal)
        solver.approach(goal, budget, deadline)

    def _looks_ahead(self, budget: SearchBudget) -> bool:
        """Return whether programs of a smaller space may help search on."""
        return self.prune and not budget.proves and not self.slow_rewrites

    def _smaller(self, space: Target) -> BlockSearch:
        """Return a search of a smaller space."""
        smaller = BlockSearch(space, progress=self._tell_ahead, refine_after=self._refine_after)
        smaller._budget = self._budget
        return smaller

    def _tell_ahead(self, told: Progress) -> None:
        """Pass on progress in a smaller space: what programs there cost at least is no bound here."""
        if self.progress:
            self.progress(attrs.evolve(told, low=self.ahead.costs(self._goal)[0]))

    def near(self, spec: Spec, budget: SearchBudget, deadline: float) -> Found | None:
        """Return a program that comes of some effort, with what it costs at least here; None if none does."""
        self._goal, self._deadline = spec, deadline

        def work(solver: Solver, goal: int, left: SearchBudget) -> None:
            self.ahead.inform(spec, solver, goal)
            solver.approach(goal, left, deadline)

        self._work_within(spec, budget, work)
        return self._found_of(spec)

    def so_far(self, spec: Spec) -> Found | None:
        """Return the best program so far that can be built without a search, None if there is none."""
        if self._solver is None or not fits(spec.limits, self._solver.engine.ceilings):
            return None
        try:
            return self._found_of(spec, _unbuilt)
        except _Unbuilt:
            return None

    def _found_of(self, spec: Spec, missing: Callable[[Spec], Impl] | None = None) -> Found | None:
        """Return the best program so far with its bound, None if there is none; `missing` is as in `_found`."""
        solver = self._made()
        (goal,) = solver.engine.directory.nodes_of([spec])
        low, high = solver.core.costs(goal)
        if high == float("inf"):
            return None
        return Found(self._best_found(spec, goal, missing), int(high), int(low))

    def _approached(self, spec: Spec, budget: SearchBudget, deadline: float) -> tuple[int, float, float]:
        """Search with some effort; return the goal's cell, and the costs between which its cost is."""
        self._work_within(spec, budget, lambda solver, goal, left: self._approach(spec, solver, goal, left, deadline))
        solver = self._made()
        (goal,) = solver.engine.directory.nodes_of([spec])
        return goal, *solver.core.costs(goal)

    def _some(self, spec: Spec) -> CostAndPeak | None:
        """Return the figures of the first program that comes up, None if there is none. Raises Undecided."""
        if not self._maybe(spec):
            return None
        self._ceilings = spec.limits
        budget = SearchBudget(gap=float("inf"), expansions=_TRIED, memory=self._budget.memory)
        goal, low, high = self._approached(spec, budget, budget.deadline())
        if low == float("inf"):
            return None
        if high == float("inf"):
            raise undecided(spec, budget, late=False)
        return self.solve(spec) if low >= high else cost_and_peak(self._best_found(spec, goal))

    def _maybe(self, spec: Spec) -> bool:
        """Return False if bounds alone show that there is no program. Others of the same sizes were searched for."""
        return not impossible((self._solver or self._made()).engine, spec)

    def settle(self, specs: Sequence[Spec]) -> None:
        """Solve Specs, and all that their programs consist of, without building the programs."""
        self._run(specs)

    def forget(self) -> None:
        """Let go of all that was worked out."""
        self._earlier, self._solver = self.solved, None
        self._seeds.clear()
        self._impls.clear()

    def alternatives(self, spec: Spec, count: int) -> list[Alternative]:
        """Return the chosen step of a Spec, then the `count` best others, cheapest first; none if it has no program.

        What the others cost is worked out only as far as it takes to order them.
        """
        if self.programs([spec]) == [None]:
            return []
        solver = self._made()
        (cell,) = solver.engine.directory.nodes_of([spec])
        if solver.core.chosen(cell).priority == RECALLED:
            solver.choose_own(cell)
        ranking = solver.ranking(cell, solver.core.chosen(cell).priority, count)
        return [Alternative(solver.engine.step(cell, one.priority), int(one.cost), one.exact) for one in ranking]

    def _run(self, specs: Sequence[Spec]) -> None:
        """Solve the cells of Specs, with an engine that covers them."""
        if not specs:
            return

        def work(solver: Solver, goals: list[int]) -> None:
            solver.solve(goals)
            solver.choose(goals)

        self._work(specs, work)

    def _work_within(self, spec: Spec, budget: SearchBudget, work: Callable[[Solver, int, SearchBudget], None]) -> None:
        """Do some work on a Spec's cell with some effort, or what is left of it where engines gave way to others."""
        before = self._before
        self._work([spec], lambda solver, goals: work(solver, goals[0], budget.less(self._before - before)))

    def _work(self, specs: Sequence[Spec], work: Callable[[Solver, list[int]], None]) -> None:
        """Do some work on the cells of Specs."""
        self._cover(specs)
        while not self._worked(specs, work):
            pass

    def _cover(self, specs: Sequence[Spec]) -> None:
        """See to it that the engine that is made, or the next one, covers Specs."""
        for logical in dict.fromkeys(spec.logical for spec in specs):
            if not (self._solver and self._solver.engine.directory.covers(logical)):
                self._seeds.setdefault(logical)
        self._ceilings = tuple(map(max, zip(self._ceilings, *(spec.limits for spec in specs), strict=True)))

    def _worked(self, specs: Sequence[Spec], work: Callable[[Solver, list[int]], None]) -> bool:
        """Do some work; return False if it takes an engine that covers or knows more."""
        solver = self._made()
        try:
            work(solver, solver.engine.directory.nodes_of(specs))
            return True
        except KeyboardInterrupt:
            self._keep_so_far()
            raise
        except Uncovered as error:
            self._seeds.setdefault(error.logical)
            self._earlier += int(solver.core.progress.solved)
            # Whatever the engine has come to is let go of before there is another.
            self._solver = None
        except RefinementDue:
            self._refine(solver)
        finally:
            solver.core.release()
            if self.cache:
                self.cache.save(solver.engine, solver, final=True)
        return False

    def _made_for(self, spec: Spec) -> Solver:
        """Return what solves Specs below all seeds and a Spec."""
        self._cover([spec])
        return self._made()

    def _made(self) -> Solver:
        """Return what solves Specs below all seeds."""
        tables = None
        if self._solver:
            before = self._solver.engine
            same = len(before.seeds) == len(self._seeds)
            if same and before.ceilings == self._ceilings:
                return self._solver
            self._earlier += int(self._solver.core.progress.solved)
            tables = before.search_tables if same else None
            # There is never the memory of two.
            self._solver = before = None
        # Better late than without a program.
        deadline = self._deadline if self.ahead.costs(self._goal)[1] else float("inf")
        with watched(self._budget.memory, deadline), uncollected():
            engine = self._engine(tables)
        self._solver = self._with(engine)
        return self._solver

    def _with(self, engine: Engine) -> Solver:
        return Solver(engine, answers=self.cache, often=self._tell, save=self._save, refine_after=self._refine_after)

    def _refine(self, solver: Solver) -> None:
        """Begin anew with an engine that knows layouts, and the best program so far; without one, nothing changes."""
        if self._goal and (known := self.so_far(self._goal)):
            self.ahead.add(known)
            self._keep(known)
        with watched(self._budget.memory, self._deadline), uncollected():
            engine = solver.engine.refined()
        if engine:
            self._earlier += int(solver.core.progress.solved)
            self._before += solver.expansions
            self._solver = self._with(engine)

    def _engine(self, tables: SearchTables | None) -> Engine:
        """Return an engine that covers all seeds."""
        recalls = self.cache is not None and self.cache.attach(self.target)
        return Engine(
            self._seeds,
            self.target,
            ceilings=self._ceilings,
            prune=self.prune,
            recalls=recalls,
            begin=self._tell_phase,
            bounded=self._learn_bound,
            tables=tables,
        )

    def _save(self, solver: Solver) -> None:
        if self.cache:
            self.cache.save(solver.engine, solver, final=False)
        check()

    def _tell_phase(self, phase: Phase) -> None:
        check()
        if self.progress:
            low, high = self._solver.goal_costs() if self._solver else self.ahead.costs(self._goal)
            self.progress(Progress(self.solved, time.monotonic() - self._started, low=low, high=high, phase=phase))

    def _learn_bound(self, bounds: Bounds) -> None:
        """Take in what the goal costs at least, should search end before it begins."""
        if self._goal and (found := self.ahead.program(self._goal)):
            self.ahead.add(attrs.evolve(found, low=int(least(bounds, self._goal.logical))))

    def _tell(self, solver: Solver) -> None:
        # First, so that what is told is not lost.
        if self.cache and self.cache.save_bounds(solver.engine, solver):
            self._keep_so_far()
        if self.progress:
            told, seconds = solver.core.progress, time.monotonic() - self._started
            self.progress(Progress(self.solved, seconds, told.tables, told.tables_done, *solver.goal_costs()))

    def _keep_so_far(self) -> None:
        """Keep the best program so far of the goal that is approached."""
        if self._goal and self.cache and (found := self.so_far(self._goal)):
            self._keep(found)

    def _keep(self, found: Found) -> None:
        if self.cache:
            self.cache.store_incumbent(found)

    def _program(self, spec: Spec) -> Impl | None:
        """Return the program of a solved Spec."""
        if spec in self._impls:
            return self._impls[spec]
        solver = self._made()
        (cell,) = solver.engine.directory.nodes_of([spec])
        if solver.core.costs(cell)[0] == float("inf"):
            return None
        if solver.core.chosen(cell).priority == RECALLED:
            kept = self.cache.program(spec) if self.cache else None
            if kept is not None:
                self._impls[spec] = kept
                return kept
            # Part of it is missing where it was kept.
            solver.choose_own(cell)
        node = self._node(spec, cell, solver.core.chosen(cell).priority)
        children = [child for leaf in node.children if (child := self._program(leaf.spec))]
        assert len(children) == len(node.children), "the parts of a program have programs"
        self._impls[spec] = attrs.evolve(node, children=tuple(children))
        return self._impls[spec]

    def _found(self, spec: Spec, cell: int, program: int, missing: Callable[[Spec], Impl] | None = None) -> Impl:
        """Return a program that was found for a cell; for `spec`, which differs in limits at most.

        `missing` gives parts that are not there any more where they were kept: by default they are searched for.
        """
        solver = self._made()
        if not program:
            kept = self.cache.program(spec) if self.cache else None
            return kept or (missing or self.synthesize)(spec)
        priority, parts = solver.core.found(program)
        node = self._node(spec, cell, priority)
        by_logical = {solver.engine.directory.logical(below): (below, found) for below, found in parts}
        children = [self._found(leaf.spec, *by_logical[leaf.spec.logical], missing) for leaf in node.children]
        return attrs.evolve(node, children=tuple(children))

    def _node(self, spec: Spec, cell: int, priority: int) -> Node:
        """Return what the step of a packed priority makes of a Spec, whose cell it is."""
        step = self._made().engine.step(cell, priority)
        node = expand(spec, step.expansion(spec.logical, self.target), self.target.grids)
        assert node is not None, "what was chosen fits"
        return node


class _Unbuilt(Exception):
    """Part of a program is not there."""


def _unbuilt(spec: Spec) -> Impl:
    raise _Unbuilt(spec)
