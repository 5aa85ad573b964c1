"""bo: a Gaussian process learns from each program which tiles to try next ([Dinh2023] §6.2).

A point has numbers from 0 to 1: for each level and loop a shape and a place in the order, and one number that chooses
among drafts. The shape is stretched until the level is full, so that each point is tiles that are valid. Loops go on in
the order of their places. What was learnt of other Specs and limits counts too: their logarithms are inputs.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.draft import Room, drafts, tiled_levels
from morello_bounds.mappers.history import History, Trial
from morello_bounds.nest import nest_of
from morello_bounds.tiles import stretched

NAME = "bo"
Floats = npt.NDArray[np.float64]

#: Programs that are tried, and those of them at random where nothing is known yet.
TRIALS, _RANDOM = 24, 6
#: Points that the process is asked about for each that is tried: at random, and near the best so far.
_ASKED, _NEAR = 1024, 256
#: How far near ones are, in each number.
_STEP = 0.1
#: How many times as much as the worst program no program counts.
_NONE = 2.0
#: Trials of other Specs that count at most, the latest ones: the work grows with their cube.
_MOST = 120


@attrs.frozen
class Encoding:
    """The meaning of points for a Spec."""

    spec: Spec
    target: Target = attrs.field(repr=False)

    @property
    def levels(self) -> list[int]:
        """Return the levels that there are tiles for, by number, slowest first."""
        return tiled_levels(self.spec, self.target)

    @property
    def size(self) -> int:
        """Return how many numbers a point has."""
        return 2 * len(self.levels) * len(self.spec.logical.shape) + 1

    @property
    def kind(self) -> str:
        """Return what tasks have in common that learn from each other: the operation and what its points mean."""
        rank, levels = len(self.spec.logical.shape), len(self.levels)
        return f"{self.target.name}: {self.spec.op} of {rank} dimensions, {levels} levels"

    @property
    def task(self) -> tuple[float, ...]:
        """Return the sizes and limits, as logarithms."""
        numbers = [*self.spec.logical.shape, *(self.spec.limits[level] for level in self.levels)]
        return tuple(math.log2(1 + int(one)) / 10 for one in numbers)

    def proposals(self, point: Sequence[float]) -> list[Schedule]:
        """Return the one schedule of a point, or none where no tiles fit."""
        every = [*drafts(self.spec, self.target, partial(self._choose, point))]
        return [every[min(len(every) - 1, int(point[-1] * len(every)))]] if every else []

    def _choose(self, point: Sequence[float], room: Room) -> tuple[Sequence[int], Sequence[int]] | None:
        sizes = room.nest.sizes
        start = 2 * len(sizes) * self.levels.index(room.level)
        shape, places = point[start : start + len(sizes)], point[start + len(sizes) : start + 2 * len(sizes)]
        if room.memory < 1:
            return None
        # From one point of a loop to all of them.
        tile = room.fitted(
            stretched(room.nest, room.memory, [size**one for size, one in zip(sizes, shape, strict=True)])
        )
        return (tile, order_of(places)) if tile else None


def order_of(places: Sequence[float]) -> tuple[int, ...]:
    """Return the loops in the order of their places, the first first; of equal ones the first in the nest."""
    return tuple(sorted(range(len(places)), key=lambda loop: (places[loop], loop)))


@attrs.frozen
class Bayesian:
    """Proposes points that are likely to be better than the best so far; adds what comes of them to a history.

    Without one, nothing is learnt from one Spec for the next.
    """

    history: History | None = None
    trials: int = TRIALS

    def propose(self, spec: Spec, target: Target, seed: int) -> Generator[Schedule, float | None, None]:
        process = _process(seed)
        encoding, rng = Encoding(spec, target), np.random.default_rng(seed)
        history = History() if self.history is None else self.history
        sizes = len(encoding.task), encoding.size
        before = [one for one in history.of(encoding.kind) if (len(one.task), len(one.point)) == sizes][-_MOST:]
        own: list[Trial] = []
        points = nest_of(spec).points
        for number in range(self.trials):
            at_random = number < _RANDOM and not before
            point = rng.random(encoding.size) if at_random else _next(process, encoding, before, own, rng)
            trial = Trial(encoding.task, tuple(map(float, point)))
            for schedule in encoding.proposals(trial.point):
                reply = yield schedule
                if reply is not None:
                    trial = attrs.evolve(trial, value=math.log2(max(reply, 1e-12) / points))
            own.append(trial)
            history.add(encoding.kind, trial)


def _process(seed: int) -> Any:
    """Return a process whose inputs each have a length of their own. Raises MorelloError without scikit-learn."""
    try:
        processes = importlib.import_module("sklearn.gaussian_process")
        kernels = importlib.import_module("sklearn.gaussian_process.kernels")
    except ImportError as error:
        raise MorelloError(
            "bo needs scikit-learn, which is not installed", "pip install 'morello-bounds[bo]'"
        ) from error
    return lambda inputs: processes.GaussianProcessRegressor(
        kernels.Matern(length_scale=np.ones(inputs), length_scale_bounds=(0.05, 20.0), nu=2.5)
        + kernels.WhiteKernel(1e-3, (1e-5, 1e-1)),
        normalize_y=True,
        random_state=seed,
    )


def _next(process: Any, encoding: Encoding, before: Sequence[Trial], own: Sequence[Trial], rng: Any) -> Floats:
    """Return the point, of many, of which most improvement is expected."""
    known = [*before, *own]
    values = np.array([math.nan if one.value is None else one.value for one in known])
    if np.isnan(values).all():
        return rng.random(encoding.size)
    values = np.where(np.isnan(values), np.nanmax(values) + math.log2(_NONE), values)
    inputs = np.array([(*one.task, *one.point) for one in known])
    points = rng.random((_ASKED, encoding.size))
    mine = [(value, one.point) for value, one in zip(values[len(before) :], own, strict=True)]
    if mine:
        near = np.array(min(mine)[1]) + _STEP * rng.standard_normal((_NEAR, encoding.size))
        # One number or two at a time.
        stays = rng.random(near.shape) > 2 / encoding.size
        points = np.vstack([points, np.clip(np.where(stays, np.array(min(mine)[1]), near), 0, 1)])
    tasks = np.tile(np.array(encoding.task), (len(points), 1))
    mean, spread = _fitted(process(inputs.shape[1]), inputs, values).predict(
        np.hstack([tasks, points]), return_std=True
    )
    best = min((value for value, _ in mine), default=float(mean.min()))
    return points[int(np.argmax(_expected(best - mean, np.maximum(spread, 1e-9))))]


def _fitted(process: Any, inputs: Floats, values: Floats) -> Any:
    with warnings.catch_warnings():
        # That a length is at its bound, as that of a number which does not matter.
        warnings.simplefilter("ignore")
        return process.fit(inputs, values)


def _expected(gain: Floats, spread: Floats) -> Floats:
    """Return the improvement expected of points, [N], whose gains are normal with these means and spreads."""
    special = importlib.import_module("scipy.special")
    ratio = gain / spread
    return gain * special.ndtr(ratio) + spread * np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)


def bayesian(history: History | None = None, trials: int = TRIALS) -> Mapper:
    """Return the mapper, which learns from a history, and adds to it."""
    learner = Bayesian(history, trials)
    does = "tiles of which a Gaussian process expects most, after each program that it learns from"
    return Mapper(NAME, learner.propose, does, adaptive=True)


BO = bayesian()
