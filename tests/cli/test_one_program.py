"""All commands and functions act on the program that the database has, proven or not, and search no further."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from morello_bounds.report import bound
from morello_tune import TuningOptions, tune

import morello
from morello import api
from morello.api.functions import calls
from morello.cli.app import all_commands
from morello.db.program_texts import store_incumbent
from morello.db.store import SpecStore
from morello.host import missing_features
from morello.ir.impl import cost_and_peak
from morello.search.budget import SearchBudget
from morello.search.incumbents import Incumbent
from morello.search.session import SearchSession

SPEC = "Matmul(1×12×8×16, (f32, GL), (f32, GL), (f32, GL), serial)"
TEXT = f"spec some = {SPEC}\n"
#: The commands that act on programs, and options of each.
ACTING = {
    "run": ["--against", "none"],
    "compile": [],
    "check": [],
    "bench": ["--against", "none", "--min-time", "0"],
    "explain": [],
    "bound": [],
    "map": [],
    "tune": ["--iterations", "0"],
}
#: Those that act on none, or solve Specs to the proof (`precompute`, `front`).
OTHERS = {"build", "import", "fmt", "lsp", "targets", "calibrate", "db", "cache", "precompute", "front"}

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)


def goal() -> api.Goal:
    return morello.goal(SPEC, target="x86_avx2")


@pytest.fixture(scope="module")
def unproven(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """A database with a program that is not the cheapest, as a search stores it at its end, and the cost of that."""
    store = SpecStore(tmp_path_factory.mktemp("unproven") / "specs.db")
    best, slow = (one.synthesize(db=False) for one in (goal(), goal().tile(1, 1, 8)))
    cost = int(cost_and_peak(slow.impl).cost)
    assert cost > cost_and_peak(best.impl).cost
    store_incumbent(store.file, slow.target, Incumbent(slow.impl, cost, 1, 1))
    store.close()
    return store.path, cost


@pytest.fixture
def db(unproven: tuple[Path, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, the default one too."""
    path = tmp_path / "specs.db"
    shutil.copy(unproven[0], path)
    monkeypatch.setenv("MORELLO_DB", str(path))
    return path


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The costs of the programs that sessions with a database return. A search there fails the test."""
    found: list[int] = []
    within, best = SearchSession.search_within, SearchSession._best

    def searching(session: SearchSession, *args: Any) -> Incumbent:
        assert not session.cache, "it searches"
        return best(session, *args)

    def returned(session: SearchSession, *args: Any) -> Incumbent:
        program = within(session, *args)
        found.extend([program.cost] if session.cache else [])
        return program

    monkeypatch.setattr(SearchSession, "_best", searching)
    monkeypatch.setattr(SearchSession, "search_within", returned)
    return found


def test_every_command_is_listed() -> None:
    assert {*all_commands()} == {*ACTING} | OTHERS


@pytest.mark.slow
@pytest.mark.parametrize("command", ACTING)
def test_commands(command: str, cli, write, unproven: tuple[Path, int], db: Path, costs: list[int]) -> None:
    result = cli(command, write(TEXT), "--db", str(db), *ACTING[command])
    assert result.exit_code == 0, result.stderr
    assert costs == [unproven[1]]


@pytest.mark.slow
@pytest.mark.parametrize("command", ACTING)
def test_prove_goes_on(command: str, cli, write, db: Path, costs: list[int]) -> None:
    with pytest.raises(AssertionError, match="it searches"):
        cli(command, write(TEXT), "--db", str(db), "--prove", *ACTING[command])


FUNCTIONS: dict[str, Callable[[], object]] = {
    "compile": lambda: morello.compile(SPEC, target="x86_avx2"),
    "synthesize": lambda: morello.synthesize(SPEC, target="x86_avx2"),
    "Goal.synthesize": lambda: goal().synthesize(),
    "Goal.apply": lambda: goal().apply("synthesize"),
    "Kernel.explain": lambda: morello.compile(goal()).explain(runner_ups=1),
    "synthesize_all": lambda: api.synthesize_all([goal()], api.database(None), SearchBudget.default(), 1),
    "bound": lambda: bound(goal(), morello.compile),
    "tune": lambda: tune(goal(), TuningOptions(iterations=0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, unproven: tuple[Path, int], db: Path, costs: list[int]) -> None:
    FUNCTIONS[name]()
    assert costs == [unproven[1]]


def test_functions_on_arrays_have_the_same_budget() -> None:
    assert calls.CallSettings().limits() == SearchBudget.default(calls.CallSettings().limits().memory)
