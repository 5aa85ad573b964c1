"""Search on blocks: the cheapest programs of Specs, found for whole arrays of Specs at once.

It gives the same answers as `morello.testing.textbook`: the same costs, peaks and programs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
import numpy as np

from morello.ir.impl import Figures, Impl, Leaf, Node, expand, figures
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.search.infeasible import missing
from morello.search.progress import Progress
from morello.search.solve.deepening import Rounds
from morello.search.solve.engine import Engine
from morello.search.solve.extraction import RECALLED
from morello.search.solve.one_by_one import Uncovered
from morello.search.solve.propagate import compiled
from morello.search.step_kinds import is_known


class _DoesNotFit(Exception):
    """A program takes more of a level than there is, whose limits had been left out of the search."""


class Keeper(Protocol):
    """Keeps what engines have solved, and tells what was solved before."""

    def save(self, engine: Engine, rounds: Rounds, *, final: bool) -> None:
        """Called after every round, and with `final` when search ends, be it by an interrupt."""
        ...

    def attach(self, engine: Engine) -> None:
        """Called with every new engine, before it is used."""
        ...

    def program(self, spec: Spec) -> Impl | None:
        """Return a program that was kept, None if there is none."""
        ...


@attrs.frozen
class Alternative:
    """A step that might be taken, and what the best program that begins with it costs: at least that unless `exact`."""

    step: str
    cost: int
    exact: bool


@attrs.define
class _Part:
    """An engine, and the rounds that solve its cells."""

    engine: Engine
    rounds: Rounds


class BlockSearch:
    """Finds the cheapest programs of Specs of one target; what it has solved serves later Specs of the same sizes.

    Without `prune` every program is looked at; the answers are the same.
    """

    def __init__(
        self,
        target: Target,
        *,
        prune: bool = True,
        progress: Callable[[Progress], None] | None = None,
        keeper: Keeper | None = None,
    ):
        self.target = target
        self.prune = prune
        self.progress = progress
        self.keeper = keeper
        self._started = time.monotonic()
        self._seeds: dict[LogicalSpec, None] = {}
        self._parts: dict[bool, _Part] = {}
        #: Specs solved by engines that are not used any more.
        self._earlier = 0
        self._impls: dict[bool, dict[Spec, Impl]] = {False: {}, True: {}}
        #: Specs whose programs depend on limits that are left out at first.
        self._limited: set[Spec] = set()

    @property
    def solved(self) -> int:
        """Specs solved so far."""
        return self._earlier + sum(int(part.engine.cells.solved.sum()) - 1 for part in self._parts.values())

    @property
    def slow_rewrites(self) -> tuple[str, ...]:
        """The keywords of rewrites that have to be taken Spec by Spec, for want of a form on blocks."""
        return tuple(rewrite.keyword for rewrite in rewrites_of(self.target) if not is_known(rewrite))

    def details(self) -> list[str]:
        """Return in words how the search went."""
        lines: list[str] = []
        for part in self._parts.values():
            rounds, cells = part.rounds, part.engine.cells
            lines.append(
                f"{len(cells) - 1:,} Specs met in {len(part.engine.tables.space.values):,} tables, "
                f"{int(cells.solved.sum()) - 1:,} of them solved; {rounds.edges:,} steps taken in {rounds.count} rounds"
            )
        if compiled() is None:
            lines.append("costs are worked out in numpy: Morello was installed without its compiled loop")
        for keyword in self.slow_rewrites:
            lines.append(f"`{keyword}` is taken Spec by Spec, which is slow: search cannot tell what it does to blocks")
        return lines

    def solve(self, spec: Spec) -> Figures | None:
        """Return cost and peak memory of the cheapest program, None if there is none."""
        (program,) = self.programs([spec])
        return figures(program) if program else None

    def synthesize(self, spec: Spec) -> Impl:
        """Return the cheapest program. Raises NoImplementation, saying which memory limit is too small if one is."""
        (program,) = self.programs([spec])
        if program is None:
            raise missing(spec, self.target, self.solve)
        return program

    def programs(self, specs: Sequence[Spec]) -> list[Impl | None]:
        """Return the cheapest program of each Spec; None where there is none."""
        programs: dict[Spec, Impl | None] = {}
        free = [spec for spec in specs if spec not in self._limited]
        self.settle(free)
        for spec in free:
            try:
                programs[spec] = self._program(spec, limited=False)
            except _DoesNotFit:
                self._limited.add(spec)
        # Programs that do not fit the limits that had been left out are looked for anew, with all limits.
        rest = [spec for spec in specs if spec in self._limited]
        self._run(rest, limited=True)
        return [self._program(spec, limited=True) if spec in self._limited else programs[spec] for spec in specs]

    def settle(self, specs: Sequence[Spec]) -> None:
        """Solve Specs, and all that their programs consist of, without building the programs."""
        self._run(specs, limited=False)

    def alternatives(self, spec: Spec, count: int) -> list[Alternative]:
        """Return the chosen step of a Spec, then the `count` best others, cheapest first; none if it has no program.

        What the others cost is worked out only as far as it takes to order them.
        """
        if self.programs([spec]) == [None]:
            return []
        part = self._parts[spec in self._limited]
        (cell,) = part.engine.directory.cells_of([spec]).tolist()
        if part.rounds.choices.priority(cell) == RECALLED:
            part.rounds.choices.make_own(cell)
        chosen = part.rounds.choices.priority(cell)
        ranking = part.rounds.ranking(cell, chosen, count)
        return [
            Alternative(str(part.engine.step(cell, priority)), int(cost), exact) for priority, cost, exact in ranking
        ]

    def _run(self, specs: Sequence[Spec], *, limited: bool) -> None:
        """Solve the cells of Specs, with an engine that covers them."""
        if not specs:
            return
        for logical in dict.fromkeys(spec.logical for spec in specs):
            # What one engine covers is below seeds, so that the other covers it too, once it is made of all of them.
            if not any(part.engine.directory.covers(logical) for part in self._parts.values()):
                self._seeds.setdefault(logical)
        while True:
            part = self._part(limited=limited)
            try:
                goals = part.engine.directory.cells_of(specs)
                part.rounds.solve(goals)
                part.rounds.choices.make(goals)
                return
            except Uncovered as error:
                self._seeds.setdefault(error.logical)
            finally:
                if self.keeper:
                    self.keeper.save(part.engine, part.rounds, final=True)

    def _part(self, *, limited: bool) -> _Part:
        """Return an engine that covers all seeds.

        Unless `limited`, it leaves out the limits of levels that hold buffers: a program that takes no more of them
        than there is, is the answer also when they count.
        """
        part = self._parts.get(limited)
        if part is None or len(part.engine.seeds) != len(self._seeds):
            if part:
                self._earlier += int(part.engine.cells.solved.sum()) - 1
            levels = self.target.levels
            free = [] if limited or not self.prune else [i for i, level in enumerate(levels) if level.kind == "memory"]
            engine = Engine(self._seeds, self.target, free, prune=self.prune)
            if self.keeper:
                self.keeper.attach(engine)
            rounds = Rounds(engine, prune=self.prune, after=self._after, often=self._tell)
            part = self._parts[limited] = _Part(engine, rounds)
        return part

    def _after(self, rounds: Rounds) -> None:
        if self.keeper:
            self.keeper.save(rounds.engine, rounds, final=False)

    def _tell(self, rounds: Rounds) -> None:
        if self.progress:
            seconds = time.monotonic() - self._started
            self.progress(Progress(self.solved, seconds, *rounds.tables_done(), *rounds.goal_costs()))

    def _program(self, spec: Spec, *, limited: bool) -> Impl | None:
        """Return the program of a solved Spec. Raises _DoesNotFit."""
        programs = self._impls[limited]
        if spec in programs:
            return programs[spec]
        part = self._part(limited=limited)
        (cell,) = part.engine.directory.cells_of([spec]).tolist()
        if part.engine.cells.low.values[cell] == np.inf:
            return None
        if part.rounds.choices.priority(cell) == RECALLED:
            kept = self.keeper.program(spec) if self.keeper else None
            if kept is not None:
                programs[spec] = kept
                return kept
            # Part of it is missing where it was kept.
            part.rounds.choices.make_own(cell)
        step = part.engine.step(cell, part.rounds.choices.priority(cell))
        node = expand(spec, step.expansion(spec.logical, self.target), self.target.grids)
        if node is None:
            raise _DoesNotFit
        children: list[Impl] = []
        for leaf in node.children:
            assert isinstance(leaf, Leaf)
            child = self._program(leaf.spec, limited=limited)
            assert child is not None, "the parts of a program have programs"
            children.append(child)
        programs[spec] = Node(spec, node.expansion, tuple(children), node.grids)
        return programs[spec]
