"""Compare databases on a server with files, and with each other, on random answers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from morello_postgres.store import PostgresStore

from morello.db.export_import import export_lines
from morello.db.store import SpecStore
from tests.db.test_laws import LIMITS, SHAPES, TARGET, Cell, World, check, pieces, spec, worlds
from tools.postgres import Server

#: The server is shared, and each example has a database of its own.
laws = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def stores(server: Server, count: int) -> Iterator[list[PostgresStore]]:
    """Yield stores of one new database, each on a machine of its own."""
    database = server.create_database()
    with tempfile.TemporaryDirectory() as folder:
        made: list[PostgresStore] = []
        for number in range(count):
            with patch.dict("os.environ", MORELLO_CACHE_DIR=str(Path(folder) / str(number))):
                made.append(PostgresStore(database.address(trust="yes")))
        yield made
        for one in made:
            one.close()


def pull(store: PostgresStore) -> None:
    """Get all answers of the server: an unsolved Spec is asked for."""
    store.prepare(TARGET, [spec(2, SHAPES[-1], LIMITS[-1]), spec(2, (7, 7), LIMITS[-1])])


@pytest.mark.slow
@laws
@given(worlds, pieces)
def test_a_server_answers_as_a_file(postgres_server: Server, world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with stores(postgres_server, 2) as (first, second):
        for piece in pieces:
            first.add(TARGET, world.blocks(piece))
        check(first, world, cells)
        check(first.whole(), world, cells)
        pull(second)
        check(second, world, cells)
        # Looked up one by one, too.
        assert first.whole() is not second.whole()
        assert [*export_lines(first.whole())] == [*export_lines(second.whole())]


@pytest.mark.slow
@laws
@given(worlds, pieces)
def test_writers_in_any_order_converge(postgres_server: Server, world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with stores(postgres_server, 2) as (first, second), stores(postgres_server, 2) as (third, fourth):
        for one, other, order in ((first, second, pieces), (third, fourth, pieces[::-1])):
            for number, piece in enumerate(order):
                (one if number % 2 else other).add(TARGET, world.blocks(piece))
            for store in (one, other):
                pull(store)
                pull(store)
                check(store, world, cells)
            check(one.whole(), world, cells)


@pytest.mark.slow
@laws
@given(worlds, pieces)
def test_offline_then_online_equals_online(postgres_server: Server, world: World, pieces: list[list[Cell]]) -> None:
    cells = [cell for piece in pieces for cell in piece]
    with stores(postgres_server, 1) as (first,), stores(postgres_server, 1) as (online,):
        offline = patch.object(PostgresStore, "_flush", lambda _: None)
        for number, piece in enumerate(pieces):
            online.add(TARGET, world.blocks(piece))
            if number % 2:
                first.add(TARGET, world.blocks(piece))
            else:
                with offline:
                    first.add(TARGET, world.blocks(piece))
        pull(first)
        check(first, world, cells)
        check(first.whole(), world, cells)
        assert not [*SpecStore(first.path.with_suffix(".outbox")).tables()]


@pytest.mark.slow
@laws
@given(worlds, pieces)
def test_what_is_sent_or_read_twice_changes_nothing(
    postgres_server: Server, world: World, pieces: Sequence[list[Cell]]
) -> None:
    with stores(postgres_server, 2) as (first, second):
        for piece in pieces:
            first.add(TARGET, world.blocks(piece))
        pull(second)
        local, remote = [*export_lines(_file(second))], [*export_lines(first.whole())]
        second.path.with_suffix(".json").unlink()
        second._prepared.clear()
        pull(second)
        assert [*export_lines(_file(second))] == local
        first.add_tables([*_file(second).tables()], searched=True)
        first._forget_copy()
        assert sorted(export_lines(first.whole())) == sorted(remote)


def _file(store: PostgresStore) -> SpecStore:
    return SpecStore(store.path)
