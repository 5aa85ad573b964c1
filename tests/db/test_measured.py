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
from morello.db.program_texts import read_programs, write_program
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


def test_one_for_each_choice_of_features(store: SpecStore) -> None:
    goal = morello.goal(TEXT, target="x86_avx2", cpu="+avx_vnni")
    assert store.measured(goal.target, goal.spec) == []
    store.keep_measured(goal.target, goal.spec, BEST)
    assert store.measured(goal.target, goal.spec) == [BEST]


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


DEEP = "[" * 100_000 + "]" * 100_000
HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("column", "old", "new", "rule"),
    [
        ("record", '"gain": 1.9', f'"gain": {HUGE}', "a number has 401 digits, more than 100"),
        ("record", '"gain": 1.9', '"gain": 1e999', "1e999 is not a finite number"),
        ("record", '"gain": 1.9', '"gain": NaN', "NaN is not a finite number"),
        ("record", '"gain": 1.9', '"gain": -1', "gain is a finite number that is not negative, not -1"),
        ("record", '"samples": 20', '"samples": "many"', "samples is an integer from 0 to 2.31, not 'many'"),
        ("record", '"key": "abc"', '"key": ["abc"]', "key is a line of text"),
        ("record", '"metric": ""', r'"metric": "\u001b[31m"', "metric is a line of text"),
        ("record", "1.5", "null", "way is a finite number"),
        ("record", '[["tile", 1.5], ["hoist", 1.3]]', DEEP, "it is nested deeper than 50 levels"),
        ("schedule", "select", "select" * 50_000, "schedule has more than 256 KiB"),
        ("machine", '"threads": 1', '"threads": "two"', "threads is an integer from 0 to 2.31, not 'two'"),
        ("machine", '"threads": 1', f'"threads": {HUGE}', "a number has 401 digits, more than 100"),
        ("machine", '"zen5"', r'"\u001b[31m"', "cpu is a line of text"),
        ("machine", '"zen5"', DEEP, "it is nested deeper than 50 levels"),
        ("spec", "[[1, ", f"[[{DEEP}, ", "it is nested deeper than 50 levels"),
        ("spec", "[[1, ", "[[0, ", "sizes are integers of at least 1"),
        ("spec", "[[1, ", "[[1.5, ", "sizes are integers of at least 1"),
        ("spec", "[[1, ", f"[[{1 << 63}, ", "sizes are integers of at least 1"),
    ],
)
def test_rows_of_others_are_checked(
    store: SpecStore, goal: morello.Goal, column: str, old: str, new: str, rule: str
) -> None:
    """Their checksums are right."""
    (row,) = read_programs(store.file, "TRUE")
    assert old in getattr(row, column)
    with store.file.writing() as connection:
        connection.execute("DELETE FROM programs")
        write_program(store.file, attrs.evolve(row, **{column: getattr(row, column).replace(old, new)}))
    with pytest.raises(Damaged, match=f"the measured program of .*: {rule}"):
        _ = [*measured.specs(store.file, goal.target.name)]
    assert len([*maintenance.damage(store)]) == 1
