"""Draw schedules of one Spec, price them, and report those that cost less than the optimum that search proves.

A drawn schedule is the optimum's own up to some node, where other steps follow; search completes it. The cost of a
part is searched for only as far as it matters: a schedule is done when the bounds of its parts exceed the optimum.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from morello.api.goals import Goal
from morello.errors import Inapplicable, MorelloError, NoImplementation, Undecided
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import AllowedSteps, Impl, Leaf, Node, cost_and_peak, leaves
from morello.ir.numbers import product
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.rewrites import Rewrite
from morello.rewrites.tile import Tile
from morello.schedule import Synthesize, child_at, finish, rewrite_leaf, schedule_of, schedule_text, with_child
from morello.search.budget import SearchBudget
from morello.search.incumbents import shapes_below
from morello.search.session import SearchSession
from morello.search.solve.solver import Solver
from tools.fuzz.specs import Scale, drawn_spec
from tools.fuzz.steps import Steps

#: Specs that search proves in about a second.
MEDIUM = Scale(
    volumes=(32, 64, 128, 256, 512, 1024, 2048, 4096, 131072),
    sizes=(1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 20, 24, 27, 32, 34, 48, 49, 64),
    last_sizes=(1, 3, 4, 7, 8, 8, 12, 13, 16, 16, 20, 24, 32, 32, 40, 48, 64, 96, 100, 128),
    windows=(1, 1, 2, 3, 3, 5, 7),
    usual=("Matmul", "MatmulAccum", "Conv", "ConvAccum", "Softmax", "Move", "Compose"),
    plain=0.6,
    limited=0.1,
)
#: Specs with more shapes below them are skipped, and those that take more expansions to prove.
_SHAPES, _EXPANSIONS = 260, 1_000
#: Specs examined below each that is drawn, and the least points of their iteration spaces.
_BELOW, _LEAST = 6, 8
#: Turns of search, of about 0.1 ms, for the cost of one part.
_TURNS = 2_000
#: Attempts to draw a step for a part, and a schedule.
_STEP_TRIES, _TRIES = 6, 8
#: The probabilities of going down to a child, of a usual step before the unusual one, and of one more after it.
_DOWN, _USUAL, _MORE = 0.6, 0.3, 0.15


@attrs.frozen
class Finding:
    """A schedule that costs less than the proven optimum of its Spec, and the one step that does it.

    `schedules` are those of its kind. Gains are fractions of the optimum. `part` is the Spec file of the step alone, on
    its own Spec.
    """

    target: str
    number: int
    kind: str
    schedules: int
    gain: float
    file: str
    part_gain: float
    part: str


@attrs.frozen
class Report:
    """The outcome of one draw: Specs proven, schedules drawn, those cheaper or left undecided, and findings by kind."""

    number: int
    target: str
    proven: int = 0
    schedules: int = 0
    cheaper: int = 0
    undecided: int = 0
    findings: tuple[Finding, ...] = ()


class Prices(SearchSession):
    """Costs of Specs, searched for as far as needed."""

    def bounds(self, specs: Sequence[Spec], most: float | None = None) -> list[tuple[float, float]]:
        """Return bounds of the cost of each Spec: known ones, or such that they meet or the lower exceeds `most`."""
        found: list[tuple[float, float]] = []

        def work(solver: Solver, goals: list[int]) -> None:
            if most is not None:
                for goal in goals:
                    _settle(solver, goal, most)
            found[:] = [solver.core.costs(goal) for goal in goals]

        if specs:
            self._run(specs, work)
        return found


def _settle(solver: Solver, goal: int, most: float) -> None:
    """Search until a node is solved, or known to cost more, for a number of turns."""
    turns = 0
    while turns < _TURNS:
        low, high = solver.core.costs(goal)
        if low >= high or low > most:
            return
        solver.core.start(goal, most)
        finished = False
        while not finished and turns < _TURNS:
            finished = solver.core.solve()
            turns += 1
        solver.core.release()


@attrs.frozen
class Draft:
    """A program with parts left to search, and the paths of its steps that search does not try, outer ones first."""

    impl: Node
    unusual: tuple[tuple[int, ...], ...]


def report(target: Target, seed: int, number: int, count: int) -> Report:
    """Draw Spec `number` of a seed, Specs below it, and `count` schedules; the result depends on nothing else."""
    spec = drawn_spec(target, seed, number, MEDIUM)
    if shapes_below(spec.logical, target) > _SHAPES:
        return Report(number, target.name)
    prices = Prices(target)
    try:
        found = prices.search_within(spec, SearchBudget(expansions=_EXPANSIONS))
    except (NoImplementation, Undecided):
        return Report(number, target.name)
    if found.low < found.cost or not isinstance(found.impl, Node):
        return Report(number, target.name)
    rng = random.Random(f"{seed} {number} {target.name} schedules")
    return Hunt(target, number, prices, Steps.below(spec.logical, target, rng), rng).report(found.impl, count)


@attrs.define(eq=False)
class Hunt:
    """Draws schedules of Specs whose optimum is proven."""

    target: Target
    number: int
    prices: Prices
    steps: Steps
    rng: random.Random
    #: The bounds of costs that are known so far, and the nodes of steps: None where they do not apply.
    known: dict[Spec, tuple[float, float]] = attrs.field(factory=dict)
    nodes: dict[tuple[Spec, Rewrite], Node | None] = attrs.field(factory=dict)

    def report(self, optimum: Node, count: int) -> Report:
        """Draw schedules of a Spec, and of Specs below it."""
        goals = [optimum, *self._below(optimum)]
        drawn = [(goal, self._draft(goal)) for goal in goals for _ in range(count // len(goals))]
        drafts = [*dict.fromkeys((goal, draft) for goal, draft in drawn if draft)]
        holes = [*dict.fromkeys(leaf.spec for _, draft in drafts for leaf in leaves(draft.impl))]
        self.known = dict(zip(holes, self.prices.bounds(holes), strict=True))
        undecided, cheaper = 0, dict[tuple[Node, str], list[tuple[float, Draft]]]()
        for goal, draft in drafts:
            cost = cost_and_peak(goal).cost
            low, high = self._priced(draft.impl, cost - 1)
            undecided += low < cost <= high
            if high < cost:
                part = child_at(draft.impl, draft.unusual[-1])
                assert isinstance(part, Node)
                cheaper.setdefault((goal, self._kind(part)), []).append((high, draft))
        findings = [self._finding(goal, those) for (goal, _), those in cheaper.items()]
        found = sum(map(len, cheaper.values()))
        return Report(self.number, self.target.name, len(goals), len(drafts), found, undecided, tuple(findings))

    def _below(self, optimum: Node) -> Iterator[Node]:
        """Yield optima of some Specs that a few steps lead to: search has their tables, too."""
        specs = [spec for _ in range(4 * _BELOW) if (spec := self._walked(optimum.spec)) != optimum.spec]
        for spec in [*dict.fromkeys(specs)][:_BELOW]:
            ((low, high),) = self.prices.bounds([spec], float("inf"))
            if low >= high < float("inf"):
                (program,) = self.prices.programs([spec])
                assert isinstance(program, Node)
                yield program

    def _walked(self, spec: Spec) -> Spec:
        """Return a Spec that a few of search's steps lead to."""
        for _ in range(self.rng.randint(1, 3)):
            step = self.steps.usual(spec.logical)
            node = self._applied(spec, step) if step else None
            if node and node.children:
                child = self.rng.choice(node.children).spec
                spec = child if product(child.shape) >= _LEAST else spec
        return spec

    def _applied(self, spec: Spec, step: Rewrite) -> Node | None:
        """Return the node of a step, or None if it does not apply."""
        key = spec, step
        if key not in self.nodes:
            self.nodes[key] = None
            with suppress(Inapplicable):
                self.nodes[key] = rewrite_leaf(spec, step, self.target)
        return self.nodes[key]

    # Drawing.

    def _draft(self, optimum: Node) -> Draft | None:
        """Return the optimum with other steps from some node on, or None if no draw applied."""
        for _ in range(_TRIES):
            path, node = self._node(optimum)
            grown = self._grown(node.spec)
            if grown:
                impl = with_child(optimum, path, grown.impl)
                assert isinstance(impl, Node)
                return Draft(impl, tuple((*path, *below) for below in grown.unusual))
        return None

    def _node(self, node: Node) -> tuple[tuple[int, ...], Node]:
        """Return a node of a program: more often one that much is spent on."""
        path: tuple[int, ...] = ()
        while node.children and self.rng.random() < _DOWN:
            parts = zip(node.expansion.parts, node.children, strict=True)
            weights = [int(part.times) * cost_and_peak(child).cost for part, child in parts]
            (index,) = self.rng.choices(range(len(weights)), weights)
            child = node.children[index]
            assert isinstance(child, Node)
            path, node = (*path, index), child
        return path, node

    def _grown(self, spec: Spec, depth: int = 0) -> Draft | None:
        """Return a few steps on a Spec, at least one outside the space, or None if no draw applied."""
        usual = depth < 2 and self.rng.random() < _USUAL
        for _ in range(_STEP_TRIES):
            step = (self.steps.usual if usual else self.steps.drawn)(spec.logical)
            node = self._applied(spec, step) if step else None
            if step is None or node is None:
                continue
            own = ((),) if not usual and self.steps.difference(spec.logical, step) else ()
            if own and (not node.children or self.rng.random() >= _MORE):
                return Draft(node, own)
            index = self.rng.randrange(len(node.children)) if node.children else 0
            child = node.children[index] if node.children and depth < 3 else None
            below = self._grown(child.spec, depth + 1) if child else None
            if below:
                impl = with_child(node, (index,), below.impl)
                assert isinstance(impl, Node)
                return Draft(impl, (*own, *((index, *path) for path in below.unusual)))
            if own:
                return Draft(node, own)
        return None

    # Pricing.

    def _priced(self, impl: Node, most: float) -> tuple[float, float]:
        """Return bounds of the cost of the best completion: they meet, or the lower exceeds `most`.

        Neither holds if the search of a part takes too many turns.
        """
        for leaf in dict.fromkeys(leaves(impl)):
            low, high = self.known[leaf.spec]
            total = _total(impl, self.known, 0)
            if total > most:
                break
            if low < high:
                times = _total(impl, {**self.known, leaf.spec: (low + 1, high)}, 0) - total
                (self.known[leaf.spec],) = self.prices.bounds([leaf.spec], low + (most - total) // times)
        return _total(impl, self.known, 0), _total(impl, self.known, 1)

    def _settled(self, spec: Spec, impl: Node | None = None) -> float:
        """Return the cost of the best completion of a node, by default of the optimum of its Spec."""
        waiting = [spec] if impl is None else [leaf.spec for leaf in leaves(impl)]
        for one in waiting:
            if one not in self.known or self.known[one][0] < self.known[one][1]:
                (self.known[one],) = self.prices.bounds([one], float("inf"))
        return self.known[spec][0] if impl is None else _total(impl, self.known, 1)

    def _program(self, spec: Spec, _allowed: AllowedSteps) -> Impl:
        """Return the cheapest program found for a Spec."""
        found = self.prices.incumbent(spec)
        assert found
        return found.impl

    # Findings.

    def _kind(self, part: Node) -> str:
        step = part.expansion.step
        assert isinstance(step, Rewrite)
        return f"{step.keyword}: {self.steps.difference(part.spec.logical, step)}"

    def _finding(self, optimum: Node, those: Sequence[tuple[float, Draft]]) -> Finding:
        """Return the finding of several schedules of one kind: the cheapest, and the step that makes it so."""
        cost, draft = min(those, key=lambda pair: pair[0])
        for path in reversed(draft.unusual):
            part = child_at(draft.impl, path)
            assert isinstance(part, Node)
            best = self._settled(part.spec)
            if self._settled(part.spec, part) < best:
                break
        else:
            raise AssertionError("no step of the schedule costs less than the optimum of its Spec")
        file = _file(self.target, optimum.spec, draft.impl)
        whole = Goal.of(optimum.spec, self.target).apply(schedule_text(schedule_of(finish(draft.impl, self._program))))
        if (replayed := cost_and_peak(whole.impl).cost) != cost:
            raise MorelloError(f"the schedule costs {replayed}, not {cost}:\n{file}", "pricing or search is wrong")
        part = self._simpler(part)
        return Finding(
            self.target.name,
            self.number,
            f"{self._kind(part)} of {part.spec.op.name}",
            len(those),
            1 - cost / cost_and_peak(optimum).cost,
            file,
            1 - self._settled(part.spec, part) / best,
            _file(self.target, part.spec, attrs.evolve(part, children=tuple(Leaf(one.spec) for one in part.children))),
        )

    def _simpler(self, part: Node) -> Node:
        """Return the step alone, and without sizes of tiles that do not matter."""
        step = part.expansion.step
        assert isinstance(step, Rewrite)
        part = rewrite_leaf(part.spec, step, self.target)
        if isinstance(step, Tile):
            for dim, size in enumerate(step.sizes):
                fewer = attrs.evolve(step, sizes=(*step.sizes[:dim], 0, *step.sizes[dim + 1 :]))
                if size and any(fewer.sizes) and self.steps.difference(part.spec.logical, fewer):
                    node = rewrite_leaf(part.spec, fewer, self.target)
                    if self._settled(part.spec, node) <= self._settled(part.spec, part):
                        return self._simpler(node)
        return part


def _total(impl: Impl, known: Mapping[Spec, tuple[float, float]], end: int) -> float:
    """Return a bound of the cost of a program from those of its parts: the lower (0) or the upper (1)."""
    if isinstance(impl, Leaf):
        return known[impl.spec][end]
    parts = zip(impl.expansion.parts, impl.children, strict=True)
    return int(impl.expansion.cost) + sum(int(part.times) * _total(child, known, end) for part, child in parts)


def _file(target: Target, spec: Spec, impl: Impl) -> str:
    """Return a Spec file with the steps of a program, which search completes."""
    schedule = (*schedule_of(impl), Synthesize())
    return show_file(SpecFile(target, (Declaration("drawn", spec, schedule),)))
