"""Exact pebbling: the least traffic of a small nest with a given fast memory, by exhaustive search.

It is the oracle of `morello_bounds`: what a bound claims no program can do, no pebbling does. A value is loaded, stored
or dropped; a point is worked out as soon as all that it touches is in fast memory, and adds to its outputs there
([Dinh2023] §2.3.1, with sums in place). Sums that begin at zero need no load before their first point.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import combinations, product

import attrs
from morello_bounds.nest import Nest

from morello.errors import MorelloError

#: Bits of a state, for points and values: more would take too long.
MOST_BITS = 30


@attrs.frozen
class _Game:
    """Points and values as bits: `needs` has the values of each point, `points` the points of each value."""

    memory: int
    needs: tuple[int, ...]
    points: tuple[int, ...]
    outputs: int
    accumulates: bool

    def play(self) -> int:
        """Return the least moves that work out all points: A* on points done and values held."""
        everything = (1 << len(self.needs)) - 1
        best, waiting = {(0, 0): 0}, [(self._least(0, 0), 0, 0, 0)]
        while waiting:
            _, cost, done, held = heapq.heappop(waiting)
            if done == everything:
                return cost
            if cost > best[done, held]:
                continue
            for more, state in self._moves(done, held):
                if cost + more < best.get(state, cost + more + 1):
                    best[state] = cost + more
                    # Of states that may lead to as little, those with less to do come first.
                    heapq.heappush(waiting, (cost + more + self._least(*state), cost + more, *state))
        raise MorelloError(f"{self.memory} values are too few for a point", "give it more memory")

    def _least(self, done: int, held: int) -> int:
        """Return a lower bound on the remaining traffic: each value still needed, each output stored."""
        count = 0
        for value, points in enumerate(self.points):
            if points & ~done:
                fresh = self._is_fresh(value, done)
                count += (not (held >> value & 1 or fresh)) + (self.outputs >> value & 1)
        return count

    def _is_fresh(self, value: int, done: int) -> bool:
        """Return True for a sum that begins at zero."""
        return bool(self.outputs >> value & 1) and not self.accumulates and not self.points[value] & done

    def _moves(self, done: int, held: int) -> Iterator[tuple[int, tuple[int, int]]]:
        """Yield the cost of getting ready for each point, and what working it out leads to.

        Values are loaded only when a point needs them, and dropped only when memory is full.
        """
        for point, needs in enumerate(self.needs):
            if done >> point & 1 or needs.bit_count() > self.memory:
                continue
            missing = needs & ~held
            loads = sum(not self._is_fresh(value, done) for value in _bits(missing))
            over = max(0, held.bit_count() + missing.bit_count() - self.memory)
            for dropped in combinations(_bits(held & ~needs), over):
                gone = sum(1 << value for value in dropped)
                stores, state = self._settled(done, held & ~gone | missing)
                yield loads + (gone & self.outputs).bit_count() + stores, state

    def _settled(self, done: int, held: int) -> tuple[int, tuple[int, int]]:
        """Work out what can be, and let go of values that no point needs any more: outputs are stored."""
        for point, needs in enumerate(self.needs):
            if needs & ~held == 0:
                done |= 1 << point
        finished = [value for value in _bits(held) if self.points[value] & ~done == 0]
        stores = sum(1 << value & self.outputs != 0 for value in finished)
        return stores, (done, held & ~sum(1 << value for value in finished))


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


def pebble(nest: Nest, memory: int) -> int:
    """Return the least number of values that are loaded and stored to run a nest in a fast memory of `memory` values.

    Raises MorelloError for a nest that is too large to try all ways, and for too little memory.
    """
    points = [*product(*map(range, nest.sizes))]
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    needs: list[int] = []
    for point in points:
        mask = 0
        for array, access in enumerate(nest.arrays):
            index = tuple(sum(c * point[loop] for loop, c in form) for form in access.index)
            mask |= 1 << numbers.setdefault((array, index), len(numbers))
        needs.append(mask)
    if len(points) + len(numbers) > MOST_BITS:
        raise MorelloError(
            f"{len(points)} points and {len(numbers)} values have too many states to try them all",
            f"together they may be {MOST_BITS}",
        )
    of_value = [sum(1 << at for at, mask in enumerate(needs) if mask >> value & 1) for value in range(len(numbers))]
    written = [nest.arrays[array] for array, _ in numbers]
    outputs = sum(1 << value for value, array in enumerate(written) if array.writes)
    accumulates = any(array.reads and array.writes for array in nest.arrays)
    return _Game(memory, tuple(needs), tuple(of_value), outputs, accumulates).play()
