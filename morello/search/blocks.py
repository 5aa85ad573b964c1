"""Search on blocks: the cheapest programs of Specs, found for whole arrays of Specs at once.

It gives the same answers as `morello.search.exhaustive`: the same costs, peaks and programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from morello.errors import NoImplementation
from morello.ir.impl import Impl, Leaf, Node, expand, figures
from morello.ir.spec import LogicalSpec, Spec
from morello.plugins.target import Target
from morello.rewrites.base import Rewrite
from morello.search.engine import Engine
from morello.search.rounds import Rounds
from morello.search.singles import Uncovered

Ints = npt.NDArray[np.int64]


class _DoesNotFit(Exception):
    """A program takes more of a level than there is, whose limits had been left out of the search."""


class BlockSearch:
    """Finds the cheapest programs of Specs of one target; what it has solved serves later Specs of the same sizes.

    Without `prune` every program is looked at; the answers are the same.
    """

    def __init__(self, target: Target, *, prune: bool = True, report: Callable[[Rounds], None] | None = None):
        self.target = target
        self.prune = prune
        self.report = report
        self._seeds: dict[LogicalSpec, None] = {}
        self._engines: dict[bool, tuple[Engine, Rounds]] = {}
        self._impls: dict[Spec, Impl] = {}

    def solve(self, specs: Sequence[Spec]) -> list[int | None]:
        """The cost of the cheapest program of each Spec, None where there is none."""
        return [None if impl is None else figures(impl).cost for impl in self.programs(specs)]

    def synthesize(self, spec: Spec) -> Impl:
        """The cheapest program. Raises NoImplementation."""
        (found,) = self.programs([spec])
        if found is None:
            raise NoImplementation(f"no implementation exists for {spec.op} on {self.target.name}")
        return found

    def programs(self, specs: Sequence[Spec]) -> list[Impl | None]:
        """The cheapest program of each Spec; None where there is none."""
        self._run(specs, limited=False)
        found: list[Impl | None] = []
        for spec in specs:
            try:
                found.append(self._program(spec, limited=False))
            except _DoesNotFit:
                self._run([spec], limited=True)
                found.append(self._program(spec, limited=True))
        return found

    def _run(self, specs: Sequence[Spec], *, limited: bool) -> None:
        """Solve the cells of Specs, with an engine that covers them."""
        known = self._engines.get(limited)
        for logical in dict.fromkeys(spec.logical for spec in specs):
            if known is None or not known[0].covers(logical):
                self._seeds.setdefault(logical)
        while True:
            engine, rounds = self._engine(limited=limited)
            try:
                goals = engine.cells_of(specs)
                rounds.solve(goals)
                rounds.choices.make(goals)
                return
            except Uncovered as error:
                self._seeds.setdefault(error.logical)

    def _engine(self, *, limited: bool) -> tuple[Engine, Rounds]:
        """An engine that covers all seeds. Unless `limited`, it leaves out the limits of levels that hold buffers."""
        known = self._engines.get(limited)
        if known is None or len(known[0].seeds) != len(self._seeds):
            levels = self.target.levels
            free = [] if limited or not self.prune else [i for i, one in enumerate(levels) if one.kind == "memory"]
            engine = Engine(self._seeds, self.target, free, prune=self.prune)
            known = self._engines[limited] = engine, Rounds(engine, prune=self.prune, after=self.report)
        return known

    def _program(self, spec: Spec, *, limited: bool) -> Impl | None:
        """The program of a solved Spec. Raises _DoesNotFit."""
        if spec in self._impls:
            return self._impls[spec]
        engine, rounds = self._engine(limited=limited)
        (cell,) = engine.cells_of([spec]).tolist()
        if engine.cells.low.values[cell] == np.inf:
            return None
        step = engine.step(cell, rounds.choices.rank(cell))
        node = expand(spec, step.expansion(spec.logical, self.target), self.target.exact)
        if node is None:
            raise _DoesNotFit
        children = []
        for leaf in node.children:
            assert isinstance(leaf, Leaf)
            child = self._program(leaf.spec, limited=limited)
            assert child is not None, "the parts of a program have programs"
            children.append(child)
        self._impls[spec] = Node(spec, node.expansion, tuple(children), node.exact)
        return self._impls[spec]
