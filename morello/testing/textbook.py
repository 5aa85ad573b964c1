"""The textbook recursion, the oracle of search: every step on every Spec, without bounds.

Plugin authors can check with it that search handles their rewrites and microkernels. It is slow: use small shapes and
little memory.
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
    """The plain recursion, without reuse of answers under other limits. `seen` has every Spec visited."""

    def __init__(self, target: Target):
        self.target = target
        self.seen: dict[Spec, Cheapest | None] = {}
        self._expansions: dict[LogicalSpec, list[Expansion]] = {}

    def solve(self, spec: Spec) -> Cheapest | None:
        """Return the cheapest program, or None. Among equally cheap ones, the first step in the target's order wins."""
        with deep_recursion():
            return self._solve(spec)

    def expansions(self, logical: LogicalSpec) -> list[Expansion]:
        """Return the expansions of a Spec by every step that applies, in tie-break order."""
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
    """Raise the recursion limit for deep programs; Python-to-Python calls use no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 1_000_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def expansions(logical: LogicalSpec, target: Target) -> Iterator[Expansion]:
    """Yield the expansions of a Spec by every step that applies, in tie-break order."""
    for rewrite in rewrites_of(target):
        for step in rewrite.steps(logical, target):
            with contextlib.suppress(Inapplicable):
                yield step.expansion(logical, target)


def differences(
    seen: dict[Spec, Cheapest | None], search: Callable[[Sequence[Spec]], Iterable[Impl | None]]
) -> Iterator[str]:
    """Yield the Specs on which a search disagrees, each with both answers."""
    for (spec, expected), impl in zip(seen.items(), search([*seen]), strict=True):
        found = cost_and_peak(impl) if impl else None
        if found != (expected.cost_and_peak if expected else None) or impl != (expected.impl if expected else None):
            yield f"{spec}\n  expected {_answer(expected and expected.impl)}\n  found    {_answer(impl)}"


def _answer(impl: Impl | None) -> str:
    if impl is None:
        return "no program"
    found = cost_and_peak(impl)
    steps = "; ".join(str(node.expansion.step) for node in walk(impl) if isinstance(node, Node))
    return f"cost {found.cost}, peak {list(found.peak)}: {steps}"
