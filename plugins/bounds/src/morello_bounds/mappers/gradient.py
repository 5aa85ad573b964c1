"""gradient: tiles of real sizes that move least, down the gradient of what is moved, rounded ([Dinh2023] §7).

In logarithms of sizes the bytes that tiles move are a sum of exponentials, and so is what fast memory holds: there is
one least for each loop along which tiles may go on first, wherever one starts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from functools import cache

import numpy as np
import numpy.typing as npt

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.lp import scipy_module
from morello_bounds.mappers.draft import Room, drafts
from morello_bounds.nest import Array, Nest
from morello_bounds.tiles import tile_moves

Floats = npt.NDArray[np.float64]

#: What a tile is worth that is e times as large, as a share of what is moved: of many that move the least, the largest.
_LARGER = 0.05


def log_held(array: Array, sizes: Floats, unit: int) -> tuple[float, Floats]:
    """Return the logarithm of the bytes that tiles of these sizes, [loops], take of an array, and its gradient.

    The gradient is by the logarithms of sizes. Of an index that is a sum of loops there is the range that it has; a row
    takes as much as if a line of `unit` bytes began with its last value.
    """
    rows = np.abs(np.array(array.rows(len(sizes)), dtype=float)).reshape(-1, len(sizes))
    ranges = 1 + rows @ (sizes - 1)
    ranges[-1:] += max(0.0, unit / array.bytes - 1)
    return math.log(array.bytes) + float(np.log(ranges).sum()), (rows / ranges[:, None]).sum(axis=0) * sizes


def log_moved(nest: Nest, inner: int, sizes: Floats, unit: int) -> tuple[float, Floats]:
    """Return the logarithm of the bytes that tiles of these sizes, [loops], move which go on along `inner` first.

    The gradient comes with it, by the logarithms of sizes. What is written is moved twice.
    """
    trips = np.log(np.array(nest.sizes)) - np.log(sizes)
    logs: list[float] = []
    slopes: list[Floats] = []
    for array in nest.arrays:
        log, slope = log_held(array, sizes, unit)
        goes_on = np.array([loop != inner or loop in array.support for loop in range(len(sizes))], dtype=float)
        logs.append(log + float(goes_on @ trips) + math.log(2 if array.writes else 1))
        slopes.append(slope - goes_on)
    return _sum(logs, slopes)


def _sum(logs: Sequence[float], slopes: Sequence[Floats]) -> tuple[float, Floats]:
    """Return the logarithm of a sum, and its gradient, of those of its terms."""
    most = max(logs)
    shares = np.exp(np.array(logs) - most)
    return most + math.log(float(shares.sum())), shares @ np.array(slopes) / float(shares.sum())


@cache
def descended(
    nest: Nest, memory: int, inner: int, unit: int = 1, whole: Collection[int] = frozenset()
) -> tuple[float, ...] | None:
    """Return the sizes that move least, with all arrays' parts in memory together; loops `whole` stay so.

    Lines have `unit` bytes, and tiles that move a little more may be larger. None where not even the smallest fits.
    """
    start = np.array([math.log(size) if loop in whole else 0.0 for loop, size in enumerate(nest.sizes)])

    def room(logs: Floats) -> tuple[float, Floats]:
        held, slope = _sum(*zip(*(log_held(array, np.exp(logs), unit) for array in nest.arrays), strict=True))
        return math.log(memory) - held, -slope

    if room(start)[0] < 0:
        return None

    def worth(logs: Floats) -> tuple[float, Floats]:
        moved, slope = log_moved(nest, inner, np.exp(logs), unit)
        return moved - _LARGER * float(logs.sum()), slope - _LARGER

    found = scipy_module("optimize").minimize(
        worth,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(low, math.log(size)) for low, size in zip(start, nest.sizes, strict=True)],
        constraints=[{"type": "ineq", "fun": lambda logs: room(logs)[0], "jac": lambda logs: room(logs)[1]}],
    )
    return tuple(map(float, np.exp(found.x)))


def _choose(room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
    """Return the rounded tile that moves least, of those for each loop that may go on first."""
    best: tuple[int, int, tuple[int, ...], tuple[int, ...]] | None = None
    loops = [loop for loop, size in enumerate(room.nest.sizes) if size > 1] or [0]
    for inner in loops if room.memory > 0 else ():
        shape = descended(room.nest, room.memory, inner, room.unit, room.whole)
        tile = room.fitted(shape) if shape else None
        if tile is not None:
            order = room.order(tile)
            made = (tile_moves(room.nest, tile, *order), -math.prod(tile), tile, order)
            best = made if best is None else min(best, made)
    return best and best[2:]


def _propose(spec: Spec, target: Target, seed: int) -> Iterator[Schedule]:
    yield from drafts(spec, target, _choose)


GRADIENT = Mapper("gradient", _propose, "tiles that move least, down the gradient of what is moved, rounded")
