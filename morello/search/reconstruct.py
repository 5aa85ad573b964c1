"""Reconstruct the programs that a solver found, from the steps that its nodes store, or from stored answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import attrs

from morello.ir.impl import Impl, Node, expand
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.incumbents import Incumbent
from morello.search.solve.core import RECALLED
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Answers, Solver


class SolutionCache(Answers, Protocol):
    """Stores what engines solve, and returns it to later searches."""

    @property
    def unverified(self) -> bool:
        """Return whether an answer that search has used is unverified, so that its bounds are claims."""
        ...

    def attach(self, target: Target, *, verified_only: bool = False) -> bool:
        """Return whether any answer for a target is stored. Called before an engine is made.

        With `verified_only`, engines get no unverified answers.
        """
        ...

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        """Store solved cells. Called every few turns, and with `final` when search ends or is interrupted."""
        ...

    def save_bounds(self, engine: Engine, solver: Solver) -> bool:
        """Store the proven lower bounds of the goals; return whether that was due. Called every few milliseconds."""
        ...

    def program(self, spec: Spec) -> Impl | None:
        """Return the stored optimal program of a Spec, or None."""
        ...

    def incumbent(self, spec: Spec) -> Incumbent | None:
        """Return the best stored program of a Spec whose optimality is unproven, or None."""
        ...

    def store_incumbent(self, found: Incumbent) -> None:
        """Store a program whose optimality is unproven."""
        ...

    def drop_incumbent(self, spec: Spec) -> None:
        """Drop the unproven program of a Spec, which is solved now."""
        ...


class MissingPart(Exception):
    """A part of a program is not available without a search."""


@attrs.frozen
class Reconstruction:
    """Reconstructs programs of one solver; those recalled from the cache are read from there."""

    solver: Solver
    cache: SolutionCache | None

    def optimal(self, spec: Spec, known: dict[Spec, Impl]) -> Impl | None:
        """Return the chosen program of a solved Spec, or None if it has none. `known` memoizes programs."""
        if spec in known:
            return known[spec]
        core = self.solver.core
        (number,) = self.solver.engine.directory.nodes_of([spec])
        if core.costs(number)[0] == float("inf"):
            return None
        if core.chosen(number).priority == RECALLED:
            if stored := self._stored(spec):
                known[spec] = stored
                return stored
            # The cache lacks a part of it.
            self.solver.choose_own(number)
        node = self._expansion(spec, number, core.chosen(number).priority)
        children = [child for leaf in node.children if (child := self.optimal(leaf.spec, known))]
        assert len(children) == len(node.children), "the parts of a program have programs"
        known[spec] = attrs.evolve(node, children=tuple(children))
        return known[spec]

    def best(
        self, spec: Spec, known: Incumbent | None, search: Callable[[Spec], Impl] | None = None
    ) -> Incumbent | None:
        """Return the best program so far of a Spec with its bound, perhaps that of the incumbent `known`, or None.

        Parts that are neither known nor cached are found by `search`; raises MissingPart if it is None.
        """
        (goal,) = self.solver.engine.directory.nodes_of([spec])
        low, high = self.solver.core.costs(goal)
        if high == float("inf"):
            return None
        if (program := self.solver.core.best(goal)) or not known or known.cost != high:
            return Incumbent(self._program(spec, goal, program, search), int(high), int(low))
        return Incumbent(known.impl, int(high), int(low))

    def _program(self, spec: Spec, number: int, program: int, search: Callable[[Spec], Impl] | None) -> Impl:
        """Return program number `program` of a node, for a Spec that differs from the node's at most in limits."""
        if not program:
            if stored := self._stored(spec):
                return stored
            if search is None:
                raise MissingPart(spec)
            return search(spec)
        priority, parts = self.solver.core.found(program)
        node = self._expansion(spec, number, priority)
        by_logical = {self.solver.engine.directory.logical(below): (below, found) for below, found in parts}
        children = [self._program(leaf.spec, *by_logical[leaf.spec.logical], search) for leaf in node.children]
        return attrs.evolve(node, children=tuple(children))

    def _stored(self, spec: Spec) -> Impl | None:
        return self.cache.program(spec) if self.cache else None

    def _expansion(self, spec: Spec, number: int, priority: int) -> Node:
        """Return the expansion of a Spec, whose node's number is given, by the step of a packed priority."""
        engine = self.solver.engine
        step = engine.step(number, priority)
        node = expand(spec, step.expansion(spec.logical, engine.target), engine.target.grids)
        assert node is not None, "the chosen step fits the limits"
        return node
