"""Databases are separate: answers of one are neither written to another nor read from it."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

import morello
from morello import api
from morello.cli.app import main
from morello.db.store import SpecStore
from morello.ir.impl import Impl
from morello.search.budget import SearchBudget
from morello.search.progress import Progress
from morello.search.solve import engine
from morello.search.tables.step_tables import SearchTables

TEXT = """target x86_avx2
spec a = FillZero(4×8, (f32, L1), serial)
spec b = FillZero(2×16, (f32, L1), serial)
spec c = Matmul(1×1×1×2, L1, L1, L1, serial)
spec d = Matmul(1×1×2×1, L1, L1, L1, serial)
"""


def has_answer(store: SpecStore, goal: morello.Goal) -> bool:
    return store.find(goal.target, goal.spec) is not None


def test_a_goal_without_a_database_is_not_written_to_that_of_another(tmp_path: Path) -> None:
    goals, store = morello.parse(TEXT), SpecStore(tmp_path / "solved.db")
    goals["a"].synthesize(store)
    goals["b"].synthesize()
    assert has_answer(store, goals["a"])
    assert not has_answer(store, goals["b"])


def test_goals_are_written_to_the_database_given_with_them(tmp_path: Path) -> None:
    goals = morello.parse(TEXT)
    one, other = SpecStore(tmp_path / "one.db"), SpecStore(tmp_path / "other.db")
    goals["a"].synthesize(one)
    goals["b"].synthesize(other)
    goals["c"].synthesize(one)
    assert [name for name in goals if has_answer(one, goals[name])] == ["a", "c"]
    assert [name for name in goals if has_answer(other, goals[name])] == ["b"]
    # Answers of another search are solved again for a database without them.
    goals["a"].synthesize(other)
    assert has_answer(other, goals["a"])


def test_progress_is_reported_to_the_callback() -> None:
    goals = morello.parse(TEXT)
    heard: list[Progress] = []
    goals["c"].synthesize(progress=heard.append)
    count = len(heard)
    assert count
    goals["d"].synthesize()
    goals["b"].apply("synthesize")
    assert len(heard) == count


def test_progress_is_not_reported_after_a_search_that_fails() -> None:
    goal = morello.goal("Matmul(1×1×1×2, L1, L1, L1, serial)", target="x86_avx2")

    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        goal.synthesize(progress=stop)
    assert goal.synthesize().impl == morello.synthesize(goal)


@pytest.mark.slow
def test_threads_with_databases_of_their_own_do_not_meet(tmp_path: Path) -> None:
    """The goals of one file, half of them in each thread: answers are those of one thread, each in its own file."""
    goals = morello.parse(TEXT)
    stores = [SpecStore(tmp_path / "ac.db"), SpecStore(tmp_path / "bd.db")]
    found: dict[str, Impl] = {}
    ready = threading.Barrier(2)

    def work(store: SpecStore, names: str) -> None:
        ready.wait()
        for name in names:
            found[name] = goals[name].synthesize(store).impl

    threads = [threading.Thread(target=work, args=pair) for pair in zip(stores, ("ac", "bd"), strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: goal.synthesize().impl for name, goal in morello.parse(TEXT).items()}
    for store, names in zip(stores, ("ac", "bd"), strict=True):
        assert [name for name in goals if has_answer(store, goals[name])] == [*names]


@pytest.mark.slow
def test_threads_take_turns_with_one_database(tmp_path: Path) -> None:
    goals, store = morello.parse(TEXT), SpecStore(tmp_path / "solved.db")
    found: dict[str, Impl] = {}

    def work(name: str) -> None:
        found[name] = goals[name].synthesize(store).impl

    threads = [threading.Thread(target=work, args=(name,)) for name in goals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {name: goal.synthesize().impl for name, goal in morello.parse(TEXT).items()}
    assert all(has_answer(store, goal) for goal in goals.values())


def test_the_search_used_last_keeps_its_tables_alone() -> None:
    first, second = (morello.goal(f"Relu({size}, GL, GL)", target="reference_c") for size in (3, 5))
    found = first.synthesize(False, False)
    assert first.searches.details(None)
    second.synthesize(False, False)
    assert second.searches.details(None)
    assert not first.searches.details(None)
    assert first.synthesize(False, False).impl == found.impl
    assert first.searches.details(None)


@pytest.mark.slow
@pytest.mark.parametrize(("effort", "worker"), [(20, False), (300, False), (None, False), (300, True)])
def test_goals_that_differ_in_sizes_share_tables(
    monkeypatch: pytest.MonkeyPatch, effort: int | None, worker: bool
) -> None:
    """Their programs and bounds are those of searches on their own, also where the budget ends these."""
    text = "target x86_avx2\n" + "".join(
        f"spec p{m}{k}{n} = Matmul(1×{m}×{k}×{n}, L1, L1, L1, serial)\n"
        for m, k, n in ((6, 8, 16), (12, 3, 8), (4, 9, 24))
    )
    budget, built = SearchBudget(expansions=effort), []
    alone = [morello.goal(str(one.spec.logical), target="x86_avx2") for one in morello.parse(text).values()]
    expected = [one.synthesize(False, False, budget) for one in alone]
    monkeypatch.setattr(engine, "SearchTables", lambda *args: built.append(args) or SearchTables(*args))
    goals = api.expect([*morello.parse(text).values()], None)
    if worker:
        goals = pickle.loads(pickle.dumps(goals))
    found = [one.synthesize(False, False, budget) for one in goals]
    assert len(built) == 1
    assert [(one.impl, one.low) for one in found] == [(one.impl, one.low) for one in expected]


def test_a_command_shares_tables_between_goals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, built = tmp_path / "products.spec", []
    file.write_text(
        "target x86_avx2\n" + "".join(f"spec p{n} = Matmul(1×2×2×{n}, L1, L1, L1, serial)\n" for n in (8, 16, 24))
    )
    monkeypatch.setattr(engine, "SearchTables", lambda *args: built.append(args) or SearchTables(*args))
    found = CliRunner(catch_exceptions=False).invoke(
        main, ["compile", str(file), "--emit", "schedule", "--effort", "99"]
    )
    assert found.exit_code == 0, found.stderr
    assert len(built) == 1
