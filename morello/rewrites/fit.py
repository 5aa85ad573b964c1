"""fit: a loop over tiles of several sizes, which cover a dimension exactly ([Tollenaere2021])."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import combinations
from operator import mul
from typing import Any, ClassVar, Self, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import Inapplicable
from morello.ir.impl import TileRange
from morello.ir.numbers import Mask, Num
from morello.ir.ops.matmul import Matmul
from morello.ir.spec import LogicalSpec
from morello.kernels.machine import Machine, MemoryLevel
from morello.kernels.target import Target
from morello.rewrites.base import (
    Example,
    Rewrite,
    RewriteCase,
    argument,
    cases_within,
    largest,
    masked,
    require,
    select_cells,
)
from morello.rewrites.tile import LoopBody, body_cases, check_parallel, in_parallel, searched

#: The range of tiles that search tries if no kernel asks for sizes. Only register tiles need an exact fit: the
#: remainder of larger tiles is cheap, and smaller ones reuse little.
_SMALLEST, _LARGEST = 4, 16
#: Longer dimensions are skipped: their extra tile sizes slow search several-fold.
_LONGEST = 64

T = TypeVar("T")


@attrs.frozen(cache_hash=True)
class ExactFit(Rewrite):
    """`fit 1 [11, 12]`: tiles of 11, then of 12, which cover dimension 1 exactly: 34 is 2·11 + 12.

    Each size is used at least once, with as few tiles as possible; among equally few, as many as possible have the
    largest size, then the second largest, and so on. With `times`, the number of tiles of each size is given. With
    `parallel`, threads share the tiles of each size in turn.
    """

    keyword: ClassVar[str] = "fit"
    order: ClassVar[int] = 210
    example: ClassVar[Example] = Example(Matmul(), (1, 11, 4, 9))
    structural: ClassVar[bool] = True
    dim: int = argument(int)
    sizes: tuple[int, ...] = argument(tuple)
    trips: tuple[int, ...] = argument(tuple, keyword="times", default=())
    parallel: bool = argument(bool, keyword="parallel", default=False)

    @classmethod
    def steps(cls, logical: LogicalSpec, target: Target) -> Iterator[Self]:
        for dim in searched(logical, target):
            tried = _tried(logical, dim, target)
            offered = {sizes for size in np.unique(logical.shape[dim]).tolist() for sizes in tried(size)}
            for sizes in sorted(offered, key=lambda sizes: (max(sizes), len(sizes)), reverse=True):
                yield cls(dim, sizes)

    def worth_trying(self, logical: LogicalSpec, target: Target) -> Mask:
        tried = _tried(logical, self.dim, target)
        return _each(logical.shape[self.dim], lambda size: self.sizes in tried(size))

    def cases(self, logical: LogicalSpec, target: Machine) -> Iterator[RewriteCase]:
        inside = masked(None, self._check(logical) & self._check_parallel(logical, target))
        batch = select_cells(logical, inside)
        bodies: list[LoopBody] = []
        start: Num = 0
        for position, size in enumerate(self.sizes):
            trips = _each(batch.shape[self.dim], lambda extent, at=position: self._covering(extent)[at])
            ranges = [TileRange(0, extent, 1) for extent in batch.shape]
            ranges[self.dim] = TileRange(start, size, trips)
            bodies.append(LoopBody(tuple(ranges)))
            start = start + size * trips
        loops = cases_within(inside, body_cases(batch, bodies, self, target))
        yield from in_parallel(loops, target) if self.parallel else loops

    def supports_level(self, level: MemoryLevel) -> bool:
        # Registers belong to one thread.
        return not (self.parallel and level.is_register)

    def _check_parallel(self, logical: LogicalSpec, target: Machine) -> Mask:
        sizes = tuple(max(self.sizes) if dim == self.dim else 0 for dim in range(len(logical.shape)))
        return check_parallel(self, logical, sizes, target) if self.parallel else True

    def _covering(self, extent: int) -> tuple[int, ...]:
        """Return the number of tiles of each size that add up to an extent; empty if none do."""
        if not self.trips:
            return _trips(extent, self.sizes)
        return self.trips if sum(map(mul, self.sizes, self.trips)) == extent else ()

    def _check(self, logical: LogicalSpec) -> Mask:
        """Return the Specs that the sizes cover. Raises Inapplicable where they cover none."""
        rank = len(logical.shape)
        if not 0 <= self.dim < rank:
            names = ", ".join(f"{dim} is {name}" for dim, name in enumerate(logical.dims))
            raise Inapplicable(f"{logical.op} has no dimension {self.dim}", names)
        name, size = logical.dims[self.dim], logical.shape[self.dim]
        if not self.sizes or len(set(self.sizes)) < len(self.sizes) or min(self.sizes) < 1:
            raise Inapplicable(f"`{self}`: sizes of tiles are positive, and each is given once", "leave out the others")
        if self.trips and (len(self.trips) != len(self.sizes) or min(self.trips) < 1):
            raise Inapplicable(f"`{self}`: each size has at least one tile", "give a number of tiles for each size")
        if self.dim in logical.op.untiled(rank):
            raise Inapplicable(
                f"{logical.op} needs {name} whole: tiles of it add up",
                "rewrite it with to_accum first",
            )
        if any(one % logical.op.tile_multiple(self.dim) for one in self.sizes):
            raise Inapplicable(
                f"`{self}` breaks up what {logical.op} takes together along {name}",
                f"sizes are multiples of {logical.op.tile_multiple(self.dim)}",
            )
        rule = f"`{self}` leaves {logical.op} as large as it is: {name} is {largest(size)}"
        fine = require(size > max(self.sizes), rule, "choose smaller sizes, or leave it out")
        covered = _each(size, lambda one: bool(self._covering(one)))
        if self.trips:
            total = sum(map(mul, self.sizes, self.trips))
            rule = f"`{self}` covers {total}: {name} is {largest(size)}"
            return fine & require(covered, rule, "give other numbers of tiles, or none for as few as possible")
        return fine & require(
            covered,
            f"no number of tiles of {' and '.join(map(str, self.sizes))} makes {largest(size)}, the size of {name}",
            "each size is used at least once; choose others, or use tile, which leaves boundaries",
        )


def _each(number: Num, function: Callable[[int], T]) -> T | npt.NDArray[Any]:
    """Apply a function to a number, or to each of an array."""
    if not isinstance(number, np.ndarray):
        return function(int(number))
    distinct, which = np.unique(number, return_inverse=True)
    return np.array([function(int(one)) for one in distinct])[which]


@lru_cache(maxsize=1 << 16)
def _trips(extent: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the fewest tiles of each size, at least one, that add up to `extent`; empty if none do."""
    largest = max(sizes)
    if len(sizes) == 1:
        return (extent // largest,) if extent >= largest and extent % largest == 0 else ()
    place = sizes.index(largest)
    rest = sizes[:place] + sizes[place + 1 :]
    best: tuple[int, ...] = ()
    for count in range((extent - sum(rest)) // largest, 0, -1):
        others = _trips(extent - count * largest, rest)
        if others and (not best or count + sum(others) < sum(best)):
            best = (*others[:place], count, *others[place:])
            if len(rest) == 1:
                break  # Fewer of the larger only means more of the smaller.
    return best


def _tried(logical: LogicalSpec, dim: int, target: Target) -> Callable[[int], frozenset[tuple[int, ...]]]:
    """Return the function from an extent to the sizes that search tries: those that kernels ask for, if any."""
    wanted = target.tile_sizes(logical.op).get(dim)
    if wanted:
        return lambda extent: _made_of(extent, wanted, target.size_bits)
    hints = logical.op.search_hints
    if hints.unit_tiles_only or (target.size_bits > 1 and not hints.all_to_registers):
        # Register tiles belong to the operations that this is rewritten to; other tiles would delay a first program.
        return lambda extent: frozenset()
    multiple = logical.op.tile_multiple(dim)
    return lambda extent: _near_equal(extent, multiple)


@lru_cache(maxsize=1 << 16)
def _made_of(extent: int, wanted: frozenset[int], bits: int) -> frozenset[tuple[int, ...]]:
    """Return single sizes of `wanted`, pairs of sizes, and the fewest near-equal sizes that add up to an extent.

    A pair has at least one size of `wanted`; the other may be one that `tile` offers, a power of two that is a multiple
    of the greatest common divisor of `wanted`. In restricted spaces, `tile` offers powers of two with exponents that
    are multiples of `bits`, and pairs are of neighbours in `wanted`: more of them would delay a first program.
    """
    offered = {1 << bit for bit in range(0, max(wanted).bit_length(), bits)}
    unit = math.gcd(*wanted)
    tilings: set[tuple[int, ...]] = {(size,) for size in wanted - offered if extent > size and extent % size == 0}
    if bits > 1:
        sizes = wanted
        pairs = [(size, size + unit) for size in wanted if size > unit and size + unit in wanted]
    else:
        sizes = wanted | {size for size in offered if size % unit == 0}
        pairs = [pair for pair in combinations(sorted(sizes), 2) if wanted & {*pair}]
        tilings.update(_fewest(extent, max(wanted), unit))
    for pair in pairs:
        trips = _trips(extent, pair) if extent > pair[1] else ()
        # Small tiles that make up another size cost no less than one tile of that.
        if trips and (trips[0] == 1 or trips[0] * pair[0] not in sizes):
            tilings.add(tuple(sorted(pair, key=_alignment)))
    return frozenset(tilings)


def _fewest(extent: int, largest: int, unit: int) -> Iterator[tuple[int, ...]]:
    """Yield the sizes of the fewest near-equal tiles of at most `largest`, all multiples of `unit`."""
    pieces, units = -(-extent // largest), extent // unit
    if extent % unit == 0 and pieces > 1:
        small, larger = divmod(units, pieces)
        pair = (small * unit, (small + 1) * unit) if larger else (small * unit,)
        yield tuple(sorted(pair, key=_alignment))


def _alignment(size: int) -> int:
    """Return the sort key with which the size with more factors of two comes first, so that its tiles stay aligned."""
    return -(size & -size)


@lru_cache(maxsize=1 << 12)
def _near_equal(extent: int, multiple: int) -> frozenset[tuple[int, ...]]:
    """Return one or two sizes that differ by `multiple`, such that p near-equal tiles cover the extent, for each p.

    Powers of two get none: `tile` fits them. The size with more factors of two comes first, so that its tiles stay
    aligned.
    """
    units, left = divmod(extent, multiple)
    tilings: set[tuple[int, ...]] = set()
    if left or units & (units - 1) == 0 or extent > _LONGEST:
        return frozenset()
    for pieces in range(2, units // max(1, _SMALLEST // multiple) + 1):
        small, larger = divmod(units, pieces)
        if larger and (small + 1) * multiple <= _LARGEST:
            even = small + small % 2
            tilings.add((even * multiple, (2 * small + 1 - even) * multiple))
        elif not larger and small * multiple <= _LARGEST and small & (small - 1):
            tilings.add((small * multiple,))
    return frozenset(tilings)
