"""Orders of loops above a microkernel, by the bytes that they move ([Tollenaere2021] §5.2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations, product
from math import prod
from typing import TypeAlias

import attrs

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.nest import Nest
from morello_bounds.scheme import LoopSequence, Scheme, Specifier, inner_sizes
from morello_bounds.tiles import held, tile_moves

#: Dimensions along which the tiles of each memory advance, the slowest memory and the outermost loop first.
Permutation: TypeAlias = tuple[tuple[str, ...], ...]


def volume(scheme: Scheme, nest: Nest, capacity: int) -> int:
    """Return about the bytes that a scheme moves into a memory of `capacity` bytes.

    That memory holds the outermost tile that fits. A part of an array stays while loops that do not index it advance;
    outputs are moved twice. Loops of a λseq share no parts unless all fit together.
    """
    place = next((at for at, one in enumerate(scheme) if isinstance(one, LoopSequence)), len(scheme))
    outer = [one for one in scheme[:place] if isinstance(one, Specifier)]
    inner = inner_sizes(scheme[place:], {})
    if place == len(scheme) or _footprint(nest, inner) <= capacity:
        return _moved(outer, inner, nest, capacity)
    sequence = scheme[place]
    assert isinstance(sequence, LoopSequence)
    branches = 0
    for trips, number in sequence.loops:
        bound = (_bound(one, sequence.dim, number) for one in scheme[place + 1 :])
        branches += volume((Specifier("T", sequence.dim, trips), *bound), nest, capacity)
    return prod(one.count or 1 for one in outer) * branches


@attrs.frozen
class Caches:
    """Caches faster than the slowest operand, the fastest first: names, bytes, and costs of a byte moved in."""

    names: tuple[str, ...]
    bytes: tuple[int, ...]
    costs: tuple[float, ...]

    @classmethod
    def of(cls, spec: Spec, target: Target) -> Caches:
        states = {state.level for state in spec.logical.states}
        slowest = max(number for number, level in enumerate(target.levels) if level.name in states)
        numbers = [number for number, level in enumerate(target.levels[:slowest]) if not level.is_register]
        slower = [target.levels[number] for number in (*numbers[1:], slowest)]
        return cls(
            tuple(target.levels[number].name for number in numbers),
            tuple(int(spec.limits[number]) for number in numbers),
            tuple(level.hit_cost / level.unit for level in slower[: len(numbers)]),
        )

    def volumes(self, scheme: Scheme, nest: Nest) -> tuple[int, ...]:
        """Return about the bytes that a scheme moves into each cache."""
        return tuple(volume(scheme, nest, capacity) for capacity in self.bytes)

    def cost(self, volumes: Sequence[int]) -> float:
        return sum(cost * count for cost, count in zip(self.costs, volumes, strict=True))


def _bound(one: Specifier | LoopSequence, dim: str, number: int) -> Specifier | LoopSequence:
    free = isinstance(one, Specifier) and one.count is None and one.dim == dim
    return attrs.evolve(one, count=number) if free else one


def _footprint(nest: Nest, sizes: Mapping[str, int]) -> int:
    tile = [sizes.get(loop, 1) for loop in nest.loops]
    return sum(int(held(array, tile)) for array in nest.arrays)


def _moved(loops: Sequence[Specifier], inner: Mapping[str, int], nest: Nest, capacity: int) -> int:
    """Return the bytes that loops around a tile move."""
    sizes, outside = dict(inner), len(loops)
    while outside:
        one = loops[outside - 1]
        larger = {**sizes, one.dim: sizes.get(one.dim, 1) * (one.count or 1)}
        if _footprint(nest, larger) > capacity:
            break
        sizes, outside = larger, outside - 1
    tile, moved = [sizes.get(loop, 1) for loop in nest.loops], 0
    for array in nest.arrays:
        indices = {nest.loops[loop] for loop in array.support}
        around = [*loops[:outside]]
        while around and (around[-1].count == 1 or around[-1].dim not in indices):
            around.pop()
        moved += (1 + array.writes) * int(held(array, tile)) * prod(one.count or 1 for one in around)
    return moved


def six_orders(nest: Nest) -> list[tuple[int, ...]]:
    """Return orders of loops, the innermost first, that suffice to find one that moves little.

    The loops along which an array stays form a group, one for each of three arrays; only the order of groups matters.
    """
    groups = [[loop for loop in range(len(nest.loops)) if loop not in array.support] for array in nest.arrays]
    shared = {loop for loop in range(len(nest.loops)) if all(loop in array.support for array in nest.arrays)}
    found: list[tuple[int, ...]] = []
    for order in permutations(groups):
        inner = (loop for group in order for loop in (group[0], *reversed(group[1:])) if group)
        found.append((*dict.fromkeys(inner), *shared))
    return found


def best_permutation(
    nest: Nest, kernel: Mapping[str, int], steps: Mapping[str, Sequence[int]], caches: Caches, innermost: str
) -> Permutation:
    """Return the order of loops above a kernel that moves least, cache by cache from the fastest.

    `steps` are the sizes of tiles along each dimension. Sizes are discarded: only dimensions along which tiles of a
    memory are larger than those of the next faster one remain. `innermost` is the loop right above the kernel.
    """
    place = nest.loops.index(innermost)
    tile = tuple(kernel.get(dim, 1) for dim in nest.loops)
    order = min((one for one in six_orders(nest) if one[0] == place), key=lambda one: tile_moves(nest, tile, *one))
    groups: list[tuple[str, ...]] = []
    for capacity in (*caches.bytes, None):
        larger, following = _largest(nest, tile, steps, capacity)
        advanced = [loop for loop in order if larger[loop] > tile[loop]]
        if not groups:
            advanced = [place, *(loop for loop in advanced if loop != place)]
        groups.append(tuple(nest.loops[loop] for loop in reversed(advanced)))
        tile, order = larger, following
    return tuple(reversed(groups))


def _largest(
    nest: Nest, tile: Sequence[int], steps: Mapping[str, Sequence[int]], capacity: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the tiles that fit into a memory and move least, and their order; all loops for no capacity."""
    if capacity is None:
        return nest.sizes, ()
    sizes = [[size for size in steps[dim] if size >= least] for dim, least in zip(nest.loops, tile, strict=True)]
    best = (tile_moves(nest, tile), tuple(tile), six_orders(nest)[0])
    for one in product(*sizes):
        if sum(int(held(array, one)) for array in nest.arrays) <= capacity:
            best = min([best, *((tile_moves(nest, one, *order), one, order) for order in six_orders(nest))])
    return best[1], best[2]


def factorings(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """Yield all ordered products of `count` factors that make a number."""
    if count <= 1:
        yield from [(number,)] if count else [()] if number == 1 else []
        return
    for factor in divisors(number):
        yield from ((factor, *rest) for rest in factorings(number // factor, count - 1))


def divisors(number: int) -> list[int]:
    return [one for one in range(1, number + 1) if number % one == 0]


def completed(
    permutation: Permutation, left: Mapping[str, int], sequence: LoopSequence | None, kernel: Scheme
) -> Iterator[Scheme]:
    """Yield all schemes of a permutation above a kernel that distribute what is `left` of each size over its loops.

    A sequence is right inside any loop of its dimension.
    """
    loops = [dim for group in permutation for dim in group]
    dims = [*dict.fromkeys((*loops, *left))]
    places = [at for at, dim in enumerate(loops) if sequence and dim == sequence.dim] if sequence else [None]
    for factors in product(*(factorings(left.get(dim, 1), loops.count(dim)) for dim in dims)):
        by_dim = {dim: iter(one) for dim, one in zip(dims, factors, strict=True)}
        turns = [Specifier("T", dim, next(by_dim[dim])) for dim in loops]
        for place in places:
            if place is None or sequence is None:
                yield (*turns, *kernel)
            else:
                yield (*turns[: place + 1], sequence, *turns[place + 1 :], *kernel)


def covers(extent: int, rows: Sequence[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield (trips, rows) of kernels whose sum divides an extent: one kernel once, or two with any trips."""
    yield from (((1, one),) for one in rows if extent % one == 0)
    for total in divisors(extent):
        for one, other in combinations(sorted(rows), 2):
            for trips in range(1, (total - other) // one + 1):
                if (total - trips * one) % other == 0:
                    yield (trips, one), ((total - trips * one) // other, other)
