"""bo: it learns from what comes of its proposals, and from what came of those for other Specs."""

from __future__ import annotations

import math
import random
import shutil
import sys
from collections.abc import Generator
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.bayesian import Encoding, History, MapperTrial, bayesian, order_of
from morello_bounds.nest import nest_of
from morello_bounds.tiles import tile_moves

from morello import api
from morello.api.goals import Goal
from morello.errors import MorelloError
from morello.rewrites.tile import Tile
from morello.schedule import Schedule, Subschedule

LIMITS = "[64, 512, 4096, 16384, 65536, 1048576]"


@pytest.fixture(autouse=True)
def needs_sklearn() -> None:
    pytest.importorskip("sklearn")


def product(m: int, k: int, n: int) -> Goal:
    text = f"(Matmul(1×{m}×{k}×{n}, (f32, GL), (f32, GL), (f32, GL), serial), {LIMITS})"
    return api.goal(text, target="x86_avx2", profile="base")


def smallest(schedule: Schedule) -> tuple[int, ...] | None:
    """The innermost tile."""
    found = None
    for statement in schedule:
        if isinstance(statement, Subschedule):
            found = smallest(statement.body) or found
        elif isinstance(statement, Tile):
            found = tuple(map(int, statement.sizes))
    return found


def tried(mapper: Mapper, goal: Goal, seed: int) -> list[float]:
    """Return the bytes that innermost tiles move, of one proposal after another, each sent back."""
    proposals: Any = mapper.propose(goal.spec, goal.target, seed)
    assert isinstance(proposals, Generator)
    nest = nest_of(goal.spec)
    values: list[float] = []
    reply = None
    try:
        while True:
            tile = smallest(proposals.send(reply))
            values.append(float(tile_moves(nest, tile or nest.sizes)))
            reply = values[-1]
    except StopIteration:
        return values


@pytest.mark.slow
def test_it_learns_more_than_chance_finds() -> None:
    """After six tries at random come ones that are better in the mean, and the best is among them."""
    values = [math.log(one) for one in tried(bayesian(trials=12), product(64, 512, 128), 0)]
    blind, learnt = values[:6], values[6:]
    assert sum(learnt) / len(learnt) < sum(blind) / len(blind)
    assert min(learnt) <= min(blind)


@pytest.mark.slow
def test_what_was_learnt_of_other_specs_counts(tmp_path: Path) -> None:
    """First proposals for a Spec are better in the mean than those without a history."""
    learnt = tmp_path / "learnt"
    tried(bayesian(History(learnt), trials=14), product(64, 240, 64), 0)
    goal = product(64, 480, 128)
    kind = Encoding(goal.spec, goal.target).kind
    cold, warm = list[float](), list[float]()
    path = tmp_path / "history"
    for seed in range(8):
        shutil.copy(learnt, path)
        cold += tried(bayesian(trials=3), goal, seed)
        warm += tried(bayesian(History(path), trials=3), goal, seed)
        assert len(History(path).of(kind)) == 17
    assert sum(map(math.log, warm)) < sum(map(math.log, cold))
    # Seconds are not costs.
    assert not History(learnt, "time").of(kind)


def test_every_point_has_tiles_that_fit() -> None:
    """And all steps apply: no point is in vain."""
    goal = product(11, 40, 24)
    encoding = Encoding(goal.spec, goal.target)
    rng = random.Random(0)
    for _ in range(10):
        (schedule,) = encoding.proposals([rng.random() for _ in range(encoding.size)])
        assert goal.apply(schedule).schedule


def test_places_are_the_order_of_loops() -> None:
    """The loop with the least number goes on first."""
    goal = product(64, 384, 128)
    encoding = Encoding(goal.spec, goal.target)
    assert encoding.size == 2 * 4 * len(encoding.levels) + 1
    half = [0.5] * 4
    found = {
        encoding.proposals([*half, *order, *half, *order, 0.0])[0]
        for order in ((0.4, 0.3, 0.1, 0.2), (0.4, 0.1, 0.2, 0.3), (0.4, 0.3, 0.2, 0.1))
    }
    assert len(found) == 3


@pytest.mark.parametrize(("loops", "orders"), [(3, 1296), (7, 645_241_282_560_000)])
def test_places_give_every_order(loops: int, orders: int) -> None:
    """Those of four levels are as many as [Dinh2023] §6.2.3 counts, for products and convolutions."""
    assert len({order_of(places) for places in permutations(range(loops))}) ** 4 == orders


@pytest.mark.parametrize(
    "line",
    [
        *("{}", "[1, 2]", "x", "", '["a", "cost", [1], [2], NaN]', '[1, "cost", [1], [2], 3]'),
        *('["a", "cost", "b", [2], 3]', '["a", "cost", [1], [2], "3"]', '["a", "cost", [1], [true], 3]'),
        *(f'["a", "cost", [1], [2], 1{"0" * 400}]', '["a", "cost", [1], [1e999], 3]', '["a", "cost", [1], [2], 1e300]'),
        *(f'["a", "cost", [1], [{"[" * 10**5}', f'["a", "cost", [1], [2], {"9" * 10**6}]'),
    ],
    ids=range(14),
)
def test_files_that_hold_something_else(tmp_path: Path, line: str) -> None:
    path = tmp_path / "history"
    path.write_text(line + "\n")
    with pytest.raises(MorelloError, match="line 1: not a trial"):
        History(path)


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(MorelloError, match="cannot read"):
        History(tmp_path)
    with pytest.raises(MorelloError, match="cannot write"):
        History(tmp_path / "none" / "history").add("kind", MapperTrial((), (), 1.0))


def test_it_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.gaussian_process", None)
    goal = product(8, 8, 8)
    with pytest.raises(MorelloError, match="scikit-learn") as caught:
        next(iter(bayesian().propose(goal.spec, goal.target, 0)))
    assert "morello-bounds[bo]" in str(caught.value.hint)
