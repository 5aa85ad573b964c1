"""A search session: finds the cheapest programs of Specs of one target.

Its answers equal those of `morello.testing.textbook`: the same costs, peaks and programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

import attrs

from morello.ir.impl import CostAndPeak, Impl, cost_and_peak
from morello.ir.limits import Limits, fits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.search.bounds.solve import Bounds
from morello.search.budget import (
    LimitReached,
    RunningBudget,
    SearchBudget,
    SpaceTooLarge,
    budget_guard,
    check_budget,
    release_memory,
    resident,
    setting_up,
)
from morello.search.first_program import NotSoon, first_program
from morello.search.incumbents import Incumbent, Incumbents
from morello.search.infeasible import is_infeasible, no_implementation, undecided
from morello.search.progress import Phase, Progress
from morello.search.reconstruct import MissingPart, Reconstruction, SolutionCache
from morello.search.solve.directory import least
from morello.search.solve.engine import Engine
from morello.search.solve.generic_rewrites import Uncovered
from morello.search.solve.solver import Alternative, RefinementDue, Solver
from morello.search.step_kinds import is_known
from morello.search.tables.step_tables import SearchTables

#: Expansions before layout bounds are built, which take longer than many a proof without them.
REFINE_AFTER = 16_384
#: Expansions spent to find out whether a limit suffices, for error messages.
_FEASIBILITY_EXPANSIONS = 30_000
#: The most seconds for a first program after the deadline.
_LATE_SECONDS = 20.0


class SearchSession:
    """Finds the cheapest programs of Specs of one target. Solved Specs serve later ones of the same sizes.

    Without `prune`, every program is enumerated. Layout bounds are built after `refine_after` expansions. Neither
    changes an answer.
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
        self._restricted = False
        #: The tables of the whole space, in a search of a restricted one.
        self._whole: SearchTables | None = None
        self._refine_after = REFINE_AFTER if refine_after is None else refine_after
        self._started = time.monotonic()
        self._solver: Solver | None = None
        #: The resident memory before the engine in use was built.
        self._memory_before = resident()
        #: The seconds that its tables and bounds took.
        self.set_up = 0.0
        #: The last engine before `reset`, if its tables are those to build next.
        self._kept: Engine | None = None
        #: Specs solved by replaced engines.
        self._solved_before = 0
        self._clear()
        #: The goal and the budget of the search under way.
        self._goal: Spec | None = None
        self._budget = RunningBudget()

    def _clear(self) -> None:
        """Set the state of a search without any Spec."""
        self.incumbents = Incumbents(self.target, self._restrict, self._store)
        #: The Specs below which the next engine covers all, and their largest limits.
        self._seeds: dict[LogicalSpec, None] = {}
        self._ceilings: Limits = (0,) * len(self.target.levels)
        #: Expansions by engines that a refined one replaced.
        self._expansions_before = 0
        self._programs: dict[Spec, Impl] = {}

    @property
    def solved(self) -> int:
        """Specs solved so far, in restricted spaces too."""
        own = int(self._solver.core.progress.solved) if self._solver else 0
        return self._solved_before + self.incumbents.solved + own

    @property
    def expansions(self) -> int:
        """Specs expanded so far by the engine in use, and before it had layout bounds."""
        return self._replaced_expansions + (self._solver.expansions if self._solver else 0)

    @property
    def _verified_only(self) -> bool:
        """Return whether the search under way ends with a proof, which cannot rest on unverified answers."""
        return self._goal is not None and self._budget.proves

    @property
    def _replaced_expansions(self) -> int:
        return self._expansions_before + self.incumbents.expansions

    @property
    def generic_rewrites(self) -> tuple[str, ...]:
        """The keywords of rewrites that search has no tables for, and so applies to one Spec at a time."""
        return tuple(rewrite.keyword for rewrite in rewrites_of(self.target) if not is_known(rewrite))

    def details(self) -> list[str]:
        """Return statistics of the search as text."""
        lines: list[str] = []
        if self._solver:
            now = self._solver.core.progress
            lines.append(
                f"{now.nodes - 1:,} Specs met in {now.tables:,} tables, {now.solved:,} of them solved; "
                f"{now.expansions:,} Specs expanded in {now.hyperedges:,} steps, {now.depth:,} deep at most"
            )
            if now.abstract_nodes:
                lines.append(
                    f"bounds by layout: {now.abstract_nodes:,} abstract Specs met, "
                    f"{now.abstract_expansions:,} of them expanded"
                )
        for keyword in self.generic_rewrites:
            lines.append(f"`{keyword}` has no tables, so that search applies it to one Spec at a time, which is slow")
        return lines

    # Goals.

    def solve(self, spec: Spec) -> CostAndPeak | None:
        """Return cost and peak memory of the cheapest program, or None."""
        (program,) = self.programs([spec])
        return cost_and_peak(program) if program else None

    def synthesize(self, spec: Spec) -> Impl:
        """Return the cheapest program. Raises NoImplementation, which names a memory limit that is too small."""
        (program,) = self.programs([spec])
        if program is None:
            raise no_implementation(spec, self.target, self._feasible, self._maybe_feasible)
        return program

    def programs(self, specs: Sequence[Spec]) -> list[Impl | None]:
        """Return the cheapest program of each Spec, or None."""
        self.solve_all(specs)
        return [Reconstruction(self._ready_solver(), self.cache).optimal(spec, self._programs) for spec in specs]

    def solve_all(self, specs: Sequence[Spec]) -> None:
        """Solve Specs, and all parts of their programs, without reconstructing the programs."""

        def work(solver: Solver, goals: list[int]) -> None:
            solver.solve(goals)
            solver.choose(goals)

        if specs:
            self._run(specs, work)

    def search_within(self, spec: Spec, budget: SearchBudget) -> Incumbent:
        """Return the cheapest program, or the best one found within a budget, with its proven lower bound.

        Raises NoImplementation as `synthesize` does, and Undecided if the budget did not suffice for any program.
        """
        self._goal, self._budget = spec, budget.start()
        try:
            if self.cache:
                self.cache.attach(self.target, verified_only=self._verified_only)
                if stored := self.cache.incumbent(spec):
                    self.incumbents.add(stored)
                    if stored.meets(budget):
                        return stored
            try:
                found = self._best(spec, self._budget)
            except LimitReached as ended:
                known = self.incumbents.get(spec) or self._late(spec) or self._first(spec, 1)
                if known is None and isinstance(ended, SpaceTooLarge):
                    raise undecided(spec, self._budget, late=False) from None
                if known is None:
                    raise
                used = (budget.expansions or 0) if isinstance(ended, SpaceTooLarge) else 0
                found = attrs.evolve(known, expansions=used)
            if self.cache and self.cache.unverified:
                found = attrs.evolve(found, low=1)
            if found.low < found.cost:
                found = attrs.evolve(found, expansions=max(1, found.expansions))
                self._store(found)
            elif self.cache:
                self.cache.drop_incumbent(spec)
            return found
        finally:
            self._goal, self._budget = None, RunningBudget()

    def improve(self, spec: Spec, budget: RunningBudget) -> Incumbent | None:
        """Return the best program found within a budget so far, or None. Call it for one goal only."""
        self._goal, self._budget = spec, budget
        self._search(spec, budget)
        return self._best_so_far(spec)

    def incumbent(self, spec: Spec) -> Incumbent | None:
        """Return the best program so far, or None, without any search."""
        if self._solver is None or not fits(spec.limits, self._solver.engine.ceilings):
            return None
        try:
            return Reconstruction(self._solver, self.cache).best(spec, self.incumbents.get(spec))
        except MissingPart:
            return None

    def alternatives(self, spec: Spec, count: int) -> list[Alternative]:
        """Return the chosen step of a Spec and the `count` best others, cheapest first; nothing without a program.

        The costs of the others are computed as far as needed to order them.
        """
        if self.programs([spec]) == [None]:
            return []
        solver = self._ready_solver()
        (node,) = solver.engine.directory.nodes_of([spec])
        return solver.ranking(node, count)

    def reset(self, seeds: Iterable[LogicalSpec] = ()) -> None:
        """Release all that was computed, except for tables and bounds of exactly these seeds, which come next."""
        engine = self._solver.engine if self._solver else self._kept
        self._solved_before, self._solver = self.solved, None
        self._clear()
        self._seeds = dict.fromkeys(seeds)
        self._kept = engine if engine and engine.seeds == [*self._seeds] else None
        engine = None
        if self._kept is None:
            release_memory(self._memory_before)

    # Search within a budget.

    def _best(self, spec: Spec, budget: RunningBudget) -> Incumbent:
        """Return the best program found within a budget. Raises SpaceTooLarge; the best one is an incumbent then."""
        try:
            return self._best_of_all(spec, budget)
        except SpaceTooLarge:
            # The next search builds tables without it.
            self._seeds.clear()
            if self._uses_restricted(budget):
                self.incumbents.cut_all(spec, budget)
            raise

    def _best_of_all(self, spec: Spec, budget: RunningBudget) -> Incumbent:
        granted = budget
        spaces = self.incumbents.begin(spec.logical) or int(budget.seconds is not None)
        if self._uses_restricted(budget) and self._solver is None:
            budget = self.incumbents.before_search(spec, budget, spaces, lambda: self._build_for(spec))
            known = self.incumbents.get(spec)
            if known and self._solver is None and not self.incumbents.leaves_time(spec, budget):
                return known
        low, high = self._search(spec, budget)
        if low < high > (1 + budget.gap) * low and self._ceilings != spec.limits:
            # Bounds for these limits alone may be tighter.
            self._ceilings = spec.limits
            low, high = self._search(spec, budget)
        if low >= high:
            # Also when late: all is proven but the order of steps of equal cost, or the reason for an error.
            self._budget = RunningBudget(memory=budget.memory)
            return Incumbent(self.synthesize(spec), int(high), int(high))
        found = self._best_so_far(spec) or self._late(spec) or self._first(spec, int(low))
        if found is None:
            raise undecided(spec, granted, late=granted.late)
        found = attrs.evolve(found, cost=int(cost_and_peak(found.impl).cost))
        early = granted.late or granted.memory_reached or found.gap <= granted.gap
        return found if early else attrs.evolve(found, expansions=granted.expansions or 0)

    def _search(self, spec: Spec, budget: RunningBudget) -> tuple[float, float]:
        """Search within a budget; return the goal's lower bound and its incumbent's cost."""
        before, found = self._replaced_expansions, self.incumbent if self._uses_restricted(budget) else None

        def work(solver: Solver, goals: list[int]) -> None:
            left = budget.less(self._replaced_expansions - before)
            self.incumbents.approach(spec, solver, goals[0], left, found)

        self._run([spec], work)
        solver = self._ready_solver()
        (goal,) = solver.engine.directory.nodes_of([spec])
        return solver.core.costs(goal)

    def _best_so_far(self, spec: Spec) -> Incumbent | None:
        """Return the best program so far, or None. Parts of it that are not known are searched for."""
        return Reconstruction(self._ready_solver(), self.cache).best(spec, self.incumbents.get(spec), self.synthesize)

    def _first(self, spec: Spec, low: int) -> Incumbent | None:
        """Return the program of a quick descent with a lower bound, or None. Raises NoImplementation."""
        try:
            impl = first_program(spec, self.target)
        except NotSoon:
            return None
        if impl is None:
            raise no_implementation(spec, self.target, self._feasible, self._maybe_feasible)
        return Incumbent(impl, cost_and_peak(impl).cost, low)

    def _late(self, spec: Spec) -> Incumbent | None:
        """Return the first program of the coarsest restricted space, although the time is up, or None.

        With many shapes, that of a quick descent may cost ten times as much and take longer.
        """
        if self._budget.seconds and self._budget.late and self._uses_restricted(self._budget):
            budget = SearchBudget(_LATE_SECONDS, gap=float("inf"), memory=self._budget.memory).start()
            if not self.incumbents.begin(spec.logical) and (found := self._first(spec, 1)):
                return found
            with suppress(LimitReached):
                try:
                    self.incumbents.refine(spec, budget, 1)
                except SpaceTooLarge:
                    self.incumbents.cut_all(spec, budget)
        return self.incumbents.get(spec)

    def _uses_restricted(self, budget: SearchBudget) -> bool:
        """Return whether incumbents from restricted spaces may help."""
        return self.prune and not self._restricted and not budget.proves and not self.generic_rewrites

    def _restrict(self, space: Target) -> SearchSession:
        """Return a search of a restricted space."""
        session = SearchSession(space, progress=self._report_restricted, refine_after=self._refine_after)
        session._restricted = True
        session._whole = self._solver.engine.search_tables if self._solver else None
        return session

    def _feasible(self, spec: Spec) -> CostAndPeak | None:
        """Return the figures of any program of a Spec, or None if it has none. Raises Undecided."""
        if not self._maybe_feasible(spec):
            return None
        self._ceilings = spec.limits
        budget = attrs.evolve(self._budget, gap=float("inf"), expansions=_FEASIBILITY_EXPANSIONS)
        low, high = self._search(spec, budget)
        if low >= high:
            return self.solve(spec) if high < float("inf") else None
        found = self._best_so_far(spec)
        if found is None:
            raise undecided(spec, budget, late=False)
        return cost_and_peak(found.impl)

    def _maybe_feasible(self, spec: Spec) -> bool:
        """Return False if bounds alone prove that a Spec has no program; others of its sizes were searched before."""
        if self._solver is None:
            self._cover([spec])
        return not is_infeasible((self._solver or self._ready_solver()).engine, spec)

    # Engines.

    def _run(self, specs: Sequence[Spec], work: Callable[[Solver, list[int]], None]) -> None:
        """Do some work on the nodes of Specs, repeatedly until no engine has to be replaced."""
        self._cover(specs)
        while not self._finished(specs, work):
            pass

    def _finished(self, specs: Sequence[Spec], work: Callable[[Solver, list[int]], None]) -> bool:
        """Do some work; return False if it takes an engine that covers more or has tighter bounds."""
        solver = self._ready_solver()
        try:
            work(solver, solver.engine.directory.nodes_of(specs))
            return True
        except KeyboardInterrupt:
            self._store_incumbent()
            raise
        except Uncovered as error:
            self._seeds.setdefault(error.logical)
            self._solved_before += int(solver.core.progress.solved)
            self._solver = None
        except RefinementDue:
            self._refine(solver)
        finally:
            solver.core.release()
            if self.cache:
                self.cache.save(solver.engine, solver, final=True)
        return False

    def _cover(self, specs: Sequence[Spec]) -> None:
        """Add the Specs that the engine in use does not cover to the seeds of the next one."""
        for logical in dict.fromkeys(spec.logical for spec in specs):
            if not (self._solver and self._solver.engine.directory.covers(logical)):
                self._seeds.setdefault(logical)
        self._ceilings = tuple(map(max, zip(self._ceilings, *(spec.limits for spec in specs), strict=True)))

    def _build_for(self, spec: Spec) -> None:
        """Build an engine that covers a Spec, too."""
        self._cover([spec])
        self._ready_solver()

    def _ready_solver(self) -> Solver:
        """Return a solver that covers all seeds."""
        tables = None
        if self._solver:
            before = self._solver.engine
            same = len(before.seeds) == len(self._seeds)
            if same and before.ceilings == self._ceilings:
                return self._solver
            self._solved_before += int(self._solver.core.progress.solved)
            tables = before.search_tables if same else None
            self._solver = before = None
        recalls = self.cache is not None and self.cache.attach(self.target, verified_only=self._verified_only)
        kept, self._kept = self._kept, None
        if kept and kept.seeds == [*self._seeds] and kept.ceilings == self._ceilings:
            self._solver = self._with(kept.renewed(recalls))
            return self._solver
        kept = None
        # Two engines never take memory at once.
        release_memory(self._memory_before)
        self._memory_before = resident()
        counted = self._budget.counted
        started = time.monotonic()
        with budget_guard(self._budget.memory, self._budget.deadline, counted=counted), setting_up():
            engine = Engine(
                self._seeds,
                self.target,
                ceilings=self._ceilings,
                prune=self.prune,
                recalls=recalls,
                begin=self._report_phase,
                bounded=self._note_bound,
                tables=tables,
                whole=self._whole,
            )
        self.set_up = time.monotonic() - started
        self._solver = self._with(engine)
        return self._solver

    def _with(self, engine: Engine) -> Solver:
        return Solver(engine, answers=self.cache, often=self._report, save=self._save, refine_after=self._refine_after)

    def _refine(self, solver: Solver) -> None:
        """Start over with layout bounds and the best program so far, unless they exceed the budget."""
        self._store_incumbent(add=True)
        with budget_guard(self._budget.memory, self._budget.deadline), setting_up():
            engine = solver.engine.refined()
        if engine:
            self._solved_before += int(solver.core.progress.solved)
            self._expansions_before += solver.expansions
            self._solver = self._with(engine)

    # Reports.

    def _report(self, solver: Solver) -> None:
        # Bounds are stored first, so that reported ones are not lost.
        if self.cache and self.cache.save_bounds(solver.engine, solver):
            self._store_incumbent()
        if self.progress:
            now, seconds = solver.core.progress, time.monotonic() - self._started
            self.progress(Progress(self.solved, seconds, now.tables, now.tables_done, *solver.goal_costs()))

    def _report_phase(self, phase: Phase) -> None:
        check_budget()
        if self.progress:
            low, high = self._solver.goal_costs() if self._solver else self.incumbents.costs(self._goal)
            self.progress(Progress(self.solved, time.monotonic() - self._started, low=low, high=high, phase=phase))

    def _report_restricted(self, progress: Progress) -> None:
        """Pass on the progress of a restricted space with the bound of the whole one."""
        if self.progress:
            low = self._solver.goal_costs()[0] if self._solver else 0
            self.progress(attrs.evolve(progress, low=max(low, self.incumbents.costs(self._goal)[0])))

    def _note_bound(self, bounds: Bounds) -> None:
        """Record the lower bound of the goal, in case the search ends before it begins."""
        if self._goal and (found := self.incumbents.get(self._goal)):
            self.incumbents.add(attrs.evolve(found, low=int(least(bounds, self._goal.logical))))

    def _save(self, solver: Solver) -> None:
        if self.cache:
            self.cache.save(solver.engine, solver, final=False)
        check_budget()

    def _store_incumbent(self, *, add: bool = False) -> None:
        """Cache the best program so far of the goal under way; with `add`, make it an incumbent of restarts."""
        if self._goal and (add or self.cache) and (found := self.incumbent(self._goal)):
            if add:
                self.incumbents.add(found)
            self._store(found)

    def _store(self, found: Incumbent) -> None:
        if self.cache:
            self.cache.store_incumbent(found)
