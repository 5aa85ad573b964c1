"""Products with a random matrix, whose numbers may be worked out again instead of being moved ([Dinh2023] §5).

Costs count values moved: to work out a number takes `generating` of these. A segment of cost T touches at most M + T
values, where a number counts as what it costs, but no more than moving it. So it has at most

    U(T) = ((M + T)/3)^(3/2) / √min(generating, 1)

points, and with T = 2M all but the last of the points/U segments cost 2M each. Without any numbers a segment that
loads M values has at most M² points, as each has one of either matrix.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from morello.bounds.calls import work_of
from morello.bounds.certificate import Cut
from morello.errors import MorelloError
from morello.ir.ops.rand_matmul import B, K, M, N, RandMatmul
from morello.ir.spec import Spec
from morello.kernels.target import Target

#: Bytes of a value.
_VALUE = 4


@attrs.frozen
class Randomized:
    """A random matrix of rows×inner numbers times one of inner×columns values, in fast memory of `memory` values."""

    rows: int
    inner: int
    columns: int
    memory: int
    generating: float

    @property
    def points(self) -> int:
        """Return the multiplications."""
        return self.rows * self.inner * self.columns

    @property
    def bound(self) -> float:
        """Return the cost of loads and numbers that no program is below, in values; 0 at least."""
        with_numbers = 2 * self.points * math.sqrt(min(self.generating, 1) / self.memory) - 2 * self.memory
        without = self.points / self.memory - self.memory
        return max(0.0, with_numbers, without)

    @property
    def tile(self) -> tuple[int, int]:
        """Return rows and columns of the output to keep while numbers come one by one, each for a row of the tile.

        Numbers are not kept. Where one costs more than to move, they are as good as moved. Raises MorelloError for
        memory that has no such tile.
        """
        share = min(self.generating, 1)
        columns = max(1, math.floor(math.sqrt(self.memory * share) + 1e-9))
        # The values of a column of the tile, and as many of a row of the other matrix.
        tile = self.memory // columns - 1, columns
        if min(tile) < 1:
            raise MorelloError(f"{self.memory} values of fast memory have no tile", "give it four at least")
        return tile

    @property
    def loads(self) -> int:
        """Return the values of the other matrix that tiles load: its rows once for each row of tiles."""
        return -(-self.rows // self.tile[0]) * self.inner * self.columns

    @property
    def generated(self) -> int:
        """Return the numbers that tiles work out: all of them for each column of tiles."""
        return -(-self.columns // self.tile[1]) * self.rows * self.inner

    @property
    def stores(self) -> int:
        """Return the values of the output."""
        return self.rows * self.columns

    @property
    def cost(self) -> float:
        """Return what loads and numbers of tiles cost, in values."""
        return self.loads + min(self.generating, 1) * self.generated


def randomized(spec: Spec, target: Target, cuts: Sequence[Cut]) -> list[Randomized]:
    """Return the product that a RandMatmul is at each cut; none for other operations, and without kernels for numbers.

    What a number costs is the least of all kernels, and what moving a value costs that between the levels of the cut.
    Rows are those of the whole batch.
    """
    if not isinstance(spec.op, RandMatmul):
        return []
    costs = [
        float((call.cost * _VALUE / call.bytes[2]).min())
        for call in work_of(spec, target).calls
        if call.op.startswith("Random") and len(call.levels) == 3
    ]
    if not costs:
        return []
    shape = [int(size) for size in spec.shape]
    found: list[Randomized] = []
    for cut in cuts:
        levels = target.levels[cut.level - 1 : cut.level + 1]
        moving = sum(0.0 if one.is_register else one.hit_cost * _VALUE / one.unit for one in levels)
        memory = max(1, cut.traffic.memory // _VALUE)
        made = Randomized(shape[B] * shape[M], shape[K], shape[N], memory, min(costs) / moving)
        found.append(made)
    return found
