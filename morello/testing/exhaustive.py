"""The plainest exact search: memoised recursion over single Specs, trying every step a target offers.

It is the oracle that faster engines must equal. The cheapest program wins; of equally cheap ones, the one
whose step comes first in the target's order of rewrites, so the answer never depends on the machine.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Expansion, Figures, Impl, Leaf, Node, child_limits, combine, expand
from morello.ir.limits import Limits, fits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.search.infeasible import missing
from morello.search.progress import Progress

#: More than any program costs.
UNBOUNDED = 1 << 200
#: No program costs less: each has a microkernel, and each microkernel costs at least this.
LEAST = 1
#: Costs that search tries to stay below, one after another: no part is searched for much more than is needed.
BOUNDS = (*(16 * 3**step // 2**step for step in range(18)), UNBOUNDED)


@attrs.frozen
class Solution:
    """The best expansion of a Spec, and the figures of the program it leads to."""

    expansion: Expansion
    figures: Figures


@attrs.frozen
class Answer:
    """The answer to a logical Spec under `limits`: the best solution if it costs less than `below`."""

    limits: Limits
    below: int
    solution: Solution | None

    def settles(self, limits: Limits, below: int) -> bool:
        """Return True if it answers the same question for other limits and another bound.

        What is best under some limits is best under any lower ones that it still fits, and what does not
        exist does not under lower ones either.
        """
        if not fits(limits, self.limits):
            return False
        if self.solution is None or self.solution.figures.cost >= below:
            return below <= self.below
        return bool(fits(self.solution.figures.peak, limits))

    def subsumes(self, other: Answer) -> bool:
        """Return True if it answers whatever `other` does."""
        if not self.settles(other.limits, other.below):
            return False
        return self.solution is None or (
            other.solution is not None and bool(fits(self.solution.figures.peak, other.solution.figures.peak))
        )


@attrs.frozen
class Option:
    """One expansion of a Spec, its rank in tie-breaks, and a cost that it does not undercut.

    `order` are its parts in the order in which they are solved: Moves come first, as they are soon found too costly.
    """

    expansion: Expansion
    rank: int
    floor: int
    order: tuple[int, ...]

    @classmethod
    def of(cls, rank: int, expansion: Expansion) -> Option:
        floor = int(expansion.cost) + LEAST * sum(int(part.times) for part in expansion.parts)
        order = sorted(range(len(expansion.parts)), key=lambda i: not expansion.parts[i].logical.op.moves_data)
        return cls(expansion, rank, floor, tuple(order))


class ExhaustiveSearch:
    """Finds the cheapest program of Specs of one target; what it has solved serves later Specs too.

    Without `prune` every child is solved whatever its parent has found already; the answers are the same.
    """

    def __init__(self, target: Target, *, prune: bool = True, progress: Callable[[Progress], None] | None = None):
        self.target = target
        self.prune = prune
        self.solved = 0
        self.progress = progress
        self._started = time.monotonic()
        self._answers: dict[LogicalSpec, list[Answer]] = defaultdict(list)
        self._options: dict[LogicalSpec, list[Option]] = {}

    def synthesize(self, spec: Spec) -> Impl:
        """Return the cheapest program. Raises NoImplementation, saying which memory limit is too small if one is."""
        if self.solve(spec) is None:
            raise missing(spec, self.target, self._figures)
        return self._rebuild(spec)

    def solve(self, spec: Spec) -> Solution | None:
        """Return the best solution of `spec`; None if there is none."""
        with deep_recursion():
            for bound in BOUNDS if self.prune else (UNBOUNDED,):
                found = self._solve(spec, bound)
                if found is not None:
                    return found
        return None

    def _figures(self, spec: Spec) -> Figures | None:
        found = self.solve(spec)
        return found.figures if found else None

    def _solve(self, spec: Spec, below: int) -> Solution | None:
        """Return the best solution of `spec` that costs less than `below`; None if there is none."""
        if below <= LEAST:
            return None
        answers = self._answers[spec.logical]
        for answer in answers:
            if answer.settles(spec.limits, below):
                found = answer.solution
                return found if found is None or found.figures.cost < below else None
        best: Solution | None = None
        rank = -1
        for option in self._expand(spec.logical):
            # Of equally cheap programs the one that comes first in the target's order wins.
            bound = best.figures.cost + (option.rank < rank) if best else below
            if self.prune and option.floor >= bound:
                continue
            figures = self._evaluate(option, spec.limits, bound)
            if figures is not None and figures.cost < bound:
                best, rank = Solution(option.expansion, figures), option.rank
        new = Answer(spec.limits, below, best)
        answers[:] = [*(old for old in answers if not new.subsumes(old)), new]
        self.solved += 1
        if self.progress:
            self.progress(Progress(self.solved, time.monotonic() - self._started))
        return best

    def _evaluate(self, option: Option, limits: Limits, below: int) -> Figures | None:
        """Return cost and peak of an expansion with the best children; None if it does not cost less than `below`."""
        expansion = option.expansion
        lowered = child_limits(expansion, limits, self.target.exact)
        if lowered is None:
            return None
        least = [self._at_least(part.logical, own) for part, own in zip(expansion.parts, lowered, strict=True)]
        times = [int(part.times) for part in expansion.parts]
        floor = int(expansion.cost) + sum(map(operator.mul, times, least))
        if self.prune and floor >= below:
            return None
        children: dict[int, Figures] = {}
        for i in option.order:
            floor -= times[i] * least[i]
            # Costs are integers: times·cost < below - floor exactly if cost < ceil((below - floor) / times).
            bound = -((floor - below) // times[i]) if self.prune else UNBOUNDED
            child = self._solve(Spec(expansion.parts[i].logical, lowered[i]), bound)
            if child is None:
                return None
            floor += times[i] * child.figures.cost
            children[i] = child.figures
        return combine(expansion, [children[i] for i in range(len(times))], self.target.exact)

    def _at_least(self, logical: LogicalSpec, limits: Limits) -> int:
        """Return a cost that no program undercuts, from what is known under these limits or higher ones."""
        known = (
            answer.solution.figures.cost if answer.solution else answer.below
            for answer in self._answers.get(logical, ())
            if fits(limits, answer.limits)
        )
        return max(known, default=LEAST)

    def _expand(self, logical: LogicalSpec) -> list[Option]:
        """Return every expansion of a Spec, the one with the lowest floor first."""
        if logical not in self._options:
            options = map(Option.of, itertools.count(), _distinct(expansions(logical, self.target)))
            self._options[logical] = sorted(options, key=lambda option: (option.floor, option.rank))
        return self._options[logical]

    def _rebuild(self, spec: Spec) -> Impl:
        solution = self.solve(spec)
        assert solution is not None
        node = expand(spec, solution.expansion, self.target.exact)
        assert node is not None
        children = tuple(self._rebuild(leaf.spec) for leaf in node.children if isinstance(leaf, Leaf))
        return Node(spec, node.expansion, children, node.exact)


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Programs nest deeper than Python's default limit allows; its calls of Python functions take no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 1_000_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def expansions(logical: LogicalSpec, target: Target) -> Iterator[Expansion]:
    """Yield what every step that applies makes of a Spec, in tie-break order."""
    for rewrite in rewrites_of(target):
        for step in rewrite.steps(logical, target):
            with contextlib.suppress(Inapplicable):
                yield step.expansion(logical, target)


def _distinct(found: Iterator[Expansion]) -> Iterator[Expansion]:
    """Different steps may lead to the same node, such as layouts that agree on a small shape: keep the first."""
    seen = set()
    for expansion in found:
        result = (expansion.kind, expansion.cost, expansion.needs, expansion.parts)
        if expansion.kind == "kernelcall" or result not in seen:
            seen.add(result)
            yield expansion
