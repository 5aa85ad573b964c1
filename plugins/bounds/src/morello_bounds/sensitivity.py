"""Sensitivity: the sizes, memories and prices, or the choices of tiles, that determine the cost of moves.

Sobol's indices divide the variance of a result among its random inputs: the first-order index is the share of an input
alone, the total index its share together with others. SALib samples and estimates, as in [Dinh2023] §6.2.5. The result
is the logarithm of a cost, so that a factor of two counts the same everywhere.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.certificate import memory_inside
from morello_bounds.lp import minimum
from morello_bounds.nest import Nest, is_single, nest_of
from morello_bounds.tiles import held, tile_moves
from morello_bounds.traffic import estimate

#: The largest factor by which sizes, memories and prices vary.
FACTOR = 2.0


@attrs.frozen
class Input:
    """An input that is uniform between two bounds; `kind` is a word such as size or price."""

    name: str
    kind: str
    low: float
    high: float


@attrs.frozen
class SobolIndex:
    """The share of an input in the variance, alone and together with others, each with its error."""

    input: Input
    first: float
    total: float
    first_error: float
    total_error: float

    def as_dict(self) -> dict[str, Any]:
        """Return the index as JSON has it."""
        return {
            "name": self.input.name,
            "kind": self.input.kind,
            "alone": self.first,
            "alone_error": self.first_error,
            "in_all": self.total,
            "in_all_error": self.total_error,
        }


def sobol(name: str) -> Any:
    """Return a module of SALib: `sample` or `analyze`. Raises MorelloError where it is not installed."""
    try:
        return importlib.import_module(f"SALib.{name}.sobol")
    except ImportError as error:
        message = "sensitivity needs SALib, which is not installed"
        raise MorelloError(message, "pip install 'morello-bounds[sensitivity]'") from error


def sobol_indices(
    inputs: Sequence[Input], result: Callable[[Sequence[float]], float], samples: int, seed: int
) -> list[SobolIndex]:
    """Return the index of each input, from `samples` · (inputs + 2) results; the same for the same seed.

    `samples` is a power of two. Raises MorelloError for other numbers of them, and for no inputs.
    """
    if samples < 2 or samples & (samples - 1):
        raise MorelloError(f"{samples} samples are not a power of two", "Sobol's sequences need one, such as 64 or 128")
    if not inputs:
        raise MorelloError("no input varies", "take a Spec with loops of more than one point")
    problem = {
        "num_vars": len(inputs),
        "names": [f"{one.kind} {one.name}" for one in inputs],
        "bounds": [[one.low, one.high] for one in inputs],
    }
    points = sobol("sample").sample(problem, samples, calc_second_order=False, seed=seed)
    results = np.array([result([float(value) for value in point]) for point in points])
    if np.ptp(results) == 0:
        return [SobolIndex(one, 0.0, 0.0, 0.0, 0.0) for one in inputs]
    # SALib treats a seed of 0 as no seed.
    found = sobol("analyze").analyze(problem, results, calc_second_order=False, seed=seed + 1)
    columns = [[float(value) for value in found[name]] for name in ("S1", "ST", "S1_conf", "ST_conf")]
    return [SobolIndex(one, *values) for one, *values in zip(inputs, *columns, strict=True)]


@attrs.frozen
class MovesModel:
    """A model of the cost of moves for a Spec of one operation, from the bytes at each boundary."""

    spec: Spec
    target: Target
    nest: Nest
    #: The boundaries behind which operands are, by the number of the level behind.
    cuts: tuple[int, ...]

    @classmethod
    def of(cls, spec: Spec, target: Target) -> MovesModel:
        """Return the model of a Spec. Raises MorelloError for a graph, and if an operand starts in registers."""
        if not is_single(spec):
            raise MorelloError(f"{spec.op.name} has no single nest of loops", "take one of its operations")
        homes = [target.levels.index(target.level(state.level)) for state in spec.logical.states]
        cuts = tuple(
            level
            for level in range(1, len(target.levels))
            if not target.levels[level].is_register and min(homes) >= level
        )
        if not cuts:
            raise MorelloError("an operand is in registers from the start", "take a Spec with all operands in memory")
        return cls(spec, target, nest_of(spec), cuts)

    @property
    def loops(self) -> list[int]:
        """Return the loops of more than one point."""
        return [loop for loop, size in enumerate(self.nest.sizes) if size > 1]

    def name(self, cut: int) -> str:
        """Return the name of the level before a boundary."""
        return self.target.levels[cut - 1].name

    def memory(self, cut: int) -> int:
        """Return the bytes of fast memory at a boundary."""
        return memory_inside(self.spec, self.target, cut)

    def cost(self, moved: Sequence[float], factors: Sequence[float]) -> float:
        """Return the least cost of moves with these bytes across each boundary.

        `factors` multiply the prices of the levels behind boundaries.
        """
        prices = dict(zip(self.cuts, factors, strict=True))
        costs: list[float] = []
        crossed: list[list[float]] = []
        for source, level in enumerate(self.target.levels):
            for into in (self.target.levels.index(self.target.level(name)) for name in level.destinations):
                crossed.append([float(into < cut <= source) for cut in self.cuts])
                costs.append(sum(self._per_byte(one) * prices.get(one, 1.0) for one in (source, into)))
        rows = [list(row) for row in zip(*crossed, strict=True)]
        return sum(a * b for a, b in zip(costs, minimum(costs, rows, moved), strict=True))

    def _per_byte(self, level: int) -> float:
        one = self.target.levels[level]
        return 0.0 if one.is_register else one.hit_cost / one.unit


def of_bound(model: MovesModel) -> tuple[list[Input], Callable[[Sequence[float]], float]]:
    """Return the inputs of the bound on moves, and the function to its logarithm.

    Sizes, memories and prices vary between half and twice their values.
    """
    around = -math.log(FACTOR), math.log(FACTOR)
    inputs = [
        *(Input(model.nest.loops[loop], "size", *around) for loop in model.loops),
        *(Input(model.name(cut), "memory", *around) for cut in model.cuts),
        *(Input(model.target.levels[cut].name, "price", *around) for cut in model.cuts),
    ]

    def result(values: Sequence[float]) -> float:
        factors = [math.exp(value) for value in values]
        sizes, rest = factors[: len(model.loops)], factors[len(model.loops) :]
        changed = [*model.nest.sizes]
        for loop, factor in zip(model.loops, sizes, strict=True):
            changed[loop] = max(1, round(changed[loop] * factor))
        nest = attrs.evolve(model.nest, sizes=tuple(changed))
        moved = [
            estimate(nest, max(2, round(model.memory(cut) * factor)))
            for cut, factor in zip(model.cuts, rest, strict=False)
        ]
        return math.log(max(1.0, model.cost(moved, rest[len(model.cuts) :])))

    return inputs, result


def of_tiles(model: MovesModel) -> tuple[list[Input], Callable[[Sequence[float]], float]]:
    """Return the choices of tiles at each boundary, and the function to the logarithm of the cost of their moves.

    Inputs are the proportions of the sizes of tiles, which are scaled to fit, and the loop along which tiles advance
    first.
    """
    inputs: list[Input] = []
    for cut in model.cuts:
        inputs += [Input(f"{model.nest.loops[loop]} in {model.name(cut)}", "tile", 1e-3, 1.0) for loop in model.loops]
        inputs.append(Input(f"first loop in {model.name(cut)}", "order", 0.0, 1.0))
    each = len(model.loops) + 1

    def result(values: Sequence[float]) -> float:
        moved: list[float] = []
        for number, cut in enumerate(model.cuts):
            *shape, order = values[number * each : (number + 1) * each]
            inner = model.loops[min(len(model.loops) - 1, int(order * len(model.loops)))]
            moved.append(tile_moves(model.nest, filled(model, shape, model.memory(cut)), inner))
        return math.log(max(1.0, model.cost(moved, [1.0] * len(model.cuts))))

    return inputs, result


def filled(model: MovesModel, shape: Sequence[float], memory: int) -> list[int]:
    """Return the largest tile in the proportions of `shape` that fits, clipped to the loops; at least one point.

    The scale is found by bisection ([Dinh2023] §6.2).
    """
    low, high = 0.0, max(model.nest.sizes) / min(shape)
    for _ in range(40):
        middle = (low + high) / 2
        tile = _scaled(model, shape, middle)
        fits = sum(int(held(array, tile)) for array in model.nest.arrays) <= memory
        low, high = (middle, high) if fits else (low, middle)
    return _scaled(model, shape, low)


def _scaled(model: MovesModel, shape: Sequence[float], factor: float) -> list[int]:
    tile = [1] * len(model.nest.sizes)
    for loop, size in zip(model.loops, shape, strict=True):
        tile[loop] = max(1, min(model.nest.sizes[loop], int(factor * size)))
    return tile
