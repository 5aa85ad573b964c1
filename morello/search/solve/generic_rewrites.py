"""Rewrites without tables, which are applied Spec by Spec.

Such a rewrite may lead to any Spec, so search has no bounds: it is right, but slow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from morello.errors import Inapplicable
from morello.ir.impl import Expansion, child_limits
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.solve.core import Core
from morello.search.solve.directory import Directory
from morello.search.step_kinds import is_known
from morello.search.tables.limits import LimitCodes
from morello.search.tables.step_tables import Priority


class Uncovered(Exception):
    """A generic rewrite led to a Spec that the engine does not cover."""

    def __init__(self, logical: LogicalSpec):
        super().__init__(str(logical))
        self.logical = logical


class GenericRewrites:
    """The generic rewrites of a target; false if it has none."""

    def __init__(self, target: Target):
        self.target = target
        self.rewrites = [(order, one) for order, one in enumerate(rewrites_of(target)) if not is_known(one)]
        self._made: dict[LogicalSpec, list[tuple[int, Rewrite, Expansion]]] = {}

    def __bool__(self) -> bool:
        return bool(self.rewrites)

    def steps(self, logical: LogicalSpec) -> list[tuple[int, Rewrite, Expansion]]:
        """Return every such step that applies to a Spec, with its packed priority and its expansion."""
        if logical not in self._made:
            self._made[logical] = [*self._steps(logical)]
        return self._made[logical]

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        """Return the step of this priority on a Spec."""
        return next(step for packed, step, _ in self.steps(logical) if packed == priority.pack())

    def _steps(self, logical: LogicalSpec) -> Iterator[tuple[int, Rewrite, Expansion]]:
        for order, rewrite in self.rewrites:
            for index, step in enumerate(rewrite.steps(logical, self.target)):
                with contextlib.suppress(Inapplicable):
                    yield Priority(order, index).pack(), step, step.expansion(logical, self.target)

    def expand(self, directory: Directory, core: Core, limit_codes: LimitCodes, node: int) -> None:
        """Add all such steps on a node to the search. Raises Uncovered."""
        spec = directory.spec(node)
        for priority, _, made in self.steps(spec.logical):
            below, needs = child_limits(made, spec.limits, limit_codes.grids), limit_codes.least(made.needs)
            if below is None or needs is None:
                continue
            for part in made.parts:
                if not directory.covers(part.logical):
                    raise Uncovered(part.logical)
            specs = [Spec(part.logical, own) for part, own in zip(made.parts, below, strict=True)]
            times = [float(part.times) for part in made.parts]
            live = [[int(amount) for amount in part.live] for part in made.parts]
            core.add_step(node, priority, float(made.cost), needs, directory.nodes_of(specs), times, live)
        core.steps_added(node)
