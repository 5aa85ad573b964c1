"""Reconstruct the programs that a solver found, from the steps that its nodes store."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from morello.ir.impl import Impl, Node, expand
from morello.ir.spec import Spec
from morello.search.solution_cache import SolutionCache
from morello.search.solve.core import RECALLED
from morello.search.solve.solver import Solver


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

    def best(self, spec: Spec, number: int, program: int, search: Callable[[Spec], Impl] | None) -> Impl:
        """Return program number `program` of a node, for a Spec that differs from the node's at most in limits.

        Parts that are neither known nor cached are found by `search`; raises MissingPart if it is None.
        """
        if not program:
            if stored := self._stored(spec):
                return stored
            if search is None:
                raise MissingPart(spec)
            return search(spec)
        priority, parts = self.solver.core.found(program)
        node = self._expansion(spec, number, priority)
        by_logical = {self.solver.engine.directory.logical(below): (below, found) for below, found in parts}
        children = [self.best(leaf.spec, *by_logical[leaf.spec.logical], search) for leaf in node.children]
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
