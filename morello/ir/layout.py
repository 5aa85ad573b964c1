"""Layouts: bijections from the coordinates of a tensor to offsets in its buffer ([Kaufman2025] §2.4.2).

A layout lists *physical* dimensions, slowest first. Each belongs to one logical dimension and is
`Dynamic` (all that remains of it), `Packed(n)` (a strip of n) or `OddEven(n)` (a strip of n whose even
values come first, then its odd ones).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from itertools import permutations, product
from typing import Any, overload

import attrs

from morello.errors import SpecError
from morello.ir.index import IndexExpr
from morello.ir.numbers import Mask, Num, NumT, choose


@attrs.frozen(cache_hash=True)
class PhysicalDim:
    """One physical dimension: a strip of `size` values of logical dimension `dim`; size None is Dynamic."""

    dim: int
    size: int | None = None
    odd_even: bool = False

    def __str__(self) -> str:
        if self.size is None:
            return str(self.dim)
        return f"{self.dim}{'oe' if self.odd_even else 'p'}{self.size}"


def Dynamic(dim: int) -> PhysicalDim:
    return PhysicalDim(dim)


def Packed(dim: int, size: int) -> PhysicalDim:
    return PhysicalDim(dim, size)


def OddEven(dim: int, size: int) -> PhysicalDim:
    return PhysicalDim(dim, size, odd_even=True)


class TileCode:
    """The extent of a tile along one physical dimension of its tensor.

    Plain integers: numpy looks for its protocols on members of enumerations in Python code, and drops errors there,
    Ctrl-C among them.
    """

    STRADDLES = 0  # the tile breaks up a strip, so it has no layout
    GONE = 1  # the tile has one value along it, the tensor more
    CUT = 2
    WHOLE = 3
    UNIT = 4  # one value in both


def _check(layout: Layout, _attribute: object, dims: tuple[PhysicalDim, ...]) -> None:
    seen: set[int] = set()
    for physical in dims:
        if physical.size is None and physical.dim in seen:
            raise SpecError(
                f"layout {layout}: dimension {physical.dim} has a whole (Dynamic) part inside another part",
                "a Dynamic part comes once per dimension and outermost, e.g. layout[0, 1, 0p8]",
            )
        if physical.size is not None and physical.size < 2:
            raise SpecError(
                f"layout {layout}: a strip holds at least 2 values, not {physical.size}",
                "leave the strip out, or make it larger",
            )
        if physical.odd_even and physical.size is not None and physical.size % 2:
            raise SpecError(
                f"layout {layout}: an odd-even strip has an even size, not {physical.size}",
                f"write {physical.dim}oe{physical.size + 1}, or {physical.dim}p{physical.size}",
            )
        seen.add(physical.dim)


@attrs.frozen(cache_hash=True, repr=False)
class Layout:
    """Physical dimensions, slowest first. Raises SpecError where they contradict each other."""

    dims: tuple[PhysicalDim, ...] = attrs.field(validator=_check)

    def __str__(self) -> str:
        return f"layout[{', '.join(map(str, self.dims))}]"

    __repr__ = __str__

    def shifted(self, count: int) -> Layout:
        """Return the layout with all dimensions renumbered by `count`."""
        return Layout(tuple(attrs.evolve(one, dim=one.dim + count) for one in self.dims))

    @property
    def has_strips(self) -> bool:
        return any(physical.size is not None for physical in self.dims)

    def rank_needed(self) -> int:
        return 1 + max((physical.dim for physical in self.dims), default=-1)

    def applies(self, shape: Sequence[Num]) -> Mask:
        """Return True if the layout describes tensors of `shape`: strips divide it, and every value has a place."""
        if self.rank_needed() > len(shape):
            return False
        remaining: list[Num] = list(shape)
        valid: Mask = True
        for physical in reversed(self.dims):
            if physical.size is None:
                remaining[physical.dim] = 1
            else:
                valid = valid & (remaining[physical.dim] % physical.size == 0)
                remaining[physical.dim] = remaining[physical.dim] // physical.size
        for left in remaining:
            valid = valid & (left == 1)
        return valid

    def physical_shape(self, shape: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the sizes of the physical dimensions of a tensor of `shape`, slowest first."""
        remaining: list[Any] = list(shape)
        sizes: list[Any] = []
        for physical in reversed(self.dims):
            size = remaining[physical.dim] if physical.size is None else physical.size
            remaining[physical.dim] = remaining[physical.dim] // size
            sizes.append(size)
        return tuple(reversed(sizes))

    def strides(self, shape: Sequence[NumT]) -> tuple[NumT, ...]:
        """Return the stride of each physical dimension of a contiguous buffer, in values."""
        strides: list[Any] = []
        stride: Any = 1
        for size in reversed(self.physical_shape(shape)):
            strides.append(stride)
            stride = stride * size
        return tuple(reversed(strides))

    @overload
    def offset(self, point: Sequence[int], shape: Sequence[int], strides: Sequence[int] | None = None) -> int: ...
    @overload
    def offset(self, point: Sequence[Num], shape: Sequence[Num], strides: Sequence[Num] | None = None) -> Num: ...
    @overload
    def offset(
        self, point: Sequence[IndexExpr], shape: Sequence[Num], strides: Sequence[IndexExpr | int] | None = None
    ) -> IndexExpr: ...
    def offset(self, point: Sequence[Any], shape: Sequence[Num], strides: Sequence[Any] | None = None) -> Any:
        """Return the buffer offset, in values, of the logical coordinates `point` of a tensor of `shape`.

        Works on ints, arrays and index expressions; `strides` replaces those of a contiguous buffer.
        """
        remaining: list[Any] = list(point)
        result: Any = 0
        for physical, stride in zip(reversed(self.dims), reversed(strides or self.strides(shape)), strict=True):
            index = remaining[physical.dim]
            if physical.size is not None:
                remaining[physical.dim] = index // physical.size
                index = index % physical.size
                if physical.odd_even:
                    index = index // 2 + index % 2 * (physical.size // 2)
            result = result + index * stride
        return result

    def point(self, offset: int, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the inverse of `offset` for a contiguous buffer: the coordinates stored at `offset`."""
        point = [0] * len(shape)
        scale = [1] * len(shape)
        for physical, size in zip(reversed(self.dims), reversed(self.physical_shape(shape)), strict=True):
            offset, index = divmod(offset, size)
            if physical.odd_even:
                index = 2 * (index % (size // 2)) + index // (size // 2)
            point[physical.dim] += index * scale[physical.dim]
            scale[physical.dim] *= size
        return tuple(point)

    def tile_codes(
        self, shape: Sequence[NumT], tile: Sequence[NumT], start: Sequence[NumT] | None = None
    ) -> tuple[NumT, ...]:
        """Return a `TileCode` for each physical dimension, for tiles of size `tile` one after another from `start`."""
        outer: list[Any] = list(shape)
        inner: list[Any] = list(tile)
        first: list[Any] = list(start or [0] * len(shape))
        codes: list[Any] = []
        for physical in reversed(self.dims):
            size, part = outer[physical.dim], inner[physical.dim]
            shrunk = choose(
                part == size,
                choose(size == 1, TileCode.UNIT, TileCode.WHOLE),
                choose(part == 1, TileCode.GONE, TileCode.CUT),
            )
            if physical.size is None:
                codes.append(shrunk)
                continue
            strip, offset = physical.size, first[physical.dim]
            whole = (part % strip == 0) & (offset % strip == 0)
            code = choose(part == 1, TileCode.GONE, TileCode.STRADDLES)
            if not physical.odd_even:
                inside = (part < strip) & (strip % part == 0) & (offset % part == 0)
                code = choose(inside & (part != 1), TileCode.CUT, code)
            codes.append(choose(whole, TileCode.WHOLE, code))
            outer[physical.dim] = size // strip
            inner[physical.dim] = choose(whole, part // strip, 1)
            first[physical.dim] = offset // strip
        return tuple(reversed(codes))

    def tiled(self, contig: int, codes: Sequence[int]) -> tuple[Layout, int]:
        """Return the layout of a tile and the number of its innermost contiguous dimensions.

        This is the transfer function of [Kaufman2025] §2.4.3: the contiguous run ends at the innermost physical
        dimension that the tile does not cover whole. Dimensions of size 1 are dropped; within the run, a strip and the
        part around it are joined if together they are one plain dimension.
        """
        return _tiled(self, contig, tuple(codes))


@lru_cache(maxsize=1 << 16)
def _tiled(layout: Layout, contig: int, codes: tuple[int, ...]) -> tuple[Layout, int]:
    run = contig
    for position, code in enumerate(reversed(codes)):
        if code in (TileCode.GONE, TileCode.CUT):
            run = min(run, position + 1)
            break
    kept: list[tuple[PhysicalDim, bool]] = []
    for position, (physical, code) in enumerate(zip(reversed(layout.dims), reversed(codes), strict=True)):
        if code not in (TileCode.GONE, TileCode.UNIT):
            plain = code == TileCode.CUT and not physical.odd_even
            kept.append((PhysicalDim(physical.dim) if plain else physical, position < run))
    kept.reverse()
    return _simplify(kept)


def _simplify(kept: list[tuple[PhysicalDim, bool]]) -> tuple[Layout, int]:
    """Join neighbouring parts of one dimension in the contiguous run; outside, gaps may separate them."""
    joined: list[tuple[PhysicalDim, bool]] = []
    for physical, in_run in kept:
        first = all(other.dim != physical.dim for other, _ in joined)
        if first and not physical.odd_even:
            physical = PhysicalDim(physical.dim)
        last = joined[-1] if joined else None
        if last and last[0].dim == physical.dim and last[1] and in_run and not (last[0].odd_even or physical.odd_even):
            size = None if last[0].size is None or physical.size is None else last[0].size * physical.size
            joined[-1] = (PhysicalDim(physical.dim, size), in_run)
        else:
            joined.append((physical, in_run))
    return Layout(tuple(physical for physical, _ in joined)), sum(in_run for _, in_run in joined)


@lru_cache(maxsize=1 << 16)
def canonical(layout: Layout, shape: tuple[int, ...]) -> tuple[Layout, int] | None:
    """Return the layout of a contiguous tensor without dimensions of size 1, and the number of the others.

    None if the layout does not describe tensors of this shape.
    """
    return layout.tiled(len(layout.dims), layout.tile_codes(shape, shape)) if layout.applies(shape) else None


@cache
def row_major(rank: int) -> Layout:
    return Layout(tuple(map(Dynamic, range(rank))))


@cache
def col_major(rank: int) -> Layout:
    """Return row-major order with the last two dimensions swapped."""
    order = [*range(rank)]
    order[-2:] = reversed(order[-2:])
    return Layout(tuple(map(Dynamic, order)))


@cache
def nhwc(rank: int) -> Layout:
    """Return the layout with channels last, for a rank-4 tensor of batch, channel, height, width."""
    return _of_images("nhwc", rank)


@cache
def nchw(rank: int) -> Layout:
    """Return the row-major layout of rank-4 tensors."""
    return _of_images("nchw", rank)


@cache
def chwn(rank: int) -> Layout:
    """Return the layout with the batch last; for filters, values of all filters are adjacent."""
    return _of_images("chwn", rank)


def _of_images(name: str, rank: int) -> Layout:
    """Return the layout of rank-4 tensors with dimensions n, c, h and w in the order of the name."""
    if rank != 4:
        raise SpecError(
            f"{name} describes tensors of 4 dimensions, not {rank}",
            "use row_major, or write the order of the dimensions, as in layout[1, 0]",
        )
    return Layout(tuple(Dynamic("nchw".index(dim)) for dim in name))


@cache
def nchwc(rank: int, strip: int) -> Layout:
    """Return the layout of images [batch, channel, height, width] with innermost strips of channels."""
    if rank != 4:
        raise SpecError(
            f"nchw{strip}c describes tensors of 4 dimensions, not {rank}",
            "use row_major, or write strips of a dimension, as in layout[0, 1, 0p8]",
        )
    return Layout((*map(Dynamic, range(4)), Packed(1, strip)))


#: Layouts with a name in the Spec language, in order of preference for printing. `nchwc` adds `nchw8c` and others.
NAMED = {"row_major": row_major, "col_major": col_major, "nhwc": nhwc, "chwn": chwn, "nchw": nchw}


def named(name: str) -> Callable[[int], Layout] | None:
    """Return the function from ranks to layouts of this name, or None; it may be in capitals, as in frameworks."""
    name = name.lower() if name.isupper() else name
    strip = re.fullmatch("nchw([1-9][0-9]*)c", name)
    return partial(nchwc, strip=int(strip[1])) if strip else NAMED.get(name)


def name_of(layout: Layout, shape: Sequence[Num]) -> str | None:
    """Return the name of a layout for tensors of `shape`, in which dimensions of size 1 are left out, or None."""
    strip = layout.dims[-1].size if layout.dims else None
    for name in (*NAMED, f"nchw{strip}c") if strip else NAMED:
        build = named(name)
        with contextlib.suppress(SpecError):
            if build and layout.dims == tuple(one for one in build(len(shape)).dims if shape[one.dim] != 1):
                return name
    return None


def every_layout(extents: Sequence[int], packs: Sequence[int], odd_evens: Sequence[int]) -> Iterator[Layout]:
    """Yield the layouts of [Kaufman2025] §4 for tensors of at most these extents.

    These are all orders of dimensions, and each with at most one strip of each dimension, in any order of strips.
    Dimensions of size 1 come first; strips as long as a dimension are orders already, unless they are odd-even.
    """
    units = tuple(Dynamic(dim) for dim, size in enumerate(extents) if size == 1)
    long = [dim for dim, size in enumerate(extents) if size > 1]
    strips = {
        dim: [*(Packed(dim, size) for size in packs if size < extents[dim])]
        + [OddEven(dim, size) for size in odd_evens if size <= extents[dim]]
        for dim in long
    }
    for order in permutations(long):
        for count in range(len(long) + 1):
            for stripped in permutations(long, count):
                for chosen in product(*(strips[dim] for dim in stripped)):
                    yield Layout((*units, *map(Dynamic, order), *chosen))


def with_strips(base: Layout, packs: Sequence[int], odd_evens: Sequence[int]) -> tuple[Layout, ...]:
    """Return `base`, then with one innermost strip: `packs` on all but its last dimension, `odd_evens` on any."""
    layouts = [base]
    for physical in base.dims[:-1]:
        layouts += [Layout((*base.dims, Packed(physical.dim, size))) for size in packs]
    for physical in base.dims:
        layouts += [Layout((*base.dims, OddEven(physical.dim, size))) for size in odd_evens]
    return tuple(layouts)
