"""Loops of finished programs that threads share: a search that tries them takes much longer than one for one thread."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import attrs

from morello.api.goals import Goal
from morello.errors import Inapplicable
from morello.ir.impl import Impl, Leaf, Node, cost_and_peak
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.base import Rewrite
from morello.rewrites.tile import Tile
from morello.schedule import Position, rewrite_leaf


def shared(goal: Goal, threads: int) -> Goal:
    """Return a finished goal with the loops of its program that so many threads share at the least cost.

    These are all loops but those inside one another. The goal stays as it is where none makes its program faster.
    """
    logical = goal.spec.logical
    if threads == 1 or not logical.serial:
        return goal
    target = installed().with_threads(goal.target, threads)
    saved, loops = _best(goal.impl, 1, target)
    if not saved:
        return goal
    spec = Spec(_parallel(logical), goal.spec.limits)
    impl = _rewritten(goal.impl, spec, loops, target)
    # No bound is known for programs with parallel loops.
    unknown = {"bounds": {spec: 1}, "before_search": Leaf(spec), "packs_found": goal.packs}
    return attrs.evolve(goal, spec=spec, target=target, position=Position(impl), **unknown)


def _parallel(logical: LogicalSpec) -> LogicalSpec:
    return attrs.evolve(logical, serial=False)


def _best(impl: Impl, runs: int, target: Target) -> tuple[int, Mapping[int, Tile]]:
    """Return the cost that parallel loops save in all runs of a program, and these loops by the `id` of their nodes."""
    if not isinstance(impl, Node):
        return 0, {}
    parts = [*zip(impl.expansion.parts, impl.children, strict=True)]
    found = [_best(child, runs * int(part.times), target) for part, child in parts]
    below = sum(saved for saved, _ in found)
    step = impl.expansion.step
    if isinstance(step, Tile) and not step.parallel:
        step = attrs.evolve(step, parallel=True)
        with suppress(Inapplicable):
            loop = step.expansion(_parallel(impl.spec.logical), target)
            times = [int(before.times) - int(after.times) for (before, _), after in zip(parts, loop.parts, strict=True)]
            spared = (less * cost_and_peak(child).cost for less, (_, child) in zip(times, parts, strict=True))
            own = runs * (sum(spared) - int(loop.cost))
            if own > below:
                return own, {id(impl): step}
    return below, {node: one for _, loops in found for node, one in loops.items()}


def _rewritten(impl: Impl, spec: Spec, loops: Mapping[int, Tile], target: Target) -> Impl:
    """Return the program for a Spec that need not be serial, with these loops in place of its own."""
    assert isinstance(impl, Node)
    # Below a parallel loop, Specs are serial, and a node may be in several places.
    step = impl.expansion.step if spec.logical.serial else loops.get(id(impl), impl.expansion.step)
    assert isinstance(step, Rewrite)
    made = rewrite_leaf(spec, step, target)
    children = [
        _rewritten(child, leaf.spec, loops, target) for child, leaf in zip(impl.children, made.children, strict=True)
    ]
    return attrs.evolve(made, children=tuple(children))
