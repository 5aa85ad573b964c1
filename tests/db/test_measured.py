"""Measured programs: one for each kind of machine, separate from answers, and reported if they are damaged."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import attrs
import pytest

import morello
from morello.db import maintenance, measured
from morello.db.file import Damaged
from morello.db.measured import MachineKind, Measured
from morello.db.store import SpecStore

TEXT = "Matmul(1×1×1×2, L1, L1, L1, serial)"
BEST = Measured(
    machine=MachineKind(cpu="zen5", compiler="gcc 12", threads=1),
    schedule="select Nothing",
    key="abc",
    value=1e-6,
    spread=0.01,
    start=2e-6,
    gain=1.9,
    samples=20,
    way=(("tile", 1.5), ("hoist", 1.3)),
)


@pytest.fixture
def goal() -> morello.Goal:
    return morello.goal(TEXT, target="x86_avx2")


@pytest.fixture
def store(tmp_path: Path, goal: morello.Goal) -> SpecStore:
    store = SpecStore(tmp_path / "a.db")
    store.keep_measured(goal.target, goal.spec, BEST)
    return store


def test_one_for_each_kind_of_machine(store: SpecStore, goal: morello.Goal) -> None:
    assert store.measured(goal.target, goal.spec) == [BEST]
    better = attrs.evolve(BEST, value=5e-7)
    other = attrs.evolve(BEST, machine=attrs.evolve(BEST.machine, threads=2))
    for one in (better, other):
        store.keep_measured(goal.target, goal.spec, one)
    assert sorted(one.machine.threads for one in store.measured(goal.target, goal.spec)) == [1, 2]
    assert better in store.measured(goal.target, goal.spec)
    assert measured.counts(store.file) == {"x86_avx2": 2}
    assert "2 threads" in str(other.machine)
    assert [*maintenance.damage(store)] == []


def test_it_is_no_answer(store: SpecStore, goal: morello.Goal) -> None:
    assert store.find(goal.target, goal.spec) is None
    assert store.program(goal.target, goal.spec) is None
    assert not store.has_any(goal.target)
    assert maintenance.summaries(store) == []
    # Of another Spec, or with less memory, nothing is known.
    other = morello.goal("Matmul(1×1×1×4, L1, L1, L1, serial)", target="x86_avx2")
    assert store.measured(other.target, other.spec) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE programs SET schedule = 'select Other'",
        "UPDATE programs SET record = '{}', crc = 0",
        "UPDATE programs SET machine = 'x'",
    ],
)
def test_changed_rows_are_damage(store: SpecStore, goal: morello.Goal, change: str) -> None:
    path = store.path
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    again = SpecStore(path)
    with pytest.raises(Damaged, match="a stored program has changed"):
        again.measured(goal.target, goal.spec)
    assert len([*maintenance.damage(again)]) == 1
