"""tile: a loop over tiles of the output, or of the whole iteration space ([Kaufman2025] §2, Figure 1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations as subsets
from itertools import product as combinations
from typing import ClassVar, Self

import attrs

from morello.errors import Inapplicable
from morello.ir.impl import Loop, Part, TileRange
from morello.ir.numbers import CellIndices, Mask, Num, ceil_div, choose, product, take
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.machine import Machine, MemoryLevel
from morello.kernels.target import Target
from morello.rewrites.base import (
    Example,
    Rewrite,
    RewriteCase,
    argument,
    by_group,
    cases_within,
    largest,
    masked,
    pending_dims,
    require,
    select_cells,
    tried_sizes,
)

#: Dimensions that search tiles at once in a parallel loop: with one alone, few tiles may be left for many threads.
_PARALLEL_DIMS = 2


@attrs.frozen(cache_hash=True)
class Tile(Rewrite):
    """`tile [1, 64, 64]`: a loop over tiles of the output, or with a size per iteration dimension, over those.

    Sizes that do not divide leave boundary tiles, each kind with a body of its own. Tiling a reduction needs
    an operation that accumulates. With `parallel`, threads share the tiles; one thread computes each tile.
    """

    keyword: ClassVar[str] = "tile"
    order: ClassVar[int] = 190
    example: ClassVar[Example] = Example(Matmul(), (1, 3, 5, 7))
    structural: ClassVar[bool] = True
    sizes: tuple[int, ...] = argument(tuple)
    parallel: bool = argument(bool, keyword="parallel", default=False)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        rank = len(logical.shape)
        single = logical.op.search_hints.unit_tiles_only
        for dim in searched(logical, target):
            for size in tried_sizes(logical.shape[dim], target):
                if size % logical.op.tile_multiple(dim) == 0 and (size == 1 or dim not in single):
                    yield cls(tuple(size if dim == other else 0 for other in range(rank)))
        if not logical.serial:
            yield from cls._parallel_steps(logical, target)

    @classmethod
    def _parallel_steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        rank = len(logical.shape)
        only = pending_dims(logical.op, target)
        shared = [
            dim for dim in (range(rank) if only is None else only) if logical.op.writes_apart(len(logical.shape), dim)
        ]
        for count in range(1, _PARALLEL_DIMS + 1):
            for dims in subsets(shared, count):
                for sizes in combinations(*(tried_sizes(logical.shape[dim], target) for dim in dims)):
                    chosen = dict(zip(dims, sizes, strict=True))
                    yield cls(tuple(chosen.get(dim, 0) for dim in range(rank)), parallel=True)

    def supports_level(self, level: MemoryLevel) -> bool:
        # Registers belong to one thread.
        return not (self.parallel and level.is_register)

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        sizes = per_dimension(self.sizes, logical)
        if not self.parallel:
            yield from loop_cases(logical, sizes, self, target)
            return
        inside = masked(None, check_parallel(self, logical, sizes, target))
        loops = loop_cases(select_cells(logical, inside), sizes, self, target)
        yield from in_parallel(cases_within(inside, loops), target)


def check_parallel(step: Rewrite, logical: LogicalSpec, sizes: Sequence[Num], target: Machine) -> Mask:
    """Return the Specs whose tiles threads can share; size 0 is a whole dimension. Raises Inapplicable without any."""
    if logical.serial:
        raise Inapplicable(
            f"`{step}`: {logical.op} is serial, for one thread", "leave out `parallel`, or the Spec's `serial`"
        )
    for one, state in zip(logical.op.operands(len(sizes)), logical.states, strict=True):
        if not step.supports_level(target.level(state.level)):
            raise Inapplicable(
                f"`{step}`: {one.name} of {logical.op} is in {state.level}, and registers belong to one thread",
                "make the loop parallel before operands move to registers",
            )
    valid: Mask = True
    for dim, (size, extent) in enumerate(zip(sizes, logical.shape, strict=True)):
        if size and not logical.op.writes_apart(len(logical.shape), dim):
            valid = valid & require(
                size == extent,
                f"`{step}`: tiles along {logical.dims[dim]} of {logical.op} write the same values",
                f"keep {logical.dims[dim]} whole, and split it inside or outside of the parallel loop",
            )
    return valid


def in_parallel(loops: Iterator[RewriteCase], target: Machine) -> Iterator[RewriteCase]:
    """Yield the same loops with each main body shared by the target's threads; boundary tiles follow serially."""
    for case in loops:
        assert isinstance(case.expansion, Loop)
        parts = [
            attrs.evolve(
                part,
                logical=attrs.evolve(part.logical, serial=True),
                times=ceil_div(part.times, target.weights.threads) if part.role == "body" else part.times,
            )
            for part in case.expansion.parts
        ]
        cost = sum(part.role == "body" for part in parts) * target.weights.sync
        yield RewriteCase(case.cells, attrs.evolve(case.expansion, cost=cost, parts=tuple(parts), parallel=True))


def searched(logical: LogicalSpec, target: Target) -> list[int]:
    """Return the dimensions that search tiles, in tie-break order; reductions only if `split` finds several.

    Dimensions with unit tiles come first and reductions last: kernels inside then get long sums, and neighbouring
    tiles share operands.
    """
    rank, single = len(logical.shape), logical.op.search_hints.unit_tiles_only
    reductions, whole = logical.op.reductions(rank), logical.op.untiled(rank)
    free = [dim for dim in reductions if dim not in whole]
    only = pending_dims(logical.op, target)
    dims = range(rank) if only is None else only
    found = [dim for dim in dims if dim not in whole and (dim not in reductions or len(free) > 1)]
    return sorted(found, key=lambda dim: (dim not in single, dim in reductions))


def per_dimension(sizes: tuple[int, ...], logical: LogicalSpec) -> tuple[int, ...]:
    """Return tile sizes by iteration dimension; 0 keeps a dimension whole. Raises Inapplicable for too few or many."""
    rank = len(logical.shape)
    if len(sizes) == rank:
        return sizes
    output = [dim for dim in range(rank) if dim not in logical.op.reductions(rank)]
    if len(sizes) != len(output):
        names = logical.dims
        raise Inapplicable(
            f"tile takes {len(output)} sizes ({'×'.join(names[dim] for dim in output)}) or {rank} "
            f"({'×'.join(names)}) for {logical.op}, not {len(sizes)}",
            "write a size for each; the full size keeps a dimension whole",
        )
    given = dict(zip(output, sizes, strict=True))
    return tuple(given.get(dim, 0) for dim in range(rank))


@attrs.frozen
class LoopBody:
    """The tiles that one body of a loop covers; `there` masks the cells of a batch that have any."""

    ranges: tuple[TileRange, ...]
    there: Mask = True
    role: str = "body"

    @property
    def shape(self) -> tuple[Num, ...]:
        return tuple(tile_range.size for tile_range in self.ranges)

    @property
    def starts(self) -> tuple[Num, ...]:
        return tuple(tile_range.start for tile_range in self.ranges)

    def select(self, cells: CellIndices) -> LoopBody:
        """Return the body of the given elements of a batch; all of them have one."""
        ranges = (TileRange(*(take(one, cells) for one in (at.start, at.size, at.trips))) for at in self.ranges)
        return LoopBody(tuple(ranges), role=self.role)


def loop_cases(logical: LogicalSpec, sizes: tuple[int, ...], step: Rewrite, target: Machine) -> Iterator[RewriteCase]:
    """Yield loops over tiles of `sizes` per iteration dimension (0: whole), boundary bodies included."""
    inside = masked(None, _check(logical, sizes))
    batch = select_cells(logical, inside)
    tiles = tuple(take(size or whole, inside) for size, whole in zip(sizes, logical.shape, strict=True))
    corners = combinations(*([False, True] if size else [False] for size in sizes))
    bodies = [_corner(batch, tiles, corner) for corner in corners]
    yield from cases_within(inside, body_cases(batch, bodies, step, target))


def _corner(logical: LogicalSpec, tiles: Sequence[Num], corner: Sequence[bool]) -> LoopBody:
    """Return the tiles at the edge of the dimensions that `corner` selects, and in the interior of the others."""
    there: Mask = True
    ranges: list[TileRange] = []
    for edge, size, tile in zip(corner, logical.shape, tiles, strict=True):
        trips, rest = size // tile, size % tile
        if edge:
            there = there & (rest > 0)
            # Cells without a rest are masked out, but need a size other than 0.
            ranges.append(TileRange(trips * tile, choose(rest > 0, rest, tile), 1))
        else:
            ranges.append(TileRange(0, tile, trips))
    return LoopBody(tuple(ranges), there, "boundary" if any(corner) else "body")


def body_cases(
    logical: LogicalSpec, bodies: Sequence[LoopBody], step: Rewrite, target: Machine
) -> Iterator[RewriteCase]:
    """Yield the loop with these bodies, for each group of a batch's cells whose bodies have the same states."""
    bodies = [body for body in bodies if body.there is not False]
    codes = [[body.there * 1, *_tile_codes(logical, body, target)] for body in bodies]

    def loops(group: tuple[int, ...], cells: CellIndices) -> Iterator[RewriteCase]:
        width = len(codes[0])
        kept: list[tuple[LoopBody, tuple[OperandState, ...]]] = []
        for position, body in enumerate(bodies):
            body_codes = group[position * width : (position + 1) * width]
            if body_codes[0]:
                kept.append((body.select(cells), _tile_states(logical, body_codes[1:], step)))
        yield from cases_within(cells, _loop(select_cells(logical, cells), kept, step, target))

    yield from by_group([code for own in codes for code in own], loops)


def _check(logical: LogicalSpec, sizes: tuple[int, ...]) -> Mask:
    names, whole = logical.dims, logical.op.untiled(len(logical.shape))
    valid: Mask = True
    smaller: Mask = False
    for dim, (size, extent) in enumerate(zip(sizes, logical.shape, strict=True)):
        if size < 0:
            raise Inapplicable(f"tile size {size} of {names[dim]} is not positive", "write a size of at least 1")
        if size:
            multiple = logical.op.tile_multiple(dim)
            if size % multiple:
                valid = valid & require(
                    size >= extent,
                    f"tile size {size} of {names[dim]} is not a multiple of {multiple}",
                    f"{logical.op} takes {multiple} values along {names[dim]} together",
                )
            # A batch reports its largest size: printing arrays would take longer than all else here.
            rule = f"tile size {size} of {names[dim]} is larger than {largest(extent)}"
            valid = valid & require(size <= extent, rule, "choose a smaller size")
            smaller = smaller | (size < extent)
            if dim in whole:
                valid = valid & require(
                    size == extent,
                    f"{logical.op} needs {names[dim]} whole: tiles of it add up",
                    "rewrite it with to_accum first",
                )
    return valid & require(
        smaller,
        f"tile {list(sizes)} is as large as {logical.op} itself, so nothing gets smaller",
        "choose a smaller size, or leave it out",
    )


def _tile_codes(logical: LogicalSpec, body: LoopBody, target: Machine) -> list[Num]:
    codes: list[Num] = []
    declared = logical.op.operands(len(body.ranges))
    for one, state in zip(declared, logical.states, strict=True):
        if state.code_count:
            alignment = target.level(state.level).alignment
            shape, start = one.shape(body.shape), one.start(body.starts)
            codes += state.tile_codes(one.shape(logical.shape), shape, alignment, start, one.sliding)
    return codes


def _tile_states(logical: LogicalSpec, codes: Sequence[int], step: Rewrite) -> tuple[OperandState, ...]:
    """Return the operand states of the tiles of one body."""
    states: list[OperandState] = []
    for state in logical.states:
        state_codes, codes = codes[: state.code_count], codes[state.code_count :]
        if state.breaks_strips(state_codes):
            raise Inapplicable(
                f"`{step}` breaks up strips of {state.layout}",
                "choose multiples of the strips, or move the operand to another layout first",
            )
        states.append(state.tiled(state_codes))
    return tuple(states)


def _loop(
    whole: LogicalSpec, bodies: Sequence[tuple[LoopBody, tuple[OperandState, ...]]], step: Rewrite, target: Machine
) -> Iterator[RewriteCase]:
    """Yield the loop over bodies that all cells have in common, where tiles keep whole vectors."""
    valid: Mask = True
    tiles = [LogicalSpec(whole.op, body.shape, states, whole.serial) for body, states in bodies]
    for tile in tiles if any(state.vector for state in whole.states) else ():
        for one, tensor in zip(tile.op.operands(len(tile.shape)), tile.operands, strict=True):
            valid = valid & require(
                tensor.has_whole_vectors(),
                f"`{step}` cuts {one.name} into tiles that split its vectors of {tensor.state.vector}",
                "choose multiples of the vectors, or tile before the operand moves to them",
            )
    require(valid, f"`{step}` splits vectors", "choose multiples of the vectors")
    cells = masked(None, valid)
    parts = tuple(
        _part(select_cells(tile, cells), body.select(cells), target)
        for tile, (body, _) in zip(tiles, bodies, strict=True)
    )
    yield RewriteCase(cells, Loop(step, 0, target.nothing(), parts))


def _part(tile: LogicalSpec, body: LoopBody, target: Machine) -> Part:
    times = product(tile_range.trips for tile_range in body.ranges)
    args = tuple(range(len(tile.states)))
    return Part(tile, args, times, target.nothing(), ranges=body.ranges, role=body.role)
