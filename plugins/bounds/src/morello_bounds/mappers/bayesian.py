"""`bo`: Bayesian optimization; a Gaussian process learns from each program which tiles to try next ([Dinh2023] §6.2).

A point has numbers from 0 to 1: a shape and a priority for each level and loop, and one number that chooses among the
tiling plans. The shape is stretched until the level is full, so that every point has valid tiles. Tiles advance along
the loops in the order of their priorities. Logarithms of sizes and limits are inputs too, so that trials of other Specs
count.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello.untrusted import parse_json, read_lines
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.plan import TileAndOrder, TileContext, tiled_levels, tiling_plans
from morello_bounds.nest import nest_of
from morello_bounds.tiles import stretched

NAME = "bo"
Floats = npt.NDArray[np.float64]

#: Programs that are tried, and those at random as long as nothing is known.
TRIALS, _RANDOM = 24, 6
#: Points that the process rates for each one that is tried: random ones, and some near the best so far.
_RATED, _NEAR = 1024, 256
#: The standard deviation of near points in each number.
_STEP = 0.1
#: The largest number of a trial; most are logarithms.
_LARGEST = 1000
#: A point without a program counts as this multiple of the worst program.
_NO_PROGRAM = 2.0
#: The most trials of other Specs that are used, the latest ones: the work grows with their cube.
_MOST = 120


@attrs.frozen
class MapperTrial:
    """A point of a task and the logarithm of its value, less is better; None without a program."""

    task: tuple[float, ...]
    point: tuple[float, ...]
    value: float | None = None


@attrs.define
class History:
    """Trials of one objective by kind of task, read from a file of JSON lines if given, and appended to it.

    Raises MorelloError for a file that cannot be read or has another format.
    """

    path: Path | None = None
    objective: str = "cost"
    _known: dict[str, list[MapperTrial]] = attrs.field(factory=dict[str, "list[MapperTrial]"], init=False)

    def __attrs_post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        hint = "name another file; it is created if it does not exist"
        for number, line in enumerate(read_lines(self.path, hint), 1):
            try:
                kind, objective, task, point, value = parse_json(line)
                numbers = [*task, *point, 0 if value is None else value]
                if not isinstance(kind, str) or not all(
                    type(one) in (int, float) and abs(one) <= _LARGEST for one in numbers
                ):
                    raise ValueError("a trial has the kind of its task, and small numbers")
            except (ValueError, TypeError) as error:
                raise MorelloError(f"{self.path}, line {number}: not a trial of the mapper bo", hint) from error
            if objective == self.objective:
                self._known.setdefault(kind, []).append(MapperTrial(tuple(task), tuple(point), value))

    def of(self, kind: str) -> Sequence[MapperTrial]:
        """Return the trials of a kind of task, the oldest first."""
        return tuple(self._known.get(kind, ()))

    def add(self, kind: str, trial: MapperTrial) -> None:
        """Add a trial. Raises MorelloError where the file cannot be written."""
        self._known.setdefault(kind, []).append(trial)
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps([kind, self.objective, *attrs.astuple(trial)]), file=file)
        except OSError as error:
            raise MorelloError(f"cannot write {self.path}: {error.strerror}", "name another file") from error


@attrs.frozen
class Encoding:
    """The meaning of points for a Spec."""

    spec: Spec
    target: Target = attrs.field(repr=False)

    @property
    def levels(self) -> list[int]:
        """Return the levels with tiles, by number, slowest first."""
        return tiled_levels(self.spec, self.target)

    @property
    def size(self) -> int:
        """Return the number of values of a point."""
        return 2 * len(self.levels) * len(self.spec.logical.shape) + 1

    @property
    def kind(self) -> str:
        """Return the key of all tasks that share trials: the same operation, and points of the same meaning."""
        rank, levels = len(self.spec.logical.shape), len(self.levels)
        return f"{self.target.name}: {self.spec.op} of {rank} dimensions, {levels} levels"

    @property
    def task(self) -> tuple[float, ...]:
        """Return the sizes and limits as logarithms."""
        numbers = [*self.spec.logical.shape, *(self.spec.limits[level] for level in self.levels)]
        return tuple(math.log2(1 + int(one)) / 10 for one in numbers)

    def proposals(self, point: Sequence[float]) -> list[Schedule]:
        """Return the schedule of a point; an empty list if no tiles fit."""
        every = [*tiling_plans(self.spec, self.target, partial(self._choose, point))]
        return [every[min(len(every) - 1, int(point[-1] * len(every)))]] if every else []

    def _choose(self, point: Sequence[float], context: TileContext) -> TileAndOrder | None:
        sizes = context.nest.sizes
        start = 2 * len(sizes) * self.levels.index(context.level)
        shape, priorities = point[start : start + len(sizes)], point[start + len(sizes) : start + 2 * len(sizes)]
        if context.memory < 1:
            return None
        # From one point of a loop to all of them.
        real = [size**one for size, one in zip(sizes, shape, strict=True)]
        tile = context.fitted(stretched(context.nest, context.memory, real))
        return (tile, order_of(priorities)) if tile else None


def order_of(priorities: Sequence[float]) -> tuple[int, ...]:
    """Return the loops sorted by priority, the smallest first; ties keep the order of the nest."""
    return tuple(sorted(range(len(priorities)), key=lambda loop: (priorities[loop], loop)))


@attrs.frozen
class Bayesian:
    """Proposes points with the largest expected improvement, and adds the outcomes to a history."""

    history: History | None = None
    trials: int = TRIALS

    def propose(self, spec: Spec, target: Target, seed: int) -> Generator[Schedule, float | None, None]:
        process = _process(seed)
        encoding, rng = Encoding(spec, target), np.random.default_rng(seed)
        history = History() if self.history is None else self.history
        sizes = len(encoding.task), encoding.size
        before = [one for one in history.of(encoding.kind) if (len(one.task), len(one.point)) == sizes][-_MOST:]
        own: list[MapperTrial] = []
        points = nest_of(spec).points
        for number in range(self.trials):
            at_random = number < _RANDOM and not before
            point = rng.random(encoding.size) if at_random else _next(process, encoding, before, own, rng)
            trial = MapperTrial(encoding.task, tuple(map(float, point)))
            for schedule in encoding.proposals(trial.point):
                reply = yield schedule
                if reply is not None:
                    trial = attrs.evolve(trial, value=math.log2(max(reply, 1e-12) / points))
            own.append(trial)
            history.add(encoding.kind, trial)


def _process(seed: int) -> Any:
    """Return a process with a length scale per input. Raises MorelloError without scikit-learn."""
    try:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import Matern, WhiteKernel
    except ImportError as error:
        hint = "pip install 'morello-bounds[bo]'"
        raise MorelloError("the mapper bo needs scikit-learn, which is not installed", hint) from error
    # Its types allow one length scale only.
    kernel: Any = Matern
    return lambda inputs: GaussianProcessRegressor(
        kernel(length_scale=np.ones(inputs), length_scale_bounds=(0.05, 20.0), nu=2.5)
        + WhiteKernel(1e-3, (1e-5, 1e-1)),
        normalize_y=True,
        random_state=seed,
    )


def _next(
    process: Any, encoding: Encoding, before: Sequence[MapperTrial], own: Sequence[MapperTrial], rng: Any
) -> Floats:
    """Return the candidate point with the largest expected improvement."""
    known = [*before, *own]
    values = np.array([math.nan if one.value is None else one.value for one in known])
    if np.isnan(values).all():
        return rng.random(encoding.size)
    values = np.where(np.isnan(values), np.nanmax(values) + math.log2(_NO_PROGRAM), values)
    inputs = np.array([(*one.task, *one.point) for one in known])
    points = rng.random((_RATED, encoding.size))
    mine = [(value, one.point) for value, one in zip(values[len(before) :], own, strict=True)]
    if mine:
        near = np.array(min(mine)[1]) + _STEP * rng.standard_normal((_NEAR, encoding.size))
        # Change about two numbers at a time.
        stays = rng.random(near.shape) > 2 / encoding.size
        points = np.vstack([points, np.clip(np.where(stays, np.array(min(mine)[1]), near), 0, 1)])
    tasks = np.tile(np.array(encoding.task), (len(points), 1))
    with warnings.catch_warnings():
        # A length scale at its bound, as that of an input without effect.
        warnings.simplefilter("ignore")
        fitted = process(inputs.shape[1]).fit(inputs, values)
    mean, spread = fitted.predict(np.hstack([tasks, points]), return_std=True)
    best = min((value for value, _ in mine), default=float(mean.min()))
    return points[int(np.argmax(_expected(best - mean, np.maximum(spread, 1e-9))))]


def _expected(gain: Floats, spread: Floats) -> Floats:
    """Return the expected improvement of points, [N], with normal gains of these means and standard deviations."""
    ratio = gain / spread
    return gain * ndtr(ratio) + spread * np.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)


def bayesian(history: History | None = None, trials: int = TRIALS) -> Mapper:
    """Return the mapper, which learns from a history and adds to it."""
    learner = Bayesian(history, trials)
    does = "tiles with the best improvement expected by Bayesian optimization, after each program"
    return Mapper(NAME, learner.propose, does, adaptive=True)


BO = bayesian()
