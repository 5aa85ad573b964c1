"""`gradient`: tiles of real sizes that move least, by gradient descent, rounded ([Dinh2023] §7).

In logarithms of sizes, the bytes that tiles move and those that fast memory holds are sums of exponentials. So for each
loop along which tiles advance first there is one minimum, for any start.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import softmax

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.plan import TileAndOrder, TileContext, tiling_plans
from morello_bounds.nest import Array, Nest
from morello_bounds.tiles import tile_moves

Floats = npt.NDArray[np.float64]

#: The share of moved bytes that a tile e times as large may cost: of tiles that move about the least, take the largest.
_LARGER = 0.05


def log_held(array: Array, sizes: Floats, unit: int) -> tuple[float, Floats]:
    """Return the logarithm of the bytes that tiles of these sizes, [loops], hold, and its gradient by their logarithms.

    An index that sums loops counts with its whole range, each row as if a line of `unit` bytes began with its end.
    """
    rows = np.abs(np.array(array.rows(len(sizes)), dtype=float)).reshape(-1, len(sizes))
    ranges = 1 + rows @ (sizes - 1)
    ranges[-1:] += max(0.0, unit / array.bytes - 1)
    return math.log(array.bytes) + float(np.log(ranges).sum()), (rows / ranges[:, None]).sum(axis=0) * sizes


def log_moved(nest: Nest, inner: int, sizes: Floats, unit: int) -> tuple[float, Floats]:
    """Return the logarithm of the bytes that tiles of sizes [loops] move along `inner` first, and its gradient."""
    trips = np.log(np.array(nest.sizes)) - np.log(sizes)
    logs: list[float] = []
    slopes: list[Floats] = []
    for array in nest.arrays:
        log, slope = log_held(array, sizes, unit)
        advances = np.array([loop != inner or loop in array.support for loop in range(len(sizes))], dtype=float)
        logs.append(log + float(advances @ trips) + math.log(2 if array.writes else 1))
        slopes.append(slope - advances)
    return _sum(logs, slopes)


def _sum(logs: Sequence[float], slopes: Sequence[Floats]) -> tuple[float, Floats]:
    """Return the logarithm of a sum and its gradient, from the logarithms of its terms and their gradients."""
    return float(np.logaddexp.reduce(logs)), softmax(logs) @ np.array(slopes)


@cache
def descend(
    nest: Nest, memory: int, inner: int, unit: int = 1, whole: Collection[int] = frozenset()
) -> tuple[float, ...] | None:
    """Return the sizes of tiles that fit and move about the least; None if none fits. Loops `whole` are not tiled."""
    start = np.array([math.log(size) if loop in whole else 0.0 for loop, size in enumerate(nest.sizes)])

    def slack(logs: Floats) -> tuple[float, Floats]:
        held, slope = _sum(*zip(*(log_held(array, np.exp(logs), unit) for array in nest.arrays), strict=True))
        return math.log(memory) - held, -slope

    if slack(start)[0] < 0:
        return None

    def worth(logs: Floats) -> tuple[float, Floats]:
        moved, slope = log_moved(nest, inner, np.exp(logs), unit)
        return moved - _LARGER * float(logs.sum()), slope - _LARGER

    found = minimize(
        worth,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(low, math.log(size)) for low, size in zip(start, nest.sizes, strict=True)],
        constraints=[{"type": "ineq", "fun": lambda logs: slack(logs)[0], "jac": lambda logs: slack(logs)[1]}],
    )
    return tuple(map(float, np.exp(found.x)))


def _choose(context: TileContext) -> TileAndOrder | None:
    """Return the rounded tile that moves least, over all loops along which tiles may advance first."""
    best: tuple[int, int, tuple[int, ...], tuple[int, ...]] | None = None
    loops = [loop for loop, size in enumerate(context.nest.sizes) if size > 1] or [0]
    for inner in loops if context.memory > 0 else ():
        shape = descend(context.nest, context.memory, inner, context.unit, context.whole)
        tile = context.fitted(shape) if shape else None
        if tile is not None:
            order = context.order(tile)
            made = (tile_moves(context.nest, tile, *order), -math.prod(tile), tile, order)
            best = made if best is None else min(best, made)
    return best and best[2:]


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    yield from tiling_plans(spec, target, _choose)


GRADIENT = Mapper("gradient", _propose, "tiles that move least, by gradient descent over real sizes, rounded")
