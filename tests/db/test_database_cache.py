"""Search with a database: stored answers change no result, however often search is saved or stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import morello
from morello.db import database_cache
from morello.db.answers import AnswerKind
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl, cost_and_peak, walk
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.search.progress import Progress
from morello.search.solve import core, solver


def matmul(size: int) -> morello.Goal:
    """Return a product of bytes, for which search takes many turns."""
    shape = f"1×{size}×{size}×{size}"
    return morello.goal(f"Matmul({shape}, (u8, GL), (u8, GL), (u8, GL), serial)", target="x86_avx2")


@pytest.fixture(autouse=True)
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let search return to Python every few turns, so that even small searches are saved and stopped."""
    monkeypatch.setattr(core, "QUOTA", 4)
    monkeypatch.setattr(solver, "_OFTEN", 0.0)


@pytest.fixture(scope="module")
def expected() -> dict[int, Impl]:
    """Programs found without a database."""
    return {size: matmul(size).synthesize().impl for size in (4, 8)}


@pytest.mark.slow
def test_search_continues_from_smaller_goals(
    tmp_path: Path, expected: dict[int, Impl], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_cache, "_PAUSE", 0.0)  # save as often as can be
    monkeypatch.setattr(core, "QUOTA", 100)
    for size in expected:
        store = SpecStore(tmp_path / "specs.db")
        assert matmul(size).synthesize(store).impl == expected[size]


@pytest.mark.slow
def test_stored_answers_need_no_search(tmp_path: Path, expected: dict[int, Impl], avx2: Target) -> None:
    matmul(8).synthesize(SpecStore(tmp_path / "specs.db"))
    store = SpecStore(tmp_path / "specs.db")
    assert store.program(avx2, matmul(8).spec) == expected[8]
    assert all(store.program(avx2, node.spec) == node for node in walk(expected[8]))  # pyright: ignore
    again = matmul(8)
    assert again.synthesize(store).impl == expected[8]
    assert again.searches.of(store).solved == 0


def saves(monkeypatch: pytest.MonkeyPatch, path: Path, *, fails: bool) -> int:
    """Count the attempts of search, during it and at its end, to store its answers."""
    count = 0
    add = SpecStore.add

    def counted(*args: Any, **options: Any) -> None:
        nonlocal count
        count += 1
        if fails:
            raise MorelloError("the disk is full")
        add(*args, **options)

    monkeypatch.setattr(SpecStore, "add", counted)
    monkeypatch.setattr(core, "QUOTA", 4)
    # In many turns: no kernel does all of it at once.
    goal = morello.goal("Matmul(1×4×4×4, (u8, GL), (u8, GL), (u8, GL), serial)", target="x86_avx2")
    goal.synthesize(SpecStore(path))
    return count


@pytest.mark.slow
def test_reported_bounds_are_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, avx2: Target) -> None:
    monkeypatch.setattr(database_cache, "_PAUSE", 0.0)
    monkeypatch.setattr(core, "QUOTA", 16)
    path, goal = tmp_path / "specs.db", matmul(4)
    reported = 0

    def see(progress: Progress) -> None:
        nonlocal reported
        if progress.low and progress.high != progress.low:
            # Another process finds the same bound.
            entry = SpecStore(path).find(avx2, goal.spec)
            assert entry
            assert (entry.kind, entry.cost) == (AnswerKind.LOWER, progress.low)
            reported += 1

    found = goal.synthesize(SpecStore(path), see, SearchBudget())
    assert reported > 1
    entry = SpecStore(path).find(avx2, goal.spec)
    assert entry
    assert (entry.kind, entry.cost) == (AnswerKind.EXACT, cost_and_peak(found.impl).cost)


@pytest.mark.slow
def test_running_searches_are_saved_regularly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_cache, "_PAUSE", 1e9)
    at_the_end = saves(monkeypatch, tmp_path / "a.db", fails=False)
    monkeypatch.undo()
    monkeypatch.setattr(database_cache, "_PAUSE", 0.0)
    assert saves(monkeypatch, tmp_path / "b.db", fails=False) > at_the_end > 0


def test_after_saving_has_failed_nothing_more_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_cache, "_PAUSE", 0.0)
    with pytest.warns(NotSaved) as warned:
        assert saves(monkeypatch, tmp_path / "a.db", fails=True) == 1
    assert len(warned) == 1


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [3, 8])
def test_a_search_that_was_stopped_goes_on(tmp_path: Path, expected: dict[int, Impl], iterations: int) -> None:
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == iterations:
            raise KeyboardInterrupt

    store = SpecStore(tmp_path / "specs.db")
    with pytest.raises(KeyboardInterrupt):
        matmul(8).synthesize(store, progress=stop)
    assert matmul(8).synthesize(SpecStore(tmp_path / "specs.db")).impl == expected[8]
