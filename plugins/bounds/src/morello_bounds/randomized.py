"""Products with a random matrix, whose numbers may be generated again instead of moved ([Dinh2023] §5).

Costs are in values moved; generating a number costs `generating` of these. A segment of cost T touches at most M + T
values, where a number counts with its cost, but at most 1. So it has at most

    U(T) = ((M + T)/3)^(3/2) / √min(generating, 1)

points, and with T = 2M all but the last of the points/U segments cost 2M each. Without any numbers a segment that
loads M values has at most M² points, as each has one of either matrix.

Sums count as loaded before their first point. Those that begin at zero are not, but each is stored once: so it is
loads, stores and numbers together that cost as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import attrs

from morello.errors import MorelloError
from morello.ir.ops.rand_matmul import B, K, M, N, RandMatmul
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.calls import work_of
from morello_bounds.certificate import Cut, crossings

#: Bytes of a value.
_VALUE = 4


@attrs.frozen
class RandomProduct:
    """A random matrix of rows×inner numbers times one of inner×columns values, in fast memory of `memory` values."""

    rows: int
    inner: int
    columns: int
    memory: int
    generating: float | Fraction

    @property
    def points(self) -> int:
        return self.rows * self.inner * self.columns

    @property
    def bytes(self) -> int:
        """Return a lower bound on the cost of loads, stores and numbers together, as bytes moved, rounded down."""
        share = min(Fraction(self.generating), Fraction(1))
        # The square of 2·points·√(share/M), in bytes.
        square = (2 * _VALUE * self.points) ** 2 * share / self.memory
        with_numbers = math.isqrt(math.floor(square)) - 2 * _VALUE * self.memory
        without = math.floor(Fraction(_VALUE * self.points, self.memory)) - _VALUE * self.memory
        return max(0, with_numbers, without)

    @property
    def tile(self) -> tuple[int, int]:
        """Return rows and columns of the output that stay in fast memory. Raises MorelloError if none fit."""
        share = min(float(self.generating), 1.0)
        columns = max(1, math.floor(math.sqrt(self.memory * share) + 1e-9))
        # The values of a column of the tile, and as many of a row of the other matrix.
        tile = self.memory // columns - 1, columns
        if min(tile) < 1:
            raise MorelloError(f"{self.memory} values of fast memory have no tile", "give at least four")
        return tile

    @property
    def cost(self) -> float:
        """Return the cost of tiles, in values: each row of tiles loads the other matrix, each column generates all."""
        loads = -(-self.rows // self.tile[0]) * self.inner * self.columns
        generated = -(-self.columns // self.tile[1]) * self.rows * self.inner
        return loads + min(float(self.generating), 1.0) * generated


def random_products(spec: Spec, target: Target, cuts: Sequence[Cut]) -> dict[int, RandomProduct]:
    """Return the product that a RandMatmul is at each cut whose moves are not free, by the level behind it.

    Empty for other operations and without kernels for numbers. Costs of a number and of a move are the least ones.
    """
    if not isinstance(spec.op, RandMatmul):
        return {}
    costs = [
        Fraction(int(cost) * _VALUE, int(held))
        for call in work_of(spec, target).calls
        if call.op.startswith("Random") and len(call.levels) == 3
        for cost, held in zip(call.cost, call.bytes[2], strict=True)
    ]
    if not costs:
        return {}
    shape = [int(size) for size in spec.shape]
    moves = crossings(target, [cut.level for cut in cuts])
    found: dict[int, RandomProduct] = {}
    for at, cut in enumerate(cuts):
        moving = _VALUE * min((one.cost for one in moves if at in one.cuts), default=Fraction(0))
        if moving:
            memory = max(1, cut.traffic.memory // _VALUE)
            found[cut.level] = RandomProduct(shape[B] * shape[M], shape[K], shape[N], memory, min(costs) / moving)
    return found
