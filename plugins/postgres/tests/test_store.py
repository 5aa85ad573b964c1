"""A database on a server: what is found, by whom, and what happens without the server."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import morello
from morello.db.answers import AnswerKind
from morello.db.default import database, open_store
from morello.db.export_import import export_lines
from morello.db.measured import MachineKind, Measured
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl, Node
from morello.search.budget import SearchBudget
from tools.postgres import PASSWORD, Server

TEXT = "Matmul(1×1×1×2, L1, L1, L1, serial)"
OTHER = "FillZero(4, L1, serial)"
ONE = "spec one = Matmul(1×1×1×2, (u8, GL), (u8, GL), (u8, GL), serial)\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A function that moves to a machine, by its name: its cache folder is its own."""

    def move(name: str) -> None:
        monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / name))

    move("first")
    return move


def solve(store: SpecStore, text: str = TEXT) -> tuple[morello.Goal, int]:
    """The goal synthesized with the store, and how many Specs search solved for it."""
    goal = morello.goal(text, target="x86_avx2")
    return goal.synthesize(db=store), goal.searches.of(store).solved


@pytest.mark.parametrize("trust", ["yes", "no"])
def test_an_answer_is_found_on_another_machine(postgres: Server, machine, trust: str) -> None:
    first, searched = solve(open_store(postgres.address("owner", trust=trust)))
    machine("second")
    store = open_store(postgres.address("reader", trust=trust))
    again, nothing = solve(store)
    assert (searched > 0, nothing) == (True, 0)
    assert again.impl == first.impl
    found = store.find(first.target, first.spec)
    assert found
    assert found.unverified == (trust == "no")


def test_programs_of_several_steps_are_found_level_by_level(postgres: Server, machine) -> None:
    text = "Matmul(1×4×4×8, (u8, GL), (u8, GL), (u8, GL), serial)"
    first, _ = solve(open_store(postgres.address()), text)
    machine("second")
    again, searched = solve(open_store(postgres.address("reader")), text)
    assert (again.impl, searched) == (first.impl, 0)


def test_other_answers_of_a_target_are_copied_where_a_spec_is_not_solved(postgres: Server, machine) -> None:
    part, _ = solve(open_store(postgres.address()))
    machine("second")
    store = open_store(postgres.address("reader"))
    store.prepare(part.target, [morello.goal(OTHER, target="x86_avx2").spec])
    assert store.program(part.target, part.spec) == part.impl


@pytest.mark.slow
def test_a_solved_spec_needs_neither_server_nor_psycopg(postgres: Server, machine) -> None:
    address = postgres.address()
    solve(open_store(address))
    code = f"""
import sys, morello
morello.goal({TEXT!r}, target="x86_avx2").synthesize(db={address!r})
assert "psycopg" not in sys.modules
morello.goal({TEXT!r}, target="x86_avx2").synthesize(db="solved.db")
assert "morello_postgres" in sys.modules and "psycopg" not in sys.modules
"""
    postgres.stop()
    try:
        subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", code], check=True, cwd=open_store(address).path.parent
        )
    finally:
        postgres.start()


@pytest.mark.slow
def test_work_goes_on_without_the_server_and_is_sent_later(postgres: Server, machine) -> None:
    store = open_store(postgres.address())
    solve(store)
    postgres.stop()
    try:
        with pytest.warns(NotSaved, match="going on without the server"):
            first, searched = solve(store, OTHER)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotSaved)
            solve(store, "FillZero(8, L1, serial)")
        assert searched > 0
    finally:
        postgres.start()
    # Another process on this machine sends it with its first answer.
    solve(open_store(postgres.address()), "FillZero(2, L1, serial)")
    machine("second")
    again, nothing = solve(open_store(postgres.address("reader")), OTHER)
    assert (again.impl, nothing) == (first.impl, 0)


def test_a_lost_connection_is_opened_again(postgres: Server, machine) -> None:
    store = open_store(postgres.address())
    solve(store)
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'owner'")
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotSaved)
        first, _ = solve(store, OTHER)
    machine("second")
    assert open_store(postgres.address("reader")).program(first.target, first.spec) is None
    assert solve(open_store(postgres.address("reader")), OTHER)[1] == 0


def test_a_reader_stores_nothing_on_the_server(postgres: Server, machine) -> None:
    solve(open_store(postgres.address()))
    before = [*export_lines(open_store(postgres.address()).whole())]
    store = open_store(postgres.address("reader"))
    with pytest.warns(NotSaved, match="not on the server: .*permission denied"):
        solve(store, OTHER)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotSaved)
        solve(store, "FillZero(8, L1, serial)")
    assert [*export_lines(store.whole())] == before
    # They are here.
    assert solve(store, OTHER)[1] == 0


@pytest.mark.slow
def test_a_replica_is_read(postgres: Server, machine) -> None:
    first, _ = solve(open_store(postgres.address()))
    with postgres.standby() as replica:
        replica.follow(postgres)
        machine("second")
        store = open_store(replica.address())
        again, searched = solve(store)
        assert (again.impl, searched) == (first.impl, 0)
        with pytest.warns(NotSaved, match="read-only transaction"):
            solve(store, OTHER)
        machine("third")
        both = f"postgresql://owner@127.0.0.1:{replica.port},127.0.0.1:{postgres.port}/{postgres.database}"
        solve(open_store(both), OTHER)
    machine("fourth")
    assert solve(open_store(postgres.address()), OTHER)[1] == 0


@pytest.mark.slow
def test_many_writers_lose_nothing(postgres: Server, machine) -> None:
    goals = [morello.goal(f"FillZero({size}, L1, serial)", target="x86_avx2") for size in range(1, 17)]
    solved = [goal.synthesize(db=False) for goal in goals]
    stores: list[SpecStore] = []
    for number in range(8):
        machine(f"machine {number}")
        stores.append(open_store(postgres.address()))

    def work(store: SpecStore, mine: list[morello.Goal]) -> None:
        for goal in mine:
            store.remember(goal.target, goal.impl)

    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("error", NotSaved)
        waiting = [pool.submit(work, store, solved[i:] + solved[:i]) for i, store in enumerate(stores)]
        for one in waiting:
            one.result()
    machine("reader")
    store = open_store(postgres.address("reader"))
    store.prepare(goals[0].target, [goal.spec for goal in goals])
    assert [store.program(goal.target, goal.spec) for goal in goals] == [goal.impl for goal in solved]
    assert int(postgres.sql("SELECT count(*) FROM morello_boxes")) <= len(goals)


def test_the_statements_of_a_compile(postgres: Server, machine) -> None:
    text = "Matmul(1×4×4×8, (u8, GL), (u8, GL), (u8, GL), serial)"
    first, _ = solve(open_store(postgres.address()), text)
    postgres.configure(log_statement="all")
    try:
        wait_for(lambda: postgres.sql("SHOW log_statement") == "all")
        log = postgres.folder / "log"
        counts: list[int] = []
        machine("second")
        store = open_store(postgres.address("reader"))
        for _ in range(2):
            start = log.stat().st_size
            solve(store, text)
            counts.append(log.read_bytes()[start:].count(b"LOG:  "))
    finally:
        postgres.configure(log_statement="none")
    # The greeting, and a look-up for each level of the program; nothing once it is here.
    assert counts == [1 + depth(first.impl), 0]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def depth(impl: Impl) -> int:
    return 1 + max((depth(child) for child in impl.children), default=0) if isinstance(impl, Node) else 0


def test_a_role_that_may_not_make_the_tables(postgres: Server, machine) -> None:
    with pytest.raises(MorelloError, match="cannot be made") as caught:
        solve(open_store(postgres.address("writer")))
    assert "GRANT CREATE" in str(caught.value)


def test_the_default_database_never_stops_a_command(postgres: Server, machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_DB", postgres.address("writer"))
    with pytest.warns(NotSaved, match="cannot be made") as caught:
        goal = morello.goal(TEXT, target="x86_avx2").synthesize()
    assert len(caught) == 1
    store = database(None)
    assert store
    assert store.program(goal.target, goal.spec) == goal.impl


def test_tables_of_another_format(postgres: Server, machine) -> None:
    solve(open_store(postgres.address()))
    postgres.sql("UPDATE morello_meta SET format = 7")
    with pytest.raises(MorelloError, match="have format 7, not 1") as caught:
        solve(open_store(postgres.address()), OTHER)
    assert "version of Morello" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        (f"postgresql://secret:{PASSWORD}@host/db", "at host has a password"),
        (f"postgresql://host/db?password={PASSWORD}", "at host has a password"),
        ("postgresql://host/db?trust=maybe", "trust=maybe"),
        ("postgresql://[host/db", "not a URI"),
        ("mysql://host/db", "no installed plugin opens databases at mysql://"),
    ],
)
def test_addresses_that_are_refused(address: str, words: str, machine) -> None:
    with pytest.raises(MorelloError, match=words) as caught:
        open_store(address)
    assert PASSWORD not in str(caught.value)


def test_names_show_no_user(machine) -> None:
    store = open_store("postgresql://me@db.example.org:5433/morello?sslmode=verify-full&trust=yes")
    assert store.name == "postgresql://db.example.org:5433/morello"
    assert "me" not in store.path.name.partition("-")[0]
    shared = open_store("postgresql://you@db.example.org:5433/morello?sslmode=verify-full&trust=yes")
    unsure = open_store("postgresql://you@db.example.org:5433/morello?sslmode=verify-full")
    assert store.path == shared.path != unsure.path


def test_passwords_come_from_the_environment(postgres: Server, machine, monkeypatch: pytest.MonkeyPatch) -> None:
    solve(open_store(postgres.address()))
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.warns(NotSaved, match="password authentication failed"):
        solve(open_store(postgres.address("secret")), OTHER)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    machine("second")
    assert solve(open_store(postgres.address("secret")))[1] == 0


def test_rows_that_break_a_rule_are_refused(postgres: Server, machine) -> None:
    first, _ = solve(open_store(postgres.address()))
    postgres.sql("UPDATE morello_boxes SET denominator = 0")
    machine("second")
    store = open_store(postgres.address("owner"))
    with pytest.warns(NotSaved, match="is refused, 'Matmul .*not a fraction") as caught:
        again, searched = solve(store)
    assert sum("refused" in str(one.message) for one in caught) == 1
    assert again.impl == first.impl
    assert searched > 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE morello_boxes SET numerator = numerator + 1",
        "UPDATE morello_boxes SET kind = 2, step = -1, numerator = 0, denominator = 1",
        "UPDATE morello_boxes SET kind = 1, step = -1, numerator = 99999",
        "UPDATE morello_tables SET steps = array_replace(steps, steps[1], 'tile [9, 9, 9, 9]')",
        "UPDATE morello_tables SET steps = array_replace(steps, steps[1], 'fly [1]')",
    ],
)
def test_a_wrong_server_changes_no_result(change: str, postgres: Server, machine) -> None:
    first, _ = solve(open_store(postgres.address()))
    postgres.sql(change)
    machine("second")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotSaved)
        again, searched = solve(open_store(postgres.address("owner")))
    assert (again.impl, again.proof) == (first.impl, "optimal")
    assert searched > 0


def test_contradictions_are_reported_and_stop_nothing(postgres: Server, machine) -> None:
    solved = open_store(postgres.address())
    first, _ = solve(solved)
    postgres.sql("UPDATE morello_boxes SET numerator = numerator * 7")
    machine("second")
    store = open_store(postgres.address())
    SpecStore.add_tables(store, SpecStore(solved.path).tables())
    with pytest.warns(NotSaved, match="contradict"):
        solve(store, OTHER)
    found = store.find(first.target, first.spec)
    assert found
    assert (found.kind, found.unverified) == (AnswerKind.EXACT, False)
    assert store.program(first.target, first.spec) == first.impl


@pytest.mark.slow
def test_unproven_programs_are_shared(postgres: Server, machine) -> None:
    text, budget = "Matmul(1×64×64×64, (f32, GL), (f32, GL), (f32, GL), serial)", SearchBudget(expansions=10)
    goal = morello.goal(text, target="x86_avx2")
    first = goal.synthesize(db=open_store(postgres.address()), budget=budget)
    assert first.proof != "optimal"
    for trust in ("yes", "no"):
        machine(trust)
        store = open_store(postgres.address("reader", trust=trust))
        store.prepare(goal.target, [goal.spec])
        found = store.incumbent(goal.target, goal.spec)
        assert found
        assert found.impl == first.impl
        assert (found.low > 1, found.expansions > 0) == (trust == "yes", trust == "yes")


def test_measured_programs_of_a_trusted_server_are_used(postgres: Server, machine) -> None:
    goal = morello.goal(OTHER, target="x86_avx2")
    kind = MachineKind(cpu="zen4", compiler="gcc 12", threads=1)
    best = Measured(
        machine=kind, schedule="select MemsetZero", key="a", value=1.0, spread=0.1, start=2.0, gain=2.0, samples=9
    )
    owner = open_store(postgres.address())
    owner.keep_measured(goal.target, goal.spec, best)
    for trust, found in (("no", []), ("yes", [best])):
        machine(trust)
        store = open_store(postgres.address("writer", trust=trust))
        store.prepare(goal.target, [goal.spec])
        assert store.measured(goal.target, goal.spec) == found
    owner.forget_measured(goal.target, goal.spec, kind)
    machine("last")
    store = open_store(postgres.address("writer", trust="yes"))
    store.prepare(goal.target, [goal.spec])
    assert store.measured(goal.target, goal.spec) == []


@pytest.mark.slow
def test_commands_act_on_the_server(postgres: Server, machine, cli, write, tmp_path: Path) -> None:
    address = postgres.address()
    kept = str(tmp_path / "kept.db")
    for place in (address, kept):
        assert cli("explain", write(ONE), "--db", place).exit_code == 0
    machine("second")
    shown = cli("db", "stats", address)
    assert shown.stdout.startswith(f"postgresql://127.0.0.1:{postgres.port}/{postgres.database}: ")
    assert "x86_avx2" in shown.stdout
    assert cli("db", "verify", address, "--sample", "3").exit_code == 0
    assert cli("db", "verify", address, "--recompute").exit_code == 1
    exported = cli("db", "export", address)
    assert exported.exit_code == 0
    assert cli("db", "import", str(tmp_path / "copy.db"), address, "--trust").exit_code == 0
    assert sorted(cli("db", "export", str(tmp_path / "copy.db")).stdout.splitlines()) == sorted(
        cli("db", "export", kept).stdout.splitlines()
    )
    assert cli("db", "import", address, kept, "--trust").exit_code == 0
    assert cli("db", "export", address).stdout == exported.stdout
    postgres.sql("UPDATE morello_tables SET fingerprint = 'old'")
    assert "nothing was dropped" in cli("db", "prune", address, "--dry-run").stdout
    assert cli("db", "prune", address, "--yes").exit_code == 0
    assert postgres.sql("SELECT count(*) FROM morello_boxes") == "0"
    assert cli("db", "measured", address).stdout == "no measured programs are stored\n"


def test_commands_fail_without_the_server(machine, cli) -> None:
    failed = cli("db", "stats", "postgresql://127.0.0.1:1/nothing")
    assert failed.exit_code == 1
    assert "Connection refused" in failed.stderr
