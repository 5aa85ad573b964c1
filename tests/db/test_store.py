"""Solved Specs on disk: found again, never mixed up, with clear errors for damaged files."""

from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from pathlib import Path

import attrs
import pytest

import morello
from morello.db.fingerprint import fingerprint
from morello.db.programs import solved_blocks
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved, SpecError
from morello.ir.impl import Node
from morello.kernels.target import Target
from morello.plugins import Weights

TEXT = "Matmul(1×1×1×2, L1, L1, L1, serial)"


def solve(store: SpecStore, text: str = TEXT) -> tuple[morello.Goal, int]:
    """The goal synthesized with the store, and how many Specs search solved for it."""
    goal = morello.goal(text, target="x86_avx2")
    return goal.synthesize(db=store), goal.searches.of(store).solved


def test_solved_specs_are_found(tmp_path: Path) -> None:
    path = tmp_path / "solved.db"
    first, searched = solve(SpecStore(path))
    again, nothing = solve(SpecStore(path))
    assert searched > 0
    assert nothing == 0
    assert again.impl == first.impl


def test_a_snapshot_sees_nothing_that_is_stored_meanwhile(tmp_path: Path) -> None:
    store, other = SpecStore(tmp_path / "solved.db"), SpecStore(tmp_path / "solved.db")
    solved = morello.goal(TEXT, target="x86_avx2").synthesize(db=False)
    impls = solved.impl, morello.goal("FillZero(4, L1, serial)", target="x86_avx2").synthesize(db=False).impl

    def found(one: SpecStore) -> list[bool]:
        return [one.program(solved.target, impl.spec) == impl for impl in impls]

    with store.snapshot():
        assert found(store) == [False, False]
        other.remember(solved.target, impls[0])
        with store.snapshot():
            store.remember(solved.target, impls[1])
        assert (found(store), found(other)) == ([False, False], [True, True])
    assert found(store) == [True, True]


def test_an_answer_holds_for_all_limits_between_its_peak_and_its_limits(tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "solved.db")
    text = "Matmul(1×1×1×1, (u8, GL), (u8, GL), (u8, GL), serial)"
    first, _ = solve(store, text)
    entry = store.find(first.target, first.spec)
    assert entry
    assert entry.peak == (0, 0, 256, 0, 0, 0)
    within, searched = solve(store, f"({text}, [0, 0, 256, 0, 0])")
    assert (within.schedule, searched) == (first.schedule, 0)
    below = morello.goal(f"({text}, [0, 0, 128, 0, 0])", target="x86_avx2")
    assert store.find(below.target, below.spec) is None
    assert store.program(below.target, below.spec) is None


@pytest.mark.slow
def test_other_targets_have_other_fingerprints(avx2: Target, tmp_path: Path) -> None:
    slower = attrs.evolve(avx2.levels[2], hit_cost=3)
    changed = [
        attrs.evolve(avx2, weights=Weights(threads=3)),
        attrs.evolve(avx2, levels=(*avx2.levels[:2], slower, *avx2.levels[3:])),
        attrs.evolve(avx2, kernels=avx2.kernels[1:]),
        attrs.evolve(avx2, rewrites=avx2.rewrites[1:]),
        attrs.evolve(avx2, kernels=(attrs.evolve(avx2.kernels[0], cost=lambda spec, target: 7), *avx2.kernels[1:])),
    ]
    prints = {fingerprint(target) for target in [avx2, *changed]}
    assert len(prints) == len(changed) + 1
    store = SpecStore(tmp_path / "solved.db")
    goal, _ = solve(store)
    assert store.find(avx2, goal.spec) is not None
    assert all(store.find(target, goal.spec) is None for target in changed)


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "solved.db"
    goals = [morello.goal(f"FillZero({size}, (f32, L1), serial)", target="x86_avx2") for size in range(1, 9)]
    threads = [threading.Thread(target=lambda g=goal: g.synthesize(db=SpecStore(path))) for goal in goals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = SpecStore(path)
    assert all(store.find(goal.target, goal.spec) for goal in goals)


def other_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE pets (name TEXT)")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"no database at all, but long enough to look at" * 50), "not a database"),
        (other_database, "not a Morello database"),
        (lambda path: path.mkdir(), "is not a file"),
    ],
)
def test_files_that_are_no_database(make, message: str, tmp_path: Path) -> None:
    path = tmp_path / "solved.db"
    make(path)
    with pytest.raises(MorelloError, match=message):
        SpecStore(path)


@pytest.mark.parametrize("path", ["", ".", "/", "/dev/null"])
def test_paths_that_name_no_file(path: str) -> None:
    with pytest.raises(MorelloError, match="is not a file"):
        SpecStore(path)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(MorelloError, match="cannot be made: No such file or directory"):
        SpecStore(tmp_path / "missing" / "solved.db")


def test_results_that_cannot_be_saved_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise MorelloError("the disk is full")

    monkeypatch.setattr(SpecStore, "add", full)
    with pytest.warns(NotSaved, match="answers are not saved: the disk is full"):
        goal, searched = solve(SpecStore(tmp_path / "solved.db"))
    assert searched > 0
    assert goal.impl != morello.goal(TEXT, target="x86_avx2").impl


def test_an_unfinished_program_is_no_answer(tmp_path: Path) -> None:
    goal = morello.goal(TEXT, target="x86_avx2").to_accum()
    with pytest.raises(SpecError, match="unfinished"):
        SpecStore(tmp_path / "solved.db").remember(goal.target, goal.impl)


def test_steps_that_contradict_the_stored_cost(avx2: Target, tmp_path: Path) -> None:
    goal, _ = solve(SpecStore(tmp_path / "good.db"))
    assert isinstance(goal.impl, Node)
    for name, change, words in [
        ("cost", {"cost": goal.impl.expansion.cost + 1}, "the stored step `.*` is wrong"),
        ("step", {"step": "tile [9, 9, 9, 9]"}, "the stored step `.*` is wrong"),
        ("text", {"step": "fly [1]"}, "unknown step"),
    ]:
        store = SpecStore(tmp_path / f"{name}.db")
        root, *others = solved_blocks(goal.impl)
        root = attrs.evolve(
            root,
            costs=root.costs + ("cost" in change),
            steps=(change.get("step", root.steps[0]), *root.steps[1:]),
        )
        store.add(avx2, [root, *others])
        with pytest.raises(MorelloError, match=words) as caught:
            store.program(avx2, goal.spec)
        assert "verify" in str(caught.value)


@pytest.mark.parametrize("name", ["a b.db", "a?mode=memory.db", "a#b%20.db", "ä.db"])
def test_any_name_will_do(name: str, tmp_path: Path) -> None:
    solve(SpecStore(tmp_path / name))
    assert [one.name for one in tmp_path.iterdir() if not one.name.endswith(("-wal", "-shm"))] == [name]
    assert solve(SpecStore(tmp_path / name))[1] == 0


def test_a_store_goes_on_in_child_processes(avx2: Target, tmp_path: Path) -> None:
    store = SpecStore(tmp_path / "solved.db")
    goal, _ = solve(store)
    child = morello.goal("FillZero(4, (f32, L1), serial)", target="x86_avx2")

    def work() -> None:
        assert store.program(avx2, goal.spec) == goal.impl
        child.synthesize(db=store)

    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert store.find(avx2, child.spec)
    assert store.program(avx2, goal.spec) == goal.impl
