"""`cosa`: tiles of all levels, loop orders and threads by one integer program, as CoSA does ([Dinh2023] §6.1).

The prime factors of each loop are assigned to slots: slot 0 has those inside the tile of the fastest level, slot i
those between the tiles of level i - 1 and the next slower one, and the last slot those that threads share. In
logarithms, the bytes that a tile holds of an array are a sum, and so is how often they are loaded: by the loops from
the innermost one on that changes the array's part. Equal factors of a loop in one slot form one loop, since splitting
it would not load less.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from math import inf, prod

import attrs
import numpy as np

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.plan import TileAndOrder, TileContext, tiled_levels, tiling_plans
from morello_bounds.nest import Array, Nest, nest_of
from morello_bounds.programs import IntegerProgram, Sum, added

#: The weights of a factor of 2 in the objective: of memory used, of threads, and of bytes moved.
_USED, _SHARED, _MOVED = -0.1, -10.0, 1.0
#: The same for tile sizes, decreasing with the loop: a tie goes to tiles longest along the first loop.
_FIRST = -0.01
#: The loops of a slot that are ordered, from the innermost on; all others count as loading every array.
_RANKS = 3
#: Sizes of loops are rounded up to products of these.
_PRIMES = (2, 3, 5, 7)
#: The limit of nodes of branch and bound.
_NODES = 3_000


@attrs.frozen
class FactorAssignment:
    """The tile of each level, fastest first, the order around it, innermost loop first, and the tile of a thread.

    `loaded` has log2 of the times that each level loads each array's part of a tile.
    """

    tiles: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    shared: tuple[int, ...]
    loaded: tuple[tuple[float, ...], ...]


@cache
def assign_factors(
    nest: Nest,
    capacities: tuple[tuple[float | None, ...], ...],
    threads: int = 1,
    free: frozenset[int] = frozenset(),
    kept: frozenset[int] = frozenset(),
) -> FactorAssignment | None:
    """Return the best tiles found within the limit of nodes, if any, for `capacities` of levels, fastest first.

    Each level has bytes for each array; None for an array in a faster level. Threads share tiles of the loops `free`;
    loops `kept` are not tiled.
    """
    return _FactorProgram(nest, capacities, threads, free, kept).solved()


@attrs.define
class _FactorProgram:
    nest: Nest
    capacities: tuple[tuple[float | None, ...], ...]
    threads: int
    free: Collection[int]
    kept: Collection[int]
    program: IntegerProgram = attrs.Factory(IntegerProgram)
    #: The logarithm of the part of each loop that is in each slot.
    logs: list[dict[int, Sum]] = attrs.Factory(list[dict[int, Sum]])
    #: For each slot between levels and rank, innermost first: a loop's logarithm, and whether it has this rank.
    ranks: list[list[dict[int, tuple[int, int]]]] = attrs.Factory(list[list[dict[int, tuple[int, int]]]])
    #: For each slot between levels, the logarithm of the loops without a rank.
    rests: list[Sum] = attrs.Factory(list[Sum])
    #: For each level and array, the logarithms of the loops that load it.
    loads: list[list[Sum]] = attrs.Factory(list[list[Sum]])

    def solved(self) -> FactorAssignment | None:
        self._assign()
        self._order()
        for level, capacity in enumerate(self.capacities):
            self.loads.append([self._array(level, at, bytes_) for at, bytes_ in enumerate(capacity)])
        for loop in self.loops:
            self.program.charge(self.logs[-1][loop], _SHARED)
            self.program.charge(self.logs[0][loop], _FIRST * (1 - loop / len(self.nest.sizes)))
        found = self.program.solve(_NODES)
        return None if found is None else self._read(found)

    @property
    def loops(self) -> list[int]:
        return [loop for loop, size in enumerate(self.nest.sizes) if size > 1]

    def _assign(self) -> None:
        """Assign the factors of each loop to the levels, one slot outside them, and one for threads."""
        slots = len(self.capacities) + 2
        self.logs = [{} for _ in range(slots)]
        for loop in self.loops:
            factors = factors_of(self.nest.sizes[loop])
            parts = [
                {prime: self.program.variable(self._most(slot, loop, count), whole=True) for prime, count in factors}
                for slot in range(slots)
            ]
            for prime, count in factors:
                self.program.bound({part[prime]: 1.0 for part in parts}, count, count)
            for slot, part in enumerate(parts):
                self.logs[slot][loop] = {part[prime]: math.log2(prime) for prime, _ in factors}
        self.program.bound(added(*self.logs[-1].values()), most=math.log2(self.threads))

    def _most(self, slot: int, loop: int, count: int) -> int:
        last = slot == len(self.capacities) + 1
        return 0 if (loop in self.kept and slot) or (last and loop not in self.free) else count

    def _order(self) -> None:
        """Give each loop of a slot between levels a rank; ranks are filled from the innermost on."""
        for slot in range(1, len(self.capacities) + 1):
            loops = [loop for loop in self.loops if loop not in self.kept]
            ranks = [{loop: self._ranked(loop) for loop in loops} for _ in loops[:_RANKS]]
            rest = {loop: self.program.variable(inf if len(loops) > _RANKS else 0.0) for loop in loops}
            for loop in loops:
                self.program.bound({rank[loop][1]: 1.0 for rank in ranks}, most=1)
                here = {rest[loop]: 1.0, **{rank[loop][0]: 1.0 for rank in ranks}}
                self.program.bound(added(here, added(self.logs[slot][loop], factor=-1)), 0, 0)
            self.rests.append(dict.fromkeys(rest.values(), 1.0))
            for inner, outer in zip(ranks, [*ranks[1:], {}][: len(ranks)], strict=True):
                taken = {there: 1.0 for _, there in inner.values()}
                self.program.bound(taken, most=1)
                self.program.bound(added(taken, {there: -1.0 for _, there in outer.values()}), 0)
            self.ranks.append(ranks)

    def _ranked(self, loop: int) -> tuple[int, int]:
        log, there = self.program.variable(), self.program.variable(1, whole=True)
        self.program.bound({log: 1.0, there: -self._log(loop)}, most=0)
        return log, there

    def _log(self, loop: int) -> float:
        return math.log2(padded(self.nest.sizes[loop]))

    def _array(self, level: int, at: int, capacity: float | None) -> Sum:
        """Make an array's part of a tile fit, and charge its loads; return the logarithm of their number."""
        if capacity is None:
            return {}
        array = self.nest.arrays[at]
        inside = [added(*(slot[loop] for slot in self.logs[: level + 1])) for loop in self.loops]
        held = self.program.variable(max(0.0, math.log2(capacity / array.bytes)), cost=_MOVED)
        for chosen in array.choices:
            points = added(*(inside[place] for place, loop in enumerate(self.loops) if loop in chosen))
            self.program.bound(added({held: 1.0}, added(points, factor=-1)), 0)
            self.program.charge(points, _USED / len(array.choices))
        loaded = self._loaded(level, array)
        self.program.charge(loaded, _MOVED)
        return loaded

    def _loaded(self, level: int, array: Array) -> Sum:
        """Return the sum of the ranks outside a level, from the innermost one on that changes the array's part."""
        before: int | None = None
        total = added(*self.rests[level:])
        most = sum(map(self._log, self.loops))
        for rank in (rank for slot in self.ranks[level:] for rank in slot):
            changed, counted = self.program.variable(1), self.program.variable()
            here = {there: 1.0 for loop, (_, there) in rank.items() if loop in array.support}
            self.program.bound(added({changed: 1.0}, added(here, factor=-1)), 0)
            if before is not None:
                self.program.bound({changed: 1.0, before: -1.0}, 0)
            logs = {log: -1.0 for log, _ in rank.values()}
            self.program.bound(added({counted: 1.0, changed: -most}, logs), -most)
            before = changed
            total[counted] = 1.0
        return total

    def _read(self, found: np.ndarray) -> FactorAssignment:
        def value(terms: Sum) -> float:
            return float(sum(factor * found[at] for at, factor in terms.items()))

        def tile(slots: Sequence[dict[int, Sum]]) -> tuple[int, ...]:
            logs = {loop: sum(value(slot[loop]) for slot in slots) for loop in self.loops}
            return tuple(min(size, round(2 ** logs.get(loop, 0.0))) for loop, size in enumerate(self.nest.sizes))

        tiles = [tile(self.logs[: level + 1]) for level in range(len(self.capacities))]
        orders = [
            tuple(loop for rank in slot for loop, (_, there) in rank.items() if found[there] > 0.5)
            for slot in self.ranks
        ]
        loaded = tuple(tuple(value(one) for one in level) for level in self.loads)
        return FactorAssignment(tuple(tiles), tuple(orders), tile(self.logs[:-1]), loaded)


def padded(size: int) -> int:
    """Return the smallest number from `size` on without a prime factor above 7."""
    return prod(prime**count for prime, count in factors_of(size))


def factors_of(size: int) -> list[tuple[int, int]]:
    """Return the prime factors of `padded(size)` with their multiplicities."""
    powers = {prime: max(n for n in range(size.bit_length()) if size % prime**n == 0) for prime in _PRIMES}
    whole = prod(prime**count for prime, count in powers.items()) == size
    return [(prime, count) for prime, count in powers.items() if count] if whole else factors_of(size + 1)


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    nest, op, rank = nest_of(spec), spec.logical.op, len(spec.logical.shape)
    levels = tiled_levels(spec, target)
    numbers = {level.name: number for number, level in enumerate(target.levels)}
    homes = [numbers[state.level] for state in spec.logical.states]
    capacities = tuple(
        tuple(int(spec.limits[level]) / sum(home > level for home in homes) if home > level else None for home in homes)
        for level in reversed(levels)
    )
    free = frozenset(range(rank)) - frozenset(op.reductions(rank))
    for whole in (frozenset[int](), frozenset(op.reductions(rank))):
        found = assign_factors(nest, capacities, 1 if spec.logical.serial else target.weights.threads, free, whole)
        if found is None:
            continue
        by_level = dict(zip(reversed(levels), zip(found.tiles, found.orders, strict=True), strict=True))

        def choose(context: TileContext, by_level=by_level) -> TileAndOrder | None:
            tile = context.fitted(by_level[context.level][0])
            return (tile, by_level[context.level][1]) if tile else None

        yield from tiling_plans(spec, target, choose, found.shared)


COSA = Mapper("cosa", _propose, "tiles of all levels, their order and those of threads, by one integer program (CoSA)")
