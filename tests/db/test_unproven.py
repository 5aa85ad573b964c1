"""Unproven programs: stored separately, returned as unproven, and removed when the Spec is solved."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
import pytest

from morello.api.goals import Goal
from morello.db import database_cache, maintenance
from morello.db.answers import AnswerKind
from morello.db.database_cache import DatabaseCache
from morello.db.file import Damaged
from morello.db.program_texts import find_incumbent, read_programs, store_incumbent, write_program
from morello.db.store import SpecStore
from morello.errors import Undecided
from morello.frontend.parser import parse_spec
from morello.ir.impl import cost_and_peak
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.search.incumbents import Incumbent
from morello.search.progress import Progress
from morello.search.session import SearchSession
from morello.search.solve import core, solver

#: The first program that is found of it is not the cheapest.
TEXT = "(Conv(1×2×2×3×3×2×2, L1, L1, L1, serial), [12, 32, 128, 0, 0, 0])"
EASY = SearchBudget(gap=0.5)


@pytest.fixture(autouse=True)
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "QUOTA", 1)
    monkeypatch.setattr(solver, "_OFTEN", 0.0)


def approach(path: Path, target: Target, budget: SearchBudget) -> Incumbent:
    """Search for the Spec in a process that has only the database."""
    search = SearchSession(target, cache=DatabaseCache(SpecStore(path)))
    return search.search_within(parse_spec(TEXT, target), budget)


def stored(path: Path, target: Target) -> Incumbent | None:
    return find_incumbent(SpecStore(path).file, target, parse_spec(TEXT, target))


@pytest.mark.slow
def test_it_is_returned_as_unproven(tmp_path: Path, avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "specs.db"
    first = approach(path, avx2, EASY)
    assert first.low < first.cost
    assert stored(path, avx2) == first
    entry = SpecStore(path).find(avx2, first.impl.spec)
    assert entry is None or entry.kind == AnswerKind.LOWER
    assert SpecStore(path).program(avx2, first.impl.spec) is None
    # Without any search, also for less effort.
    monkeypatch.setattr(SearchSession, "_best", None)
    assert [approach(path, avx2, one) for one in (EASY, SearchBudget(gap=1.0))] == [first, first]
    assert Goal.of(first.impl.spec, avx2).synthesize(SpecStore(path), budget=EASY).low == first.low


def barely(folder: Path, target: Target) -> tuple[Path, int, Incumbent]:
    """Search with hardly more effort than gives a program; return the database and the effort too."""
    for count in range(100, 3_000, 100):
        path = folder / f"{count}.db"
        with contextlib.suppress(Undecided):
            return path, count, approach(path, target, SearchBudget(expansions=count))
    raise AssertionError("so much effort gives a program")


@pytest.mark.slow
def test_it_is_handed_out_where_as_much_effort_was_made(
    tmp_path: Path, avx2: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By class alone the first program would be proved at once.
    monkeypatch.setattr("morello.search.session.REFINE_AFTER", 0)
    path, count, first = barely(tmp_path, avx2)
    assert first.low < first.cost
    assert first.expansions == count
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SearchSession, "_best", None)
        assert approach(path, avx2, SearchBudget(expansions=count)) == first
        assert approach(path, avx2, SearchBudget(expansions=1)) == first
    assert approach(path, avx2, SearchBudget(expansions=100_000)).gap == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", [SearchBudget(gap=0.02), SearchBudget(expansions=100_000), SearchBudget(seconds=100.0), SearchBudget()]
)
def test_more_effort_goes_on_from_it(more: SearchBudget, tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    first = approach(path, avx2, EASY)
    best = SearchSession(avx2).synthesize(first.impl.spec)
    again = approach(path, avx2, more)
    assert first.low <= again.low <= cost_and_peak(best).cost <= again.cost <= first.cost
    if again.low == again.cost:
        assert again.impl == best
        assert stored(path, avx2) is None
        assert SpecStore(path).program(avx2, best.spec) == best
    else:
        assert stored(path, avx2) == Incumbent(
            again.impl, again.cost, again.low, max(first.expansions, again.expansions)
        )


def test_too_little_effort_to_find_a_better_one_gives_it_again(tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    first = approach(path, avx2, EASY)
    again = approach(path, avx2, SearchBudget(seconds=1e-9))
    assert (again.impl, again.cost) == (first.impl, first.cost)
    assert again.low >= first.low


@pytest.mark.slow
def test_a_stored_program_may_be_the_optimum(tmp_path: Path, avx2: Target) -> None:
    """It may also cost as much as the cheapest, and be another."""
    path = tmp_path / "specs.db"
    approach(path, avx2, EASY)
    best = SearchSession(avx2).synthesize(parse_spec(TEXT, avx2))
    cost = int(cost_and_peak(best).cost)
    store_incumbent(SpecStore(path).file, avx2, Incumbent(best, cost, cost - 1, 1))
    assert approach(path, avx2, SearchBudget()) == Incumbent(best, cost, cost)
    assert stored(path, avx2) is None


@pytest.mark.slow
@pytest.mark.parametrize("budget", [SearchBudget(), SearchBudget(gap=1e-6)])
def test_an_interrupt_stores_the_best_so_far(budget: SearchBudget, tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    seen: list[Progress] = []

    def stop(progress: Progress) -> None:
        seen.append(progress)
        if progress.high is not None:
            raise KeyboardInterrupt

    search = SearchSession(avx2, cache=DatabaseCache(SpecStore(path)), progress=stop)
    with pytest.raises(KeyboardInterrupt):
        search.search_within(parse_spec(TEXT, avx2), budget)
    found = stored(path, avx2)
    assert found
    assert (found.cost, found.low) == (seen[-1].high, seen[-1].low)
    assert approach(path, avx2, SearchBudget()).impl == SearchSession(avx2).synthesize(found.impl.spec)
    assert stored(path, avx2) is None


SEARCH = f"""
import sys
from morello.db import database_cache
from morello.db.database_cache import DatabaseCache
from morello.db.store import SpecStore
from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed
from morello.search.session import SearchSession
from morello.search.solve import core, solver
from morello.search.budget import SearchBudget
core.QUOTA, solver._OFTEN, database_cache._PAUSE = 1, 0.0, 0.0
target = installed().target("x86_avx2")
def report(progress):
    if progress.high not in (None, progress.low):
        print(progress.low, progress.high, flush=True)
SearchSession(target, progress=report, cache=DatabaseCache(SpecStore(sys.argv[1]))).search_within(
    parse_spec({TEXT!r}, target), SearchBudget(gap=1e-6))
"""


@pytest.mark.slow
@pytest.mark.parametrize("lines_read", [2])
def test_a_killed_search_loses_no_reported_bound(lines_read: int, tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    with subprocess.Popen([sys.executable, "-c", SEARCH, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline() for _ in range(lines_read)]
        os.kill(process.pid, signal.SIGKILL)
    low, high = map(int, lines[-1].split())
    found = stored(path, avx2)
    # It may have run until it was killed, but not finished.
    assert found
    assert low <= found.low < found.cost <= high
    best = SearchSession(avx2).synthesize(found.impl.spec)
    assert approach(path, avx2, SearchBudget()).impl == best


@pytest.mark.slow
@pytest.mark.parametrize("column", ["spec", "schedule", "record", "crc"])
def test_a_changed_row_is_damage(column: str, tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    approach(path, avx2, EASY)
    assert [*maintenance.damage(SpecStore(path), [avx2])] == []
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE programs SET {column} = {'crc + 1' if column == 'crc' else f'{column} || 1'}")
    if column != "spec":
        with pytest.raises(Damaged, match="a stored program has changed"):
            approach(path, avx2, EASY)
    assert len([*maintenance.damage(SpecStore(path), [avx2])]) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"record": '{"cost": 3000, "low": 1, "expansions": 0}'},
        {"record": '{"cost": 1, "low": 2, "expansions": 0}'},
        {"record": "[]"},
        {"schedule": "to_accum"},
        {"schedule": "select Nothing"},
    ],
)
def test_a_row_that_does_not_give_its_program_is_damage(change: dict[str, Any], tmp_path: Path, avx2: Target) -> None:
    """An adversarial file has right checksums."""
    path = tmp_path / "specs.db"
    approach(path, avx2, EASY)
    file = SpecStore(path).file
    (row,) = read_programs(file, "TRUE")
    with file.writing():
        write_program(file, attrs.evolve(row, **change))
    with pytest.raises(Damaged, match=r"the unproven program of .*Conv"):
        approach(path, avx2, EASY)
    assert len([*maintenance.damage(SpecStore(path), [avx2])]) == 1


@pytest.mark.slow
def test_maintenance_counts_and_drops_them(tmp_path: Path, avx2: Target) -> None:
    path = tmp_path / "specs.db"
    approach(path, avx2, EASY)
    assert [one.unproven for one in maintenance.summaries(SpecStore(path))] == [1]
    maintenance.prune(SpecStore(path), [avx2], lower=False)
    assert stored(path, avx2)
    maintenance.prune(SpecStore(path), [avx2], lower=True)
    assert stored(path, avx2) is None


@pytest.mark.slow
def test_saving_now_and_then_changes_no_answer(tmp_path: Path, avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_cache, "_PAUSE", 0.0)
    often = approach(tmp_path / "often.db", avx2, SearchBudget(gap=0.001))
    monkeypatch.setattr(database_cache, "_PAUSE", time.time())
    assert often == approach(tmp_path / "seldom.db", avx2, SearchBudget(gap=0.001))
