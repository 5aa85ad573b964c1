"""The textbook recursion: every step on every Spec, nothing left out. What search gives is held against it.

Plugin authors can use it to see whether search agrees on their rewrites and microkernels. It is slow: for small
shapes and little memory.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import CostAndPeak, Expansion, Impl, Node, combine, cost_and_peak, expand, leaves, walk
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of


@attrs.frozen
class Cheapest:
    """The cheapest program of a Spec, with its cost_and_peak by the recursion."""

    cost_and_peak: CostAndPeak
    impl: Impl


class Textbook:
    """The plain recursion, without bounds or reuse of answers under other limits. `seen` is every Spec on the way."""

    def __init__(self, target: Target):
        self.target = target
        self.seen: dict[Spec, Cheapest | None] = {}
        self._expansions: dict[LogicalSpec, list[Expansion]] = {}

    def solve(self, spec: Spec) -> Cheapest | None:
        """Return the cheapest program, of equally cheap ones the one whose step comes first; None if there is none."""
        with deep_recursion():
            return self._solve(spec)

    def expansions(self, logical: LogicalSpec) -> list[Expansion]:
        """Return what every step makes of a Spec, in tie-break order."""
        if logical not in self._expansions:
            self._expansions[logical] = [*expansions(logical, self.target)]
        return self._expansions[logical]

    def _solve(self, spec: Spec) -> Cheapest | None:
        if spec not in self.seen:
            self.seen[spec] = self._best(spec)
        return self.seen[spec]

    def _best(self, spec: Spec) -> Cheapest | None:
        best: Cheapest | None = None
        for expansion in self.expansions(spec.logical):
            found = self._program(spec, expansion)
            if found and (best is None or found.cost_and_peak.cost < best.cost_and_peak.cost):
                best = found
        return best

    def _program(self, spec: Spec, expansion: Expansion) -> Cheapest | None:
        """Return the best program that begins with `expansion`."""
        node = expand(spec, expansion, self.target.grids)
        children = []
        for leaf in leaves(node) if node else ():
            child = self._solve(leaf.spec)
            if child is None:
                return None
            children.append(child)
        if node is None:
            return None
        total = combine(expansion, [child.cost_and_peak for child in children], self.target.grids)
        return Cheapest(total, Node(spec, expansion, tuple(child.impl for child in children), node.grids))


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Allow programs to nest deeper than Python does by default; its calls of Python functions take no C stack."""
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


def differences(
    seen: dict[Spec, Cheapest | None], search: Callable[[Sequence[Spec]], Iterable[Impl | None]]
) -> Iterator[str]:
    """Yield the Specs on which a search disagrees, each with both answers."""
    for (spec, expected), impl in zip(seen.items(), search([*seen]), strict=True):
        told = cost_and_peak(impl) if impl else None
        if told != (expected.cost_and_peak if expected else None) or impl != (expected.impl if expected else None):
            yield f"{spec}\n  expected {_answer(expected and expected.impl)}\n  found    {_answer(impl)}"


def _answer(impl: Impl | None) -> str:
    if impl is None:
        return "no program"
    told = cost_and_peak(impl)
    steps = "; ".join(str(node.expansion.step) for node in walk(impl) if isinstance(node, Node))
    return f"cost {told.cost}, peak {list(told.peak)}: {steps}"
