"""Servers, networks and clients fail: no answer is wrong, no acknowledged one is lost, and a message names the fault.

`python -m tools.faults --postgres` does more of the same.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import attrs
import pytest
from morello_postgres import server

from morello.db.default import open_store
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from tools.faults import servers
from tools.faults.pieces import TARGET, look, piece
from tools.postgres import Server
from tools.proxy import proxy

#: More than fit into what a database has before it grows.
PIECES = 60
#: Makes another machine the client, with a cache folder of its own.
Move = Callable[[str], None]


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    def to(name: str) -> None:
        monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / name))

    to("first")
    return to


@pytest.fixture
def filled(postgres: Server, move: Move) -> Server:
    """A database with piece 0."""
    with closing(open_store(postgres.address(trust="yes"))) as store:
        store.add(TARGET, piece(0))
    return postgres


def fill(store: SpecStore) -> None:
    for number in range(1, PIECES + 1):
        store.add(TARGET, piece(number))


def found(address: str, number: int) -> str:
    """Return how much of a piece the server has."""
    with closing(open_store(address)) as store:
        return look(store.whole(), number)


@pytest.mark.slow
def test_writers_are_killed(filled: Server, tmp_path: Path) -> None:
    outcomes = servers.kill_writers(filled, tmp_path, 8, random.Random(0))
    assert outcomes["acknowledged"] >= sum(turn % 6 for turn in range(8))


@pytest.mark.slow
def test_the_server_is_killed(filled: Server, tmp_path: Path) -> None:
    outcomes = servers.kill_server(filled, tmp_path, 20, 5, random.Random(0))
    assert outcomes["acknowledged"] >= 20
    assert outcomes["kills"] >= 2


@pytest.mark.slow
def test_many_machines_write_at_once(filled: Server, tmp_path: Path) -> None:
    assert servers.together(filled, tmp_path, 16, 3)["acknowledged"] == 48


@pytest.mark.slow
def test_what_a_dead_server_missed_is_sent_later(filled: Server, move: Move) -> None:
    address = filled.address("writer", trust="yes")
    with closing(open_store(address)) as store:
        filled.kill9()
        try:
            with pytest.warns(NotSaved):
                store.add(TARGET, piece(1))
            assert look(store, 1) == "all"
        finally:
            filled.start()
    with closing(open_store(address)) as store:
        store.add(TARGET, piece(2))
    move("second")
    assert {found(address, number) for number in (0, 1, 2)} == {"all"}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["reset", "lost", "closed"])
def test_the_network_fails(way: str, filled: Server, move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "PATIENCE", 2)
    with proxy(filled.port) as between:
        far = attrs.evolve(filled, port=between.port)
        address = far.address("writer", trust="yes", sslmode="disable")
        with closing(open_store(address)) as store:
            store.add(TARGET, piece(1))
            between.lost = way == "lost"
            if way != "lost":
                between.reset()
            if way == "closed":
                between.close()
            start = time.monotonic()
            with warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                store.add(TARGET, piece(2))
            assert time.monotonic() - start < 60
            assert look(store, 2) == "all"
            between.lost = False
            between.reset()
        if way != "closed":
            # The first store waits a while before it tries the server again.
            with closing(open_store(address)) as store:
                store.add(TARGET, piece(3))
    move("second")
    near = filled.address("writer", trust="yes")
    assert found(near, 1) == "all"
    assert {found(near, number) for number in (2, 3)} == ({"none"} if way == "closed" else {"all"})


@pytest.mark.slow
def test_a_slow_network(filled: Server, move: Move) -> None:
    with proxy(filled.port) as between:
        between.delay = 0.1
        far = attrs.evolve(filled, port=between.port)
        start = time.monotonic()
        with closing(open_store(far.address("writer", trust="yes", sslmode="disable"))) as store:
            store.add(TARGET, piece(1))
            move("second")
        assert found(far.address("reader", trust="yes", sslmode="disable"), 1) == "all"
        assert time.monotonic() - start < 60


@pytest.mark.slow
def test_the_disk_of_the_server_is_full(filled: Server, move: Move) -> None:
    with filled.small_disk("16m") as disk:
        if disk is None:
            pytest.skip("no disk may be mounted here")
        with suppress(OSError), (disk / "rest").open("wb") as rest:
            while True:
                rest.write(bytes(4096))
        address = filled.address("writer", trust="yes")
        with closing(open_store(address)) as store:
            with pytest.warns(NotSaved, match="No space left"):
                fill(store)
            assert look(store, PIECES) == "all"
            move("second")
            assert "none" in {found(address, number) for number in range(PIECES + 1)}
            (disk / "rest").unlink()
    move("first")
    with closing(open_store(address)) as store:
        store.add(TARGET, piece(PIECES + 1))
    move("third")
    assert {found(address, number) for number in range(PIECES + 2)} == {"all"}


@pytest.mark.slow
def test_a_replica_is_read(filled: Server, move: Move) -> None:
    with filled.standby() as replica:
        replica.follow(filled)
        move("second")
        assert found(replica.address("reader", trust="yes"), 0) == "all"
        hosts = f"postgresql://writer@127.0.0.1:{replica.port},127.0.0.1:{filled.port}/{filled.database}?trust=yes"
        with closing(open_store(hosts)) as store:
            store.add(TARGET, piece(1))
        replica.follow(filled)
        move("third")
        assert found(replica.address("reader", trust="yes"), 1) == "all"
        filled.kill9()
        try:
            move("fourth")
            assert found(hosts, 1) == "all"
        finally:
            filled.start()


def test_a_reader_stores_nothing_on_the_server(filled: Server, move: Move) -> None:
    move("second")
    address = filled.address("reader", trust="yes")
    assert found(address, 0) == "all"
    with closing(open_store(address)) as store:
        with pytest.warns(NotSaved, match="permission denied"):
            store.add(TARGET, piece(1))
        # It has its own answers.
        assert look(store, 1) == "all"
    move("third")
    assert found(address, 1) == "none"


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE morello_meta SET format = 99",
        "DELETE FROM morello_meta",
        "ALTER TABLE morello_meta RENAME format TO version",
        "ALTER TABLE morello_boxes RENAME kind TO colour",
        "DROP TABLE morello_boxes",
    ],
)
def test_other_tables_are_refused_and_stay(change: str, filled: Server, move: Move) -> None:
    filled.sql(change)
    tables = (
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_name LIKE 'morello%' ORDER BY 1, 2"
    )
    before = filled.sql(tables)
    move("second")
    with pytest.raises(MorelloError) as caught:
        found(filled.address(trust="yes"), 0)
    assert caught.value.hint
    assert filled.sql(tables) == before


def test_tables_of_something_else_stay(postgres: Server, move: Move) -> None:
    postgres.sql("CREATE TABLE tables (a int); INSERT INTO tables VALUES (7)")
    with closing(open_store(postgres.address(trust="yes"))) as store:
        store.add(TARGET, piece(0))
    assert postgres.sql("TABLE tables") == "7"
    assert found(postgres.address(trust="yes"), 0) == "all"
