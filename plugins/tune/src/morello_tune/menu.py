"""The menu that all targets have: optimizations of [Hong2025] as edits of schedules, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs
import pluggy

from morello.ir.impl import KernelCall, Loop
from morello.ir.spec import LogicalSpec
from morello.plugins.discovery import contributions
from morello.rewrites.base import Rewrite, layout_name, rewrites_of
from morello.rewrites.fit import ExactFit
from morello.rewrites.move import MoveStep
from morello.rewrites.select import Select
from morello.rewrites.split import Split, splittable
from morello.rewrites.tile import Tile, per_dimension
from morello.rewrites.to_accum import ToAccum
from morello.schedule import Schedule
from morello_tune.edits import (
    StepSite,
    child_started,
    distinct_edits,
    exchange_steps,
    expand_leaf,
    insert_step,
    normal,
    remove_step,
    replace_step,
    sites,
)
from morello_tune.examples import MOVE, PACK, REORDER, TILE
from morello_tune.hooks import installed_plugins
from morello_tune.interface import MenuItem, TuningCandidate

#: Steps that make loops.
_LOOPS = (Tile, Split, ExactFit)


def menu_for(target: str, plugins: pluggy.PluginManager | None = None) -> Mapping[str, MenuItem]:
    """Return the menu of a target by name: the items of all targets, then those of plugins (default: installed).

    Raises PluginError for a plugin whose item has a name that is taken, or is not a MenuItem.
    """
    own = {one.name: one for one in STANDARD}
    return {**own, **contributions(plugins or installed_plugins(), "morello_optimization_menu", target, MenuItem, own)}


def sizes_near(extent: int, size: int, multiple: int = 1) -> list[int]:
    """Return other sizes of tiles than `size`, nearest first: twice and half, and the neighbouring divisors."""
    divisors = [one for one in range(1, extent) if extent % one == 0]
    below, above = [one for one in divisors if one < size][-2:], [one for one in divisors if one > size][:2]
    wanted = dict.fromkeys([2 * size, size // 2, *above, *reversed(below), 3 * size // 2, 3 * size // 4, 4 * size])
    return [one for one in wanted if 1 <= one < extent and one != size and one % multiple == 0]


def _loops(candidate: TuningCandidate) -> Iterator[StepSite]:
    return (site for site in sites(candidate.impl) if isinstance(site.node.expansion, Loop))


def _spine(candidate: TuningCandidate) -> Iterator[StepSite]:
    """Yield the nodes on the way along main children."""
    return (site for site in sites(candidate.impl) if site.main)


def _with_size(site: StepSite, dim: int, size: int) -> Rewrite | None:
    """Return a loop's step with another size of tiles along a dimension; 0 leaves it whole, None if nothing is left."""
    step, logical = site.step, site.spec.logical
    if isinstance(step, Split):
        return attrs.evolve(step, size=size) if size else None
    assert isinstance(step, Tile)
    sizes = list(per_dimension(step.sizes, logical))
    sizes[dim] = size
    changed = normal(attrs.evolve(step, sizes=tuple(sizes)), site.spec)
    assert isinstance(changed, Tile)
    return changed if any(changed.sizes) else None


def _tiled(site: StepSite) -> Iterator[tuple[int, int]]:
    """Yield the dimensions that a loop has tiles of, with their sizes."""
    step, logical = site.step, site.spec.logical
    if isinstance(step, Split):
        yield from ((dim, step.size) for dim in splittable(logical))
    elif isinstance(step, Tile):
        for dim, (size, whole) in enumerate(zip(per_dimension(step.sizes, logical), logical.shape, strict=True)):
            if size and size < int(whole):
                yield dim, size


def _other_sizes(candidate: TuningCandidate, site: StepSite) -> Iterator[Callable[[], Schedule]]:
    logical = site.spec.logical
    for dim, size in _tiled(site):
        asked = candidate.target.tile_sizes(logical.op).get(dim, frozenset[int]())
        near = sizes_near(int(logical.shape[dim]), size, logical.op.tile_multiple(dim))
        for other in dict.fromkeys([*near, *sorted(one for one in asked if one < int(logical.shape[dim]))]):
            if step := _with_size(site, dim, other):
                yield partial(replace_step, candidate, site, step)


def _tile(candidate: TuningCandidate) -> Iterator[Schedule]:
    found = (edit for site in _loops(candidate) for edit in _other_sizes(candidate, site))
    return distinct_edits(candidate, found)


def _register_tile(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Change the loops right above kernels, or let kernels do what they loop over."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _loops(candidate):
            if site.below and isinstance(site.below.node.expansion, KernelCall):
                yield from _other_sizes(candidate, site)
                yield partial(remove_step, candidate, site)

    return distinct_edits(candidate, found())


def _steps_at(candidate: TuningCandidate, site: StepSite, kind: type[Rewrite]) -> Iterator[Rewrite]:
    """Yield the steps of a kind that search would try at a site."""
    if kind in rewrites_of(candidate.target):
        yield from kind.steps(site.spec.logical, candidate.target)


def _split(candidate: TuningCandidate) -> Iterator[Schedule]:
    found = (
        partial(insert_step, candidate, site, step)
        for site in _spine(candidate)
        for step in _steps_at(candidate, site, Tile)
        if isinstance(step, Tile) and not step.parallel
    )
    return distinct_edits(candidate, found)


def _k_split(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Add parts of sums up one after another, setting up the sum before where that is not done yet."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _spine(candidate):
            accumulating, logical = site.spec.op.accumulating(), site.spec.logical
            before = [ToAccum()] if accumulating is not None else []
            if ToAccum not in rewrites_of(candidate.target) and before:
                continue
            for step in _reductions(attrs.evolve(logical, op=accumulating or logical.op)):
                yield partial(insert_step, candidate, site, *before, step)
            if isinstance(site.step, Split):
                yield from _other_sizes(candidate, site)

    return distinct_edits(candidate, found())


def _reductions(logical: LogicalSpec) -> Iterator[Rewrite]:
    dims = splittable(logical)
    for dim in dims:
        extent = int(logical.shape[dim])
        for size in [one for one in sizes_near(extent, extent) if one > 1]:
            yield (
                Split(size)
                if len(dims) == 1
                else Tile(tuple(size if at == dim else 0 for at in range(len(logical.shape))))
            )


def _reorder(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Let a loop go on inside the next one, or the one after that."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _loops(candidate):
            if site.below and isinstance(site.below.node.expansion, Loop):
                yield partial(exchange_steps, candidate, site)

    return distinct_edits(candidate, found())


def _fuse(candidate: TuningCandidate) -> Iterator[Schedule]:
    return distinct_edits(candidate, (partial(remove_step, candidate, site) for site in _loops(candidate)))


def _moves(candidate: TuningCandidate) -> Iterator[StepSite]:
    return (site for site in sites(candidate.impl) if isinstance(site.step, MoveStep))


def _hoist(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Move operands, or set up sums, before a loop instead of inside it."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            below = site.below
            if isinstance(site.step, _LOOPS) and below and isinstance(below.step, MoveStep | ToAccum):
                yield partial(exchange_steps, candidate, site)

    return distinct_edits(candidate, found())


def _sink(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Move operands, or set up sums, inside the next loop: what is held gets smaller."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            below = site.below
            if isinstance(site.step, MoveStep | ToAccum) and below and isinstance(below.step, _LOOPS):
                yield partial(exchange_steps, candidate, site)

    return distinct_edits(candidate, found())


def _place(candidate: TuningCandidate) -> Iterator[Schedule]:
    found = (
        partial(insert_step, candidate, site, step)
        for site in _spine(candidate)
        for step in _steps_at(candidate, site, MoveStep)
        if isinstance(step, MoveStep) and not _lays_out(step, site)
    )
    return distinct_edits(candidate, found)


def _pack(candidate: TuningCandidate) -> Iterator[Schedule]:
    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _spine(candidate):
            for step in _steps_at(candidate, site, MoveStep):
                if isinstance(step, MoveStep) and _lays_out(step, site):
                    other = isinstance(site.step, MoveStep) and site.step.operand == step.operand
                    yield partial(replace_step if other else insert_step, candidate, site, step)

    return distinct_edits(candidate, found())


def _lays_out(step: MoveStep, site: StepSite) -> bool:
    """Return True if a move copies an operand into another layout, in a cache or memory."""
    operand = site.spec.logical.operand(step.operand)
    layout = operand.state.layout
    if step.vector is not None or step.layout is None or layout is None:
        return False
    return step.layout not in (layout, layout_name(layout, len(operand.shape)))


def _drop_move(candidate: TuningCandidate) -> Iterator[Schedule]:
    return distinct_edits(candidate, (partial(remove_step, candidate, site) for site in _moves(candidate)))


def _fit(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Cover a dimension exactly, in place of a loop that leaves boundaries or beside it."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _spine(candidate):
            for step in _steps_at(candidate, site, ExactFit):
                if isinstance(site.step, Tile | ExactFit):
                    yield partial(replace_step, candidate, site, step)
                yield partial(insert_step, candidate, site, step)

    return distinct_edits(candidate, found())


def _kernel(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Let another microkernel do what one does, or what a loop over calls of one does."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in sites(candidate.impl):
            for step in _steps_at(candidate, site, Select):
                yield partial(child_started, candidate, site, step)

    return distinct_edits(candidate, found())


def _threads(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Let threads share other tiles of the outermost loop, or fewer at a time."""

    def found() -> Iterator[Callable[[], Schedule]]:
        for site in _spine(candidate):
            if site.spec.logical.serial:
                return
            for step in _steps_at(candidate, site, Tile):
                if isinstance(step, Tile) and step.parallel:
                    same = isinstance(site.step, Tile) and site.step.parallel
                    yield partial(replace_step if same else insert_step, candidate, site, step)

    return distinct_edits(candidate, found())


def _search(candidate: TuningCandidate) -> Iterator[Schedule]:
    """Leave a part of the program to search, with the steps before it as they are."""
    found = (partial(expand_leaf, candidate, site) for site in sites(candidate.impl) if site.path)
    return distinct_edits(candidate, found)


def _has(*kinds: type[Rewrite]) -> Callable[[TuningCandidate], bool]:
    return lambda candidate: any(isinstance(site.step, kinds) for site in sites(candidate.impl))


def _is_shared(candidate: TuningCandidate) -> bool:
    return not candidate.spec.logical.serial and candidate.target.weights.threads > 1


#: In the order in which menus list them.
STANDARD: tuple[MenuItem, ...] = (
    MenuItem(
        name="tile",
        text="change the sizes of tiles",
        edits=_tile,
        applies=_has(Tile, Split),
        phase="early",
        example=TILE,
        triggers=("tile", "tiling", "size"),
    ),
    MenuItem(
        name="reorder",
        text="exchange a loop with the next one inside it",
        edits=_reorder,
        applies=_has(*_LOOPS),
        phase="early",
        example=REORDER,
        triggers=("reorder", "exchange", "order"),
    ),
    MenuItem(
        name="split", text="split a loop: tile another dimension, or the tiles again", edits=_split, phase="early"
    ),
    MenuItem(
        name="k_split", text="split the loop over a sum, so that its parts add up one after another", edits=_k_split
    ),
    MenuItem(
        name="fuse",
        text="fuse loops: take one out, so that what it is around does its work",
        edits=_fuse,
        applies=_has(*_LOOPS),
    ),
    MenuItem(
        name="hoist",
        text="move data to a faster level outside of a loop, not inside, or set up sums there",
        edits=_hoist,
        applies=_has(MoveStep, ToAccum),
        example=MOVE,
        triggers=("hoist", "move", "reuse"),
    ),
    MenuItem(
        name="sink",
        text="move data inside of a loop, so that less is held at a time",
        edits=_sink,
        applies=_has(MoveStep, ToAccum),
    ),
    MenuItem(name="place", text="move an operand to a faster level", edits=_place),
    MenuItem(
        name="pack",
        text="copy an operand into another layout, such as strips that kernels read in a row",
        edits=_pack,
        example=PACK,
        triggers=("pack", "layout", "strip"),
    ),
    MenuItem(
        name="drop_move",
        text="minimize data movement: leave out a move",
        edits=_drop_move,
        applies=_has(MoveStep),
        phase="late",
    ),
    MenuItem(name="fit", text="cover a dimension exactly by tiles of several sizes, without boundaries", edits=_fit),
    MenuItem(
        name="register_tile",
        text="unroll: larger or other tiles of registers right above a kernel",
        edits=_register_tile,
        applies=_has(Tile, Split),
        phase="late",
    ),
    MenuItem(name="kernel", text="substitute another microkernel that computes the same", edits=_kernel, phase="late"),
    MenuItem(
        name="threads",
        text="let threads share other tiles of the outermost loop",
        edits=_threads,
        applies=_is_shared,
        phase="early",
    ),
    MenuItem(
        name="search",
        text="leave a part of the program to search, or anything not listed here",
        edits=_search,
        phase="late",
    ),
)
