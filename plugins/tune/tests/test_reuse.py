"""A6: items that paid for a Spec are tried first for similar Specs, and help within few samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_tune import TuningOptions
from morello_tune import tune as tune_goal
from morello_tune.reuse import alike, recipes
from morello_tune.tuner import TuningResult

from morello import api
from morello.api.goals import Goal
from morello.db.measured import MachineKind, Measured
from morello.db.store import SpecStore
from morello.host import missing_features
from morello.kernels.target import Metric

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)
MACHINE = MachineKind(cpu="any", compiler="any", threads=1)


def relu(rows: int, columns: int, dtype: str = "f32") -> Goal:
    text = f"Relu({rows}×{columns}, ({dtype}, GL), ({dtype}, GL), serial)"
    return api.goal(text, target="x86_avx2", profile="base")


def slow(goal: Goal) -> Goal:
    text = "move 0 to GL as col_major\nmove 1 to GL as col_major"
    return goal.apply(text).synthesize(db=False, progress=False)


def keep(store: SpecStore, goal: Goal, *way: tuple[str, float]) -> None:
    best = Measured(
        machine=MACHINE, schedule="", key="", value=1.0, spread=0.0, start=2.0, gain=2.0, samples=1, way=way
    )
    store.keep_measured(goal.target, goal.spec, best)


def test_specs_are_alike_that_are_proportional_or_share_two_sizes() -> None:
    square, halves = (1, 1024, 1024, 1024), (1, 512, 512, 512)
    assert alike(square, halves)
    assert alike((1, 12544, 64, 256), (1, 6272, 64, 256))
    assert not alike((1, 1024, 1024, 512), (1, 512, 64, 512))
    assert not alike((8, 8), (8, 16))


def test_recipes_are_of_the_same_operation_and_types_nearest_first(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")
    keep(store, relu(256, 256), ("fuse", 1.5))
    keep(store, relu(128, 128), ("tile", 1.2), ("pack", 1.001), ("hoist", 2.0))
    keep(store, relu(64, 64), ("tile", 3.0))
    keep(store, relu(128, 64), ("split", 2.0))
    keep(store, relu(32, 32, "bf16"), ("split", 2.0))
    found = recipes(store, relu(64, 64))
    # Neither the Spec itself, nor items without gain.
    assert [(one.shape, one.way) for one in found] == [
        ((128, 128), (("tile", 1.2), ("hoist", 2.0))),
        ((256, 256), (("fuse", 1.5),)),
    ]


def tune(goal: Goal, db: Any = False, reuse: Any = False) -> TuningResult:
    options = TuningOptions(beam=2, plans=2, implementations=1, iterations=2, samples=10, reuse=reuse)
    return tune_goal(goal, options, db=db)


@pytest.mark.slow
def test_recipes_are_replayed_first_one_item_at_a_time(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")
    keep(store, relu(128, 128), ("mapper", 4.0), ("drop_move", 1.1))
    # Judged by a number that no other process disturbs.
    modelled = Metric(name="modelled cost", unit="units", measure=lambda kernel: float(kernel.cost))
    goal = slow(relu(64, 64))
    goal = attrs.evolve(goal, target=attrs.evolve(goal.target, metrics=(modelled,)))
    done = tune(goal, reuse=store)
    items = [one.proposal.item for one in done.samples]
    assert items[0] == "mapper"
    first = items.index("drop_move")
    assert {*items[:first]} == {"mapper"}
    assert first <= 4
    assert len(items) <= 10
    plain = tune(goal)
    assert done.gain > 1
    # With the same budget, it is at least as fast.
    assert done.gain >= plain.gain


@pytest.mark.slow
def test_items_that_paid_for_one_spec_are_kept_for_the_next(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "a.db")
    first = tune(attrs.evolve(slow(relu(64, 64)), name="first"), db=store)
    assert first.improved
    (recipe,) = recipes(store, relu(128, 128))
    assert recipe.shape == (64, 64)
    assert {item for item, _ in recipe.way} <= {item for item, _ in first.best.way}
