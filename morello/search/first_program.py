"""A first program of a Spec, without tables or bounds: depth first, by the steps that soonest lead to kernels.

It is far from the cheapest, but it takes a fraction of a second, whatever the size of the space. Search returns it if
its budget ends before it has a program. The descent tries every step that search does, so it may also prove that a Spec
has no program.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Alloc, Expansion, Impl, Loop, expand
from morello.ir.limits import Limits, fits
from morello.ir.numbers import product
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.rewrites.move import MoveStep, seen_in
from morello.rewrites.select import Select

#: Expansions tried at most: with little memory, dead ends may be many.
_MOST = 20_000


class NotSoon(Exception):
    """The expansions are used up: there may be a program."""


def first_program(spec: Spec, target: Target) -> Impl | None:
    """Return a program of a Spec, or None if it has none. Raises NotSoon."""
    return _Descent(target).program(spec)


class _Descent:
    """A depth-first search. It tries kernels, then views, pipelines, loops and copies."""

    def __init__(self, target: Target):
        self._target = target
        self._programs: dict[Spec, Impl] = {}
        #: The limits under which Specs have no program, nor under lower ones.
        self._failed: dict[LogicalSpec, list[Limits]] = {}
        self._left = _MOST
        rewrites = rewrites_of(target)
        self._listed: dict[tuple[LogicalSpec, tuple[type[Rewrite], ...]], list[Expansion]] = {}
        self._kernels = tuple(one for one in rewrites if issubclass(one, Select))
        self._moves = tuple(one for one in rewrites if issubclass(one, MoveStep))
        self._loops = tuple(one for one in rewrites if one.structural)
        self._pipelines = tuple(one for one in rewrites if one not in {*self._kernels, *self._moves, *self._loops})
        self._depth = {level.name: depth for depth, level in enumerate(target.levels)}

    def program(self, spec: Spec) -> Impl | None:
        """Return a program of a Spec, or None if it has none."""
        if spec not in self._programs:
            failed = self._failed.setdefault(spec.logical, [])
            if any(fits(spec.limits, limits) for limits in failed):
                return None
            found = next(self._found(spec), None)
            if found is None:
                failed.append(spec.limits)
                return None
            self._programs[spec] = found
        return self._programs[spec]

    def _found(self, spec: Spec) -> Iterator[Impl]:
        for expansion in self._steps(spec):
            self._left -= 1
            if self._left < 0:
                raise NotSoon
            if node := expand(spec, expansion, self._target.grids):
                children: list[Impl] = []
                for leaf in node.children:
                    child = self.program(leaf.spec)
                    if child is None:
                        break
                    children.append(child)
                else:
                    yield attrs.evolve(node, children=tuple(children))

    def _steps(self, spec: Spec) -> Iterator[Expansion]:
        """Yield the expansions of a Spec in the order in which to try them."""
        logical = spec.logical
        yield from self._calls(logical)
        moves = self._expansions(logical, self._moves)
        # Views take memory, so they come first only if kernels wait for them.
        if any(fits(call.needs, spec.limits) for seen in self._seen(spec) for call in self._calls(seen)):
            yield from (one for one in moves if isinstance(one, Alloc) and one.view)
        yield from sorted(self._expansions(logical, self._pipelines), key=self._nearness)
        loops = self._expansions(logical, self._loops)
        parallel = [one for one in loops if isinstance(one, Loop) and one.parallel]
        serial = [one for one in loops if one not in parallel]
        yield from sorted(serial, key=lambda one: _fineness(logical, one))
        yield from moves
        yield from parallel

    def _calls(self, logical: LogicalSpec) -> list[Expansion]:
        """Return the calls of kernels, cheapest first."""
        return sorted(self._expansions(logical, self._kernels), key=lambda one: int(one.cost))

    def _seen(self, spec: Spec) -> Iterator[LogicalSpec]:
        """Yield a Spec as seen in each cache that its operands fit into."""
        levels = [self._target.level(state.level) for state in spec.logical.states]
        for cache in (level for level in self._target.levels if level.kind == "cache"):
            states = tuple(
                state if level.is_register else seen_in(cache, state, self._target)
                for state, level in zip(spec.logical.states, levels, strict=True)
            )
            seen = attrs.evolve(spec.logical, states=states)
            held = [self._target.footprint(seen.operand(at)) for at, level in enumerate(levels) if level != cache]
            if fits([sum(bytes) for bytes in zip(self._target.nothing(), *held, strict=True)], spec.limits):
                yield seen

    def _expansions(self, logical: LogicalSpec, rewrites: tuple[type[Rewrite], ...]) -> list[Expansion]:
        """Return the expansions of a Spec by some rewrites, in the target's order."""
        if (logical, rewrites) not in self._listed:
            found = self._listed[logical, rewrites] = []
            for step in (step for rewrite in rewrites for step in rewrite.steps(logical, self._target)):
                with suppress(Inapplicable):
                    found.append(step.expansion(logical, self._target))
        return self._listed[logical, rewrites]

    def _nearness(self, pipeline: Expansion) -> int:
        """Return the sort key that puts new tensors in slow memory first, the largest."""
        return -sum(self._depth[tensor.state.level] for tensor in pipeline.tensors)


def _fineness(logical: LogicalSpec, loop: Expansion) -> tuple[int, int, int]:
    """Return the sort key that puts large tiles first, of the longest dimension, and those of reductions last.

    Reductions in loops need outputs that are kept, and most kernels have loops for them.
    """
    main = max((part.logical for part in loop.parts), key=lambda part: int(product(part.shape)))
    if main.op != logical.op:
        return 0, 0, 0
    dim = next((dim for dim, size in enumerate(main.shape) if size != logical.shape[dim]), 0)
    return (
        (1 if logical.op.writes_apart(len(logical.shape), dim) else 2),
        -int(product(main.shape)),
        -int(logical.shape[dim]),
    )
