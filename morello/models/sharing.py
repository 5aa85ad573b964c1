"""Loops of finished programs that threads share: a search that tries them takes much longer than one for one thread."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress

import attrs

from morello.api.goals import Goal
from morello.errors import Inapplicable
from morello.ir.impl import Impl, Leaf, Node, StepLike, cost_and_peak
from morello.ir.layout import Dynamic, Layout, Packed
from morello.ir.numbers import ceil_div
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.rewrites.base import Rewrite
from morello.rewrites.fit import ExactFit
from morello.rewrites.pack import Pack
from morello.rewrites.tile import Tile, per_dimension
from morello.schedule import Position, rewrite_leaf

#: The price of a parallel loop, in empty ones: threads fetch operands from each other's caches, and wait for the last.
#: On Zen 4, Relu of 128 KiB takes 1.2 µs longer on two threads than on one, of 512 KiB 3.8 µs less; an empty loop
#: takes 0.25 µs. Loops inside of others cost more, as threads read what others wrote in the last one.
_STARTS = 8
#: The runs of values in memory, each next to one that another thread writes, that cost as much as an empty loop. Two
#: threads that share the channels of 49 pixels take up to 19 µs longer than half of the time of one thread.
_RUNS = 2


@attrs.frozen
class _Loop:
    """A step in place of a node's, a parallel loop or a layout for its tiles; or such a loop `around` its program."""

    step: Tile | ExactFit | Pack
    around: bool


def shared(goal: Goal, threads: int) -> Goal:
    """Return a finished goal with the loops of its program that so many threads share at the least cost.

    These are all loops but those inside one another, and new ones over equal tiles, around parts of the program that
    fit such tiles. The goal stays as it is where none makes its program faster.
    """
    logical = goal.spec.logical
    if threads == 1 or not logical.serial:
        return goal
    target = installed().with_threads(goal.target, threads)
    saved, loops = _best(goal.impl, 1, target)
    if not saved:
        return goal
    spec = Spec(_parallel(logical), goal.spec.limits)
    impl = _on(goal.impl, spec, loops, target)
    packs = {} if any(isinstance(loop.step, Pack) for loop in loops.values()) else goal.packs
    # No bound is known for programs with parallel loops.
    unknown = {"bounds": {spec: 1}, "before_search": Leaf(spec), "packs_found": packs}
    return attrs.evolve(goal, spec=spec, target=target, position=Position(impl), **unknown)


def _parallel(logical: LogicalSpec) -> LogicalSpec:
    return attrs.evolve(logical, serial=False)


def _best(impl: Impl, runs: int, target: Target) -> tuple[int, Mapping[int, _Loop]]:
    """Return the cost that parallel loops save in all runs of a program, and these loops by the `id` of their nodes."""
    if not isinstance(impl, Node):
        return 0, {}
    cost, threads = cost_and_peak(impl).cost, target.weights.threads
    most = runs * (cost - ceil_div(cost, threads) - _STARTS * target.weights.sync)
    if most <= 0:
        return 0, {}
    parts = [*zip(impl.expansion.parts, impl.children, strict=True)]
    found = [_best(child, runs * int(part.times), target) for part, child in parts]
    below = sum(saved for saved, _ in found)
    saved, own = max(_loops(impl, target), key=lambda one: one[0], default=(0, {})) if most > below else (0, {})
    if runs * saved > below:
        return runs * saved, own
    return below, {node: one for _, loops in found for node, one in loops.items()}


def _loops(impl: Node, target: Target) -> Iterator[tuple[int, Mapping[int, _Loop]]]:
    """Yield parallel loops for a node, with the cost that each saves: its own, and those over equal tiles.

    These are the largest along a dimension that fit, and smaller ones of which no thread has as much. Of constants that
    are packed, each tile is in one piece.
    """
    step = impl.expansion.step
    if isinstance(step, Tile | ExactFit):
        yield from _saved(impl, impl, {id(impl): _Loop(attrs.evolve(step, parallel=True), around=False)}, target)
    inner = impl.children[0] if isinstance(step, Pack) else impl
    assert isinstance(inner, Node)
    shape = tuple(map(int, inner.spec.logical.shape))
    for dim, extent in enumerate(shape):
        least = extent
        for size in range(extent // 2, 0, -1):
            most = ceil_div(extent // size, target.weights.threads) * size
            if extent % size or most >= least:
                continue
            tile = Tile(tuple(size if at == dim else 0 for at in range(len(shape))), parallel=True)
            loops = {id(inner): _Loop(tile, around=True)}
            if isinstance(step, Pack):
                pieces = _in_pieces(step, inner.spec.logical, dim, size)
                if pieces is None:
                    continue
                loops[id(impl)] = _Loop(pieces, around=False)
            found = [*_saved(impl, inner, loops, target)]
            least = most if found else least
            yield from found


def _in_pieces(step: Pack, logical: LogicalSpec, dim: int, size: int) -> Pack | None:
    """Return the step with the values of each tile of a dimension next to each other, where they are not yet."""
    layout = logical.states[step.operand].layout
    assert layout is not None
    for at, terms in enumerate(logical.declared[step.operand].dims):
        strip, rest = divmod(size, math.prod(one.size or 1 for one in layout.dims if one.dim == at))
        if terms[0][0] == dim and Dynamic(at) in layout.dims[1:] and strip > 1 and not rest:
            inside = (Packed(at, strip) if one == Dynamic(at) else one for one in layout.dims)
            return attrs.evolve(step, layout=Layout((Dynamic(at), *inside)))
    return None


def _saved(
    impl: Node, inner: Node, loops: Mapping[int, _Loop], target: Target
) -> Iterator[tuple[int, Mapping[int, _Loop]]]:
    """Yield the cost that loops save with a parallel one for an inner node, and these, if the program fits them."""
    spec, step = Spec(_parallel(impl.spec.logical), impl.spec.limits), loops[id(inner)].step
    assert not isinstance(step, Pack)
    with suppress(Inapplicable):
        cost = cost_and_peak(_on(impl, spec, loops, target)).cost
        price = target.weights.sync * (_STARTS - 1 + _runs(inner.spec.logical, step) // _RUNS)
        yield cost_and_peak(impl).cost - cost - price, loops


def _runs(logical: LogicalSpec, step: Tile | ExactFit) -> int:
    """Return how many runs of values in memory a tile of an output has."""
    if isinstance(step, Tile):
        sizes = per_dimension(step.sizes, logical)
    else:
        sizes = tuple(step.sizes[0] if dim == step.dim else 0 for dim in range(len(logical.shape)))
    tile = [size or int(extent) for size, extent in zip(sizes, logical.shape, strict=True)]
    found = 0
    for one, tensor in zip(logical.declared, logical.operands, strict=True):
        part, count = one.shape(tile), 1
        assert tensor.state.layout is not None
        for physical in tensor.state.layout.dims:
            if part[physical.dim] != tensor.shape[physical.dim]:
                break
            count *= physical.size or int(tensor.shape[physical.dim])
        found = max(found, count * one.writes)
    return found


def _on(impl: Impl, spec: Spec, loops: Mapping[int, _Loop], target: Target) -> Impl:
    """Return the program with these loops for another Spec of its operation. Raises Inapplicable if it fits none."""
    assert isinstance(impl, Node)
    if spec == impl.spec:
        return impl
    # Below a parallel loop, Specs are serial, and a node may be in several places.
    loop = None if spec.logical.serial else loops.get(id(impl))
    if not loop and (same := [child for child in impl.children if child.spec == spec]):
        return same[0]
    step = loop.step if loop else _within(impl.expansion.step, spec.logical)
    if step is None:
        return _on(impl.children[0], spec, loops, target)
    assert isinstance(step, Rewrite)
    made = rewrite_leaf(spec, step, target)
    below = (impl,) if loop and loop.around else impl.children
    if isinstance(step, Tile) and len(below) != len(made.children):
        # Other tiles are at the edges: they run what the first one runs.
        below = (below[0],) * len(made.children)
    if len(below) != len(made.children):
        raise Inapplicable(f"`{step}` has {len(made.children)} parts, not {len(below)}", "use other sizes")
    children = (_on(child, leaf.spec, loops, target) for child, leaf in zip(below, made.children, strict=True))
    return attrs.evolve(made, children=tuple(children))


def _within(step: StepLike, logical: LogicalSpec) -> StepLike | None:
    """Return a step with tiles of at most a Spec's size; None if none of them is smaller."""
    if not isinstance(step, Tile):
        return step
    sizes = tuple(map(min, per_dimension(step.sizes, logical), map(int, logical.shape)))
    whole = all(size in (0, extent) for size, extent in zip(sizes, logical.shape, strict=True))
    return None if whole else attrs.evolve(step, sizes=sizes)
