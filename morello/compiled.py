"""The kernel of a goal: it runs, verifies and times itself, and says why it is as it is."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from morello.db.default import DatabaseLike, database
from morello.goals import Goal
from morello.ir.program import Program
from morello.progress import Listener, heard
from morello.runtime.compiled import CompiledKernel
from morello.runtime.toolchain import Compiler

if TYPE_CHECKING:
    from morello.report.explanation import Explanation
    from morello.report.tree import Branch, Others

# What reports are made with takes long to import, so methods do when they are called.


class GoalKernel(CompiledKernel):
    """A `CompiledKernel` that knows the goal it was made of, and how good its program is.

    It can be pickled, as its goal and its C: another process builds that anew, or takes it from the cache.
    """

    def __init__(self, goal: Goal, program: Program, compiler: Compiler | str | None = None):
        super().__init__(goal.impl, goal.target, program, compiler)
        self.goal = goal

    def __reduce__(self) -> tuple[Any, ...]:
        return GoalKernel, (self.goal, self.program, self._compiler)

    def _repr_html_(self) -> str:
        from morello.report.html import facts_html, table_html
        from morello.report.tree import by_level, tree_table
        from morello.report.words import memory

        facts = {**self.goal.facts, "schedule": "", "memory": memory(by_level(self.peak, self.target))}
        return f"{facts_html(facts)}\n{table_html(*tree_table(self._tree, compact=True))}"

    @cached_property
    def _tree(self) -> Branch:
        from morello.report.tree import program_tree

        return program_tree(self.impl, self.target)

    @property
    def tree(self) -> str:
        """Return the program as text: a node a line, what one run of it costs, how often it runs, and its own share."""
        from morello.report.tables import table_text
        from morello.report.tree import tree_table

        return table_text(*tree_table(self._tree, compact=True)).rstrip("\n")

    @property
    def low(self) -> int:
        """Return what every program is proven to cost at least that has the steps taken by hand."""
        return self.goal.low

    @property
    def proof(self) -> str:
        """Return in words how good the program is, of all that have the steps taken by hand: `optimal` at best."""
        return self.goal.proof

    def explain(
        self, runner_ups: int = 0, noise: float = 1.0, db: DatabaseLike = None, progress: Listener = None
    ) -> Explanation:
        """Return where cost and memory of the program go and what bounds it: to print, or to show in a notebook.

        With `runner_ups`, each node that search found has so many of its best other steps, unless the program is not
        proven; that may take a search, for which `db` and `progress` are those of `Goal.synthesize`. Those with which
        the program would cost less than `noise` percent more are not shown.
        """
        from morello.report.balance import balance
        from morello.report.explanation import Explanation
        from morello.report.runner_ups import runner_ups as found_runner_ups
        from morello.report.tree import program_tree

        goal, store = self.goal, database(db) if runner_ups else None
        others: Others | None = None
        if runner_ups and self.low >= self.cost:
            before, kept = goal.searches.of(store).solved, store.path if store else None
            with (
                heard(progress, f"runner-ups of {goal.name}", before, kept) as told,
                goal.searches.using(store, told) as search,
            ):
                others = found_runner_ups(search, goal.scheduled, self.impl, runner_ups)
        tree, bounds = program_tree(self.impl, self.target, others), balance(self.impl, self.target)
        return Explanation(goal.name, self.spec, self.target, tree, bounds, self.low, self.proof, goal.plain, noise)
