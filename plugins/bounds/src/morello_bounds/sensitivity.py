"""Sensitivity: the sizes, memories and prices, or the choices of tiles, that determine the cost of moves.

Sobol's indices divide the variance of a result among its random inputs: the first-order index is the share of an input
alone, the total index its share together with others. SALib samples and estimates, as in [Dinh2023] §6.2.5. The result
is the logarithm of a cost, so that a factor of two counts the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs
import numpy as np

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello_bounds.certificate import cost_per_byte, crossings, memory_inside
from morello_bounds.nest import Nest, is_single, nest_of
from morello_bounds.programs import minimum
from morello_bounds.tiles import held, largest_factor, tile_moves
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


#: Inputs, and the function from their values to a result.
Model: TypeAlias = tuple[list[Input], Callable[[Sequence[float]], float]]


@attrs.frozen
class SobolIndex:
    """The share of an input in the variance, alone and together with others, each with its error."""

    name: str
    kind: str
    alone: float
    alone_error: float
    in_all: float
    in_all_error: float


def sobol_indices(
    inputs: Sequence[Input], result: Callable[[Sequence[float]], float], samples: int, seed: int
) -> list[SobolIndex]:
    """Return the index of each input. Raises MorelloError without SALib, and for `samples` not a power of two."""
    try:
        from SALib.analyze.sobol import analyze
        from SALib.sample.sobol import sample
    except ImportError as error:
        message = "sensitivity needs SALib, which is not installed"
        raise MorelloError(message, "pip install 'morello-bounds[sensitivity]'") from error
    if samples < 2 or samples & (samples - 1):
        raise MorelloError(f"{samples} samples are not a power of two", "Sobol's sequences need one, such as 64 or 128")
    if not inputs:
        raise MorelloError("no input varies", "take a Spec with loops of more than one point")
    names, bounds = [f"{one.kind} {one.name}" for one in inputs], [[one.low, one.high] for one in inputs]
    problem = {"num_vars": len(inputs), "names": names, "bounds": bounds}
    points = sample(problem, samples, calc_second_order=False, seed=seed)
    results = np.array([result([float(value) for value in point]) for point in points])
    columns = [[0.0] * len(inputs)] * 4
    if np.ptp(results) > 0:
        # SALib treats a seed of 0 as no seed.
        found = analyze(problem, results, calc_second_order=False, seed=seed + 1)
        columns = [[float(value) for value in found[name]] for name in ("S1", "S1_conf", "ST", "ST_conf")]
    return [SobolIndex(one.name, one.kind, *values) for one, *values in zip(inputs, *columns, strict=True)]


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
        levels = enumerate(target.levels)
        cuts = tuple(number for number, one in levels if number and not one.is_register and min(homes) >= number)
        if not cuts:
            raise MorelloError("an operand is in registers from the start", "take a Spec with all operands in memory")
        return cls(spec, target, nest_of(spec), cuts)

    @property
    def loops(self) -> list[int]:
        """Return the loops of more than one point."""
        return [loop for loop, size in enumerate(self.nest.sizes) if size > 1]

    def name(self, cut: int) -> str:
        return self.target.levels[cut - 1].name

    def memory(self, cut: int) -> int:
        return memory_inside(self.spec, self.target, cut)

    def cost(self, moved: Sequence[float], factors: Sequence[float]) -> float:
        """Return the least cost of moves of `moved` bytes across each boundary, at prices times `factors`."""
        prices = dict(zip(self.cuts, factors, strict=True))
        moves = crossings(self.target, self.cuts)
        costs = [
            sum(float(cost_per_byte(self.target, level)) * prices.get(level, 1.0) for level in (one.source, one.into))
            for one in moves
        ]
        rows = [[float(cut in one.cuts) for one in moves] for cut in range(len(self.cuts))]
        return sum(a * b for a, b in zip(costs, minimum(costs, rows, moved), strict=True))


def of_bound(model: MovesModel) -> Model:
    """Return the model of the bound on moves; sizes, memories and prices vary between half and twice their values."""
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
        nest, memories = attrs.evolve(model.nest, sizes=tuple(changed)), zip(model.cuts, rest, strict=False)
        moved = [estimate(nest, max(2, round(model.memory(cut) * factor))) for cut, factor in memories]
        return math.log(max(1.0, model.cost(moved, rest[len(model.cuts) :])))

    return inputs, result


def of_tiles(model: MovesModel) -> Model:
    """Return the model of the cost of moves in tiles: random proportions, scaled to fit, and the first loop."""
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


#: The models, by the input that they vary: the values of `morello bound --sensitivity --of`.
MODELS = {"bound": of_bound, "tiles": of_tiles}


def filled(model: MovesModel, shape: Sequence[float], memory: int) -> list[int]:
    """Return the largest tile in the proportions of `shape` that fits, clipped to the loops ([Dinh2023] §6.2)."""
    nest = model.nest

    def scaled(factor: float) -> list[int]:
        tile = [1] * len(nest.sizes)
        for loop, size in zip(model.loops, shape, strict=True):
            tile[loop] = max(1, min(nest.sizes[loop], int(factor * size)))
        return tile

    def fits(factor: float) -> bool:
        return sum(int(held(array, scaled(factor))) for array in nest.arrays) <= memory

    return scaled(largest_factor(max(nest.sizes) / min(shape), 40, fits))
