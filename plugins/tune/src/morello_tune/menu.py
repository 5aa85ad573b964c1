"""The menu that all targets have: optimizations of [Hong2025] as edits of schedules, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import attrs
import pluggy

from morello.ir.impl import KernelCall, Loop
from morello.plugins.discovery import contributions
from morello.plugins.registry import installed
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
    insert_step,
    normal,
    remove_step,
    replace_step,
    sites,
)
from morello_tune.interface import MenuItem, TuningCandidate, installed_plugins

#: Edits that may not apply.
_Edits: TypeAlias = Iterable[Callable[[], Schedule]]
_S = TypeVar("_S", bound=Rewrite)
_Finder: TypeAlias = Callable[[TuningCandidate], _Edits]
#: Steps that make loops.
_LOOPS = (Tile, Split, ExactFit)
#: The items of all targets, in the order in which menus list them.
STANDARD: list[MenuItem] = []


def menu_for(target: str, plugins: pluggy.PluginManager | None = None) -> Mapping[str, MenuItem]:
    """Return the menu of a target by name: the items of all targets, then those of plugins (default: installed).

    Raises PluginError if an item of a plugin is not a MenuItem, or its name is taken.
    """
    own = {one.name: one for one in STANDARD}
    lineage, manager = installed().lineage(target), plugins or installed_plugins()
    return {**own, **contributions(manager, "morello_optimization_menu", lineage, MenuItem, own)}


def any_of(items: Sequence[MenuItem]) -> MenuItem:
    """Return the only item without a menu: any edit."""

    def edits(candidate: TuningCandidate) -> Iterable[Schedule]:
        return (edit for item in items if item.applies(candidate) for edit in item.edits(candidate))

    return MenuItem(name="any", text="change anything", edits=edits)


def sizes_near(extent: int, size: int, multiple: int = 1) -> list[int]:
    """Return other tile sizes than `size`, nearest first: double and half, and the neighbouring divisors."""
    divisors = [one for one in range(1, extent) if extent % one == 0]
    below, above = [one for one in divisors if one < size][-2:], [one for one in divisors if one > size][:2]
    wanted = dict.fromkeys([2 * size, size // 2, *above, *reversed(below), 3 * size // 2, 3 * size // 4, 4 * size])
    return [one for one in wanted if 1 <= one < extent and one != size and one % multiple == 0]


def _item(text: str, *kinds: type[Rewrite], **more: Any) -> Callable[[_Finder], _Finder]:
    """Add the edits of a function to the menu under its name. With `kinds`, the schedule must have such a step."""

    def add(found: _Finder) -> _Finder:
        if kinds:
            more["applies"] = lambda candidate: any(isinstance(site.step, kinds) for site in sites(candidate.impl))
        name = found.__name__.removeprefix("_")
        STANDARD.append(MenuItem(name=name, text=text, edits=lambda one: distinct_edits(one, found(one)), **more))
        return found

    return add


def _loops(candidate: TuningCandidate) -> Iterator[StepSite]:
    return (site for site in sites(candidate.impl) if isinstance(site.node.expansion, Loop))


def _spine(candidate: TuningCandidate) -> Iterator[StepSite]:
    """Yield the nodes along main children."""
    return (site for site in sites(candidate.impl) if site.main)


def _steps_at(candidate: TuningCandidate, site: StepSite, kind: type[_S]) -> Iterator[_S]:
    """Yield the steps of a kind that search would try at a site."""
    tried = kind.steps(site.spec.logical, candidate.target) if kind in rewrites_of(candidate.target) else ()
    return (step for step in tried if isinstance(step, kind))


def _choices(candidate: TuningCandidate, kind: type[_S]) -> Iterator[tuple[StepSite, _S]]:
    """Yield the steps of a kind that search would try along main children, with their sites."""
    return ((site, step) for site in _spine(candidate) for step in _steps_at(candidate, site, kind))


def _with_size(site: StepSite, dim: int, size: int) -> Rewrite:
    """Return a loop's step with another tile size along a dimension."""
    step = site.step
    if isinstance(step, Split):
        return attrs.evolve(step, size=size)
    assert isinstance(step, Tile)
    sizes = list(per_dimension(step.sizes, site.spec.logical))
    sizes[dim] = size
    return normal(attrs.evolve(step, sizes=tuple(sizes)), site.spec)


def _tiled(site: StepSite) -> Iterator[tuple[int, int]]:
    """Yield the dimensions that a loop tiles, with their tile sizes."""
    step, logical = site.step, site.spec.logical
    if isinstance(step, Split):
        yield from ((dim, step.size) for dim in splittable(logical))
    elif isinstance(step, Tile):
        for dim, (size, whole) in enumerate(zip(per_dimension(step.sizes, logical), logical.shape, strict=True)):
            if size and size < int(whole):
                yield dim, size


def _other_sizes(candidate: TuningCandidate, site: StepSite) -> _Edits:
    logical = site.spec.logical
    for dim, size in _tiled(site):
        whole, wanted = int(logical.shape[dim]), candidate.target.tile_sizes(logical.op).get(dim, frozenset[int]())
        near = sizes_near(whole, size, logical.op.tile_multiple(dim))
        for other in dict.fromkeys([*near, *sorted(one for one in wanted if one < whole)]):
            yield partial(replace_step, candidate, site, _with_size(site, dim, other))


@_item(
    "change the sizes of tiles",
    Tile,
    Split,
    phase="early",
    triggers=("tile", "tiling", "size"),
    example="""\
Larger tiles of columns for a product of 512×512 matrices, so that each part of the second matrix is read for more
rows. Before:
    tile [0, 0, 0, 64]
    move 1 to L2
    synthesize
After, with tiles of 128 columns:
    tile [0, 0, 0, 128]
    move 1 to L2
    synthesize""",
)
def _tile(candidate: TuningCandidate) -> _Edits:
    return (edit for site in _loops(candidate) for edit in _other_sizes(candidate, site))


@_item(
    "exchange a loop with the next one inside it",
    *_LOOPS,
    phase="early",
    triggers=("reorder", "exchange", "order"),
    example="""\
Loops over rows and columns exchanged, so that rows stay while columns go by. Before:
    tile [0, 64, 0, 0]
    tile [0, 0, 0, 128]
    synthesize
After:
    tile [0, 0, 0, 128]
    tile [0, 64, 0, 0]
    synthesize""",
)
def _reorder(candidate: TuningCandidate) -> _Edits:
    for site in _loops(candidate):
        if site.below and isinstance(site.below.node.expansion, Loop):
            yield partial(exchange_steps, candidate, site)


@_item("split a loop: tile another dimension, or the tiles again", phase="early")
def _split(candidate: TuningCandidate) -> _Edits:
    for site, step in _choices(candidate, Tile):
        if not step.parallel:
            yield partial(insert_step, candidate, site, step)


@_item("split the loop over a sum, so that its parts add up one after another")
def _k_split(candidate: TuningCandidate) -> _Edits:
    """Insert `to_accum` before, where the sum is not initialized yet."""
    for site in _spine(candidate):
        accumulating, logical = site.spec.op.accumulating(), site.spec.logical
        before = [] if accumulating is None else [ToAccum()]
        if before and ToAccum not in rewrites_of(candidate.target):
            continue
        dims = splittable(attrs.evolve(logical, op=accumulating or logical.op))
        for dim in dims:
            for size in sizes_near(int(logical.shape[dim]), int(logical.shape[dim])):
                sizes = tuple(size if at == dim else 0 for at in range(len(logical.shape)))
                if size > 1:
                    step = Split(size) if len(dims) == 1 else Tile(sizes)
                    yield partial(insert_step, candidate, site, *before, step)
        if isinstance(site.step, Split):
            yield from _other_sizes(candidate, site)


@_item("fuse loops: remove a loop, so that the one around it does its work", *_LOOPS)
def _fuse(candidate: TuningCandidate) -> _Edits:
    return (partial(remove_step, candidate, site) for site in _loops(candidate))


def _exchanged(candidate: TuningCandidate, outer: tuple[type, ...], inner: tuple[type, ...]) -> _Edits:
    for site in sites(candidate.impl):
        if isinstance(site.step, outer) and site.below and isinstance(site.below.step, inner):
            yield partial(exchange_steps, candidate, site)


@_item(
    "move data to a faster level outside of a loop, not inside, or set up sums there",
    MoveStep,
    ToAccum,
    triggers=("hoist", "move", "reuse"),
    example="""\
The second matrix moved to L2 once for all rows, not for each tile of them. Before:
    tile [0, 64, 0, 0]
    move 1 to L2
    synthesize
After:
    move 1 to L2
    tile [0, 64, 0, 0]
    synthesize""",
)
def _hoist(candidate: TuningCandidate) -> _Edits:
    return _exchanged(candidate, _LOOPS, (MoveStep, ToAccum))


@_item("move data inside of a loop, so that less is held at a time", MoveStep, ToAccum)
def _sink(candidate: TuningCandidate) -> _Edits:
    return _exchanged(candidate, (MoveStep, ToAccum), _LOOPS)


@_item("move an operand to a faster level")
def _place(candidate: TuningCandidate) -> _Edits:
    for site, step in _choices(candidate, MoveStep):
        if not _lays_out(step, site):
            yield partial(insert_step, candidate, site, step)


@_item(
    "copy an operand into another layout, such as strips that kernels read in a row",
    triggers=("pack", "layout", "strip"),
    example="""\
The second matrix packed into strips of 16 columns outside of the loop over rows. Before:
    tile [0, 64, 0, 0]
    synthesize
After:
    move 1 to GL as layout[0, 2, 1, 2p16]
    tile [0, 64, 0, 0]
    synthesize""",
)
def _pack(candidate: TuningCandidate) -> _Edits:
    for site, step in _choices(candidate, MoveStep):
        if _lays_out(step, site):
            other = isinstance(site.step, MoveStep) and site.step.operand == step.operand
            yield partial(replace_step if other else insert_step, candidate, site, step)


def _lays_out(step: MoveStep, site: StepSite) -> bool:
    """Return True if a move copies an operand into another layout, in a cache or memory."""
    operand = site.spec.logical.operand(step.operand)
    layout = operand.state.layout
    if step.vector is not None or step.layout is None or layout is None:
        return False
    return step.layout not in (layout, layout_name(layout, len(operand.shape)))


@_item("minimize data movement: leave out a move", MoveStep, phase="late")
def _drop_move(candidate: TuningCandidate) -> _Edits:
    return (partial(remove_step, candidate, site) for site in sites(candidate.impl) if isinstance(site.step, MoveStep))


@_item("cover a dimension exactly by tiles of several sizes, without boundaries")
def _fit(candidate: TuningCandidate) -> _Edits:
    """Replace a loop with boundary tiles, or add a loop before it."""
    for site, step in _choices(candidate, ExactFit):
        if isinstance(site.step, Tile | ExactFit):
            yield partial(replace_step, candidate, site, step)
        yield partial(insert_step, candidate, site, step)


@_item("unroll: larger or other tiles of registers right above a kernel", Tile, Split, phase="late")
def _register_tile(candidate: TuningCandidate) -> _Edits:
    """Change the loops right above kernels, or remove them, so that a kernel does their work."""
    for site in _loops(candidate):
        if site.below and isinstance(site.below.node.expansion, KernelCall):
            yield from _other_sizes(candidate, site)
            yield partial(remove_step, candidate, site)


@_item("substitute another microkernel that computes the same", phase="late")
def _kernel(candidate: TuningCandidate) -> _Edits:
    """Replace a microkernel, or a loop over its calls, by another one."""
    for site in sites(candidate.impl):
        for step in _steps_at(candidate, site, Select):
            yield partial(child_started, candidate, site, step)


def _is_shared(candidate: TuningCandidate) -> bool:
    return not candidate.spec.logical.serial and candidate.target.weights.threads > 1


@_item("let threads share other tiles of the outermost loop", applies=_is_shared, phase="early")
def _threads(candidate: TuningCandidate) -> _Edits:
    for site, step in _choices(candidate, Tile):
        if site.spec.logical.serial:
            return
        if step.parallel:
            same = isinstance(site.step, Tile) and site.step.parallel
            yield partial(replace_step if same else insert_step, candidate, site, step)


@_item("leave a part of the program to search, or anything not listed here", phase="late")
def _search(candidate: TuningCandidate) -> _Edits:
    return (partial(child_started, candidate, site) for site in sites(candidate.impl) if site.path)
