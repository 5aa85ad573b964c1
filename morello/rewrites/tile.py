"""tile: a loop over tiles of the output, or of the whole iteration space (paper §2, Figure 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product as combinations
from typing import TYPE_CHECKING, Any, ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Loop, Part, Segment
from morello.ir.layout import Fit
from morello.ir.numbers import Cells, choose, product, take
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.rewrites.base import (
    Case,
    Rewrite,
    argument,
    by_group,
    masked,
    powers_of_two_below,
    require,
    select_cells,
    within,
)

if TYPE_CHECKING:
    from morello.plugins.target import Target


@attrs.frozen(cache_hash=True)
class Tile(Rewrite):
    """`tile [1, 64, 64]`: tiles of this shape of the output; with a size per iteration dimension, also of those.

    Sizes that do not divide leave boundary tiles, each kind with a body of its own. Tiling a reduction needs
    an operation that accumulates.
    """

    keyword: ClassVar[str] = "tile"
    structural: ClassVar[bool] = True
    sizes: tuple[int, ...] = argument(tuple)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        rank = len(logical.shape)
        for dim in _searched(logical):
            for size in powers_of_two_below(logical.shape[dim]):
                if size % logical.op.granule(dim) == 0:
                    yield cls(tuple(size if dim == other else 0 for other in range(rank)))

    def cases(self, logical: LogicalSpec, target: Target) -> Iterator[Case]:
        yield from loop_cases(logical, _per_dimension(self.sizes, logical), self, target)


def _searched(logical: LogicalSpec) -> list[int]:
    """The dimensions that search tiles: of reductions only where `split` cannot, because there are several."""
    rank = len(logical.shape)
    reductions, whole = logical.op.reductions(rank), logical.op.untiled(rank)
    free = [dim for dim in reductions if dim not in whole]
    return [dim for dim in range(rank) if dim not in whole and (dim not in reductions or len(free) > 1)]


def _per_dimension(sizes: tuple[int, ...], logical: LogicalSpec) -> tuple[int, ...]:
    """Tile sizes by iteration dimension; 0 keeps a dimension whole."""
    rank = len(logical.shape)
    if len(sizes) == rank:
        return sizes
    output = [dim for dim in range(rank) if dim not in logical.op.reductions(rank)]
    if len(sizes) != len(output):
        names = logical.dims
        raise Inapplicable(
            f"tile takes {len(output)} sizes ({'×'.join(names[dim] for dim in output)}) or {rank} "
            f"({'×'.join(names)}) for {logical.op}, not {len(sizes)}"
        )
    given = dict(zip(output, sizes, strict=True))
    return tuple(given.get(dim, 0) for dim in range(rank))


def loop_cases(logical: LogicalSpec, sizes: tuple[int, ...], step: Rewrite, target: Target) -> Iterator[Case]:
    """Loops over tiles of `sizes` per iteration dimension (0: whole), boundary bodies included."""
    tiles = tuple(size or whole for size, whole in zip(sizes, logical.shape, strict=True))
    mask = _check(logical, sizes)
    inside = masked(None, mask)
    batch = select_cells(logical, inside)
    tiles = tuple(take(tile, inside) for tile in tiles)
    rests = [size % tile for size, tile in zip(batch.shape, tiles, strict=True)]
    tiled = [dim for dim, size in enumerate(sizes) if size]
    corners = list(combinations(*([False, True] if dim in tiled else [False] for dim in range(len(sizes)))))
    shapes = [
        tuple(
            choose(rest > 0, rest, tile) if edge else tile
            for edge, rest, tile in zip(corner, rests, tiles, strict=True)
        )
        for corner in corners
    ]
    codes: list[Any] = [(rests[dim] > 0) * 1 for dim in tiled]
    for shape in shapes:
        codes += _tile_codes(batch, shape, target)

    def loops(group: tuple[int, ...], cells: Cells) -> Iterator[Case]:
        edges = {dim for dim, code in zip(tiled, group, strict=False) if code}
        states = _tile_states(batch, len(corners), group[len(tiled) :], step)
        bodies = [
            (corner, LogicalSpec(batch.op, tuple(take(size, cells) for size in shape), own, batch.serial))
            for (corner, shape), own in zip(zip(corners, shapes, strict=True), states, strict=True)
            if all(dim in edges for dim, edge in enumerate(corner) if edge)
        ]
        for case in _loop(select_cells(batch, cells), bodies, step, target):
            yield Case(within(inside, within(cells, case.cells)), case.expansion)

    yield from by_group(codes, loops)


def _check(logical: LogicalSpec, sizes: tuple[int, ...]) -> Any:
    names, whole = logical.dims, logical.op.untiled(len(logical.shape))
    fine: Any = True
    smaller: Any = False
    for dim, (size, extent) in enumerate(zip(sizes, logical.shape, strict=True)):
        if size < 0:
            raise Inapplicable(f"tile size {size} of {names[dim]} is not positive")
        if size:
            granule = logical.op.granule(dim)
            if size % granule:
                fine = fine & require(
                    size >= extent,
                    f"tile size {size} of {names[dim]} is no multiple of {granule}",
                    f"{logical.op} takes {granule} values along {names[dim]} together",
                )
            fine = fine & require(size <= extent, f"tile size {size} of {names[dim]} is larger than {extent}")
            smaller = smaller | (size < extent)
            if dim in whole:
                require(
                    size == extent,
                    f"{logical.op} needs {names[dim]} whole: tiles of it add up",
                    "rewrite it with to_accum first",
                )
    return fine & require(smaller, f"tile {list(sizes)} is as large as {logical.op} itself, so nothing gets smaller")


def _tile_codes(logical: LogicalSpec, shape: tuple[Any, ...], target: Target) -> list[Any]:
    codes: list[Any] = []
    declared = logical.op.operands(len(shape))
    for one, state in zip(declared, logical.states, strict=True):
        alignment = target.level(state.level).alignment
        codes += state.tile_codes(one.shape(logical.shape), one.shape(shape), alignment)
    return codes


def _tile_states(
    logical: LogicalSpec, corners: int, codes: Sequence[int], step: Rewrite
) -> list[tuple[OperandState, ...]]:
    """The operand states of each kind of tile."""
    states: list[OperandState] = []
    waiting = list(codes)
    for state in logical.states * corners:
        count = 0 if state.layout is None else len(state.layout.dims) + 1
        own, waiting = waiting[:count], waiting[count:]
        if Fit.STRADDLES in own[:-1]:
            raise Inapplicable(f"`{step}` breaks up strips of {state.layout}")
        states.append(state.tiled(own))
    width = len(logical.states)
    return [tuple(states[start : start + width]) for start in range(0, len(states), width)]


def _loop(
    whole: LogicalSpec, bodies: list[tuple[tuple[bool, ...], LogicalSpec]], step: Rewrite, target: Target
) -> Iterator[Case]:
    """The loop over bodies that all cells have in common, where tiles keep whole vectors."""
    fine: Any = True
    for _, body in bodies:
        for one, tensor in zip(body.op.operands(len(body.shape)), body.operands, strict=True):
            fine = fine & require(
                tensor.has_whole_vectors(),
                f"`{step}` cuts {one.name} into tiles that split its vectors of {tensor.state.vector}",
            )
    require(fine, f"`{step}` splits vectors")
    cells = masked(None, fine)
    kept = select_cells(whole, cells)
    main = [take(size, cells) for size in bodies[0][1].shape]
    parts = tuple(_part(kept, main, corner, select_cells(body, cells), target) for corner, body in bodies)
    yield Case(cells, Loop(step, 0, target.nothing(), parts))


def _part(whole: LogicalSpec, main: list[Any], corner: tuple[bool, ...], body: LogicalSpec, target: Target) -> Part:
    region = tuple(
        Segment(size // tile * tile, size % tile, 1) if edge else Segment(0, tile, size // tile)
        for edge, size, tile in zip(corner, whole.shape, main, strict=True)
    )
    return Part(
        logical=body,
        args=tuple(range(len(whole.states))),
        times=product(segment.trips for segment in region),
        live=target.nothing(),
        region=region,
        role="boundary" if any(corner) else "body",
    )
