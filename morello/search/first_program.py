"""A first program of a Spec, without tables or bounds: depth first, by the steps that soonest lead to kernels.

It is far from the cheapest, but it takes a fraction of a second, whatever the size of the space. Search returns it if
its budget ends before it has a program. The descent tries every step that search does, so it may also prove that a Spec
has no program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.impl import Alloc, Expansion, Impl, Loop, expand
from morello.ir.limits import Limits, fits
from morello.ir.numbers import product
from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of, tried_sizes
from morello.rewrites.move import MoveStep, seen_in
from morello.rewrites.select import Select
from morello.search.arrays import Ints

#: Expansions tried at most: with little memory, dead ends may be many.
_MOST = 20_000
#: Iterations from which on it pays to look for a loop or a copy that prepares for a kernel.
_WORTH_A_LOOK = 4096


class NotSoon(Exception):
    """The expansions are used up: there may be a program."""


def first_program(spec: Spec, target: Target) -> Impl | None:
    """Return a program of a Spec, or None if it has none. Raises NotSoon."""
    return _Descent(target).program(spec)


class _Descent:
    """A depth-first search. It tries kernels, then views, loops towards tiles of kernels, pipelines, loops and copies.

    Where no kernel takes any tile, it first tries the loops and copies after which one does.
    """

    def __init__(self, target: Target):
        self._target = target
        self._programs: dict[Spec, Impl] = {}
        #: The limits under which Specs have no program, nor under lower ones.
        self._failed: dict[LogicalSpec, list[Limits]] = {}
        self._left = _MOST
        self._implemented: dict[Operation, bool] = {}
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
        views = [one for one in moves if isinstance(one, Alloc) and one.view]
        # Each tile of a tensor in memory pays its start cost, those of a view of it do not. Views of all operands of a
        # graph lead to dead ends.
        if not isinstance(logical.op, Compose):
            far = [one for one in views if self._target.level(logical.states[one.operand].level).start_cost]
            yield from sorted(far, key=self._nearness)
        # Other views take memory, so they come first only if kernels wait for them.
        if any(fits(call.needs, spec.limits) for seen in self._seen(spec) for call in self._calls(seen)):
            yield from views
        loops = sorted(self._expansions(logical, self._loops), key=lambda one: _fineness(logical, one))
        parallel = [one for one in loops if isinstance(one, Loop) and one.parallel]
        serial = [one for one in loops if one not in parallel]
        # Most kernels are serial.
        yield from parallel
        if found := self._kernel_tile(spec):
            yield from _toward(found[1], logical, serial)
        elif self._has_kernels(logical.op) and int(product(logical.shape)) >= _WORTH_A_LOOK:
            yield from self._preparing(spec, [*serial, *moves])
        yield from sorted(self._expansions(logical, self._pipelines), key=self._nearness)
        yield from serial
        yield from moves

    def _has_kernels(self, op: Operation) -> bool:
        if op not in self._implemented:
            self._implemented[op] = any(kernel.implements(op) for kernel in self._target.kernels)
        return self._implemented[op]

    def _preparing(self, spec: Spec, steps: Sequence[Expansion]) -> list[Expansion]:
        """Return the loops and copies after which there is a kernel for some tile, cheapest first."""
        found: list[tuple[float, Expansion]] = []
        for step in steps:
            main = _main(step)
            # Tiles with the operand states of the whole were looked at.
            if main.op != spec.op or main.states == spec.logical.states:
                continue
            if after := self._kernel_tile(Spec(main, spec.limits)):
                found.append((after[0], step))
        return [step for _, step in sorted(found, key=lambda one: one[0])]

    def _kernel_tile(self, spec: Spec) -> tuple[float, tuple[int, ...]] | None:
        """Return the least cost per iteration by a kernel for a tile in some cache, and the tile's shape, or None."""
        if not self._has_kernels(spec.op):
            return None
        best, tile = float("inf"), None
        shapes = self._tiles(spec.logical)
        for seen in (spec.logical, *self._seen(spec)):
            batch = attrs.evolve(seen, shape=tuple(shapes.T))
            for step in (step for rewrite in self._kernels for step in rewrite.steps(batch, self._target)):
                # Tiles may be smaller than the strips of layouts.
                with suppress(Inapplicable), np.errstate(divide="ignore"):
                    for case in step.cases(batch, self._target):
                        cells = shapes if case.cells is None else shapes[case.cells]
                        costs = np.asarray(case.expansion.cost) / np.prod(cells, axis=1, dtype=np.float64)
                        for need, most in zip(case.expansion.needs, spec.limits, strict=True):
                            costs = np.where(need <= most, costs, np.inf)
                        if costs.min() < best:
                            best, tile = float(costs.min()), tuple(cells[costs.argmin()].tolist())
        return tile and (best, tile)

    def _tiles(self, logical: LogicalSpec) -> Ints:
        """Return shapes of tiles, [n, dimensions]. Reductions are 1 or whole, as most kernels loop over them."""
        rank, sizes = len(logical.shape), list[list[int]]()
        for dim, size in enumerate(map(int, logical.shape)):
            apart = logical.op.writes_apart(rank, dim)
            smaller = tried_sizes(size, self._target) if apart else [1]
            sizes.append(sorted({size, *([] if dim in logical.op.untiled(rank) else smaller)}))
        shapes = np.array([*itertools.product(*sizes)], dtype=np.int64)
        batch = attrs.evolve(logical, shape=tuple(shapes.T))
        with np.errstate(divide="ignore"):
            whole = [batch.operand(at).has_whole_vectors() for at in range(len(logical.states))]
        return shapes[np.all(np.broadcast_arrays(np.ones(len(shapes), dtype=np.bool_), *whole), axis=0)]

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

    def _nearness(self, step: Expansion) -> int:
        """Return the sort key that puts new tensors in slow memory first, the largest."""
        return -sum(self._depth[tensor.state.level] for tensor in step.tensors)


def _main(loop: Expansion) -> LogicalSpec:
    """Return the largest part of a loop, or the part of a copy that uses it."""
    return max((part.logical for part in loop.parts), key=lambda part: (len(part.states), int(product(part.shape))))


def _toward(tile: tuple[int, ...], logical: LogicalSpec, loops: Sequence[Expansion]) -> list[Expansion]:
    """Return the loops over multiples of a tile, first those that cut a dimension to its size."""
    found: list[tuple[bool, int, Expansion]] = []
    for loop in loops:
        main = _main(loop)
        cut = [dim for dim, size in enumerate(main.shape) if size != logical.shape[dim]]
        if main.op == logical.op and not any(int(main.shape[dim]) % tile[dim] for dim in cut):
            coarse = any(main.shape[dim] != tile[dim] for dim in cut)
            found.append((coarse, int(product(main.shape)), loop))
    return [loop for _, _, loop in sorted(found, key=lambda one: one[:2])]


def _fineness(logical: LogicalSpec, loop: Expansion) -> tuple[int, int, int]:
    """Return the sort key that puts large tiles first, of the longest dimension, and those of reductions last.

    Reductions in loops need outputs that are kept, and most kernels have loops for them.
    """
    main = _main(loop)
    if main.op != logical.op:
        return 0, 0, 0
    dim = next((dim for dim, size in enumerate(main.shape) if size != logical.shape[dim]), 0)
    return (
        (1 if logical.op.writes_apart(len(logical.shape), dim) else 2),
        -int(product(main.shape)),
        -int(logical.shape[dim]),
    )
