"""Connections do what Morello does with its own tables, and nothing that a file asks for; Ctrl-C ends all of it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from morello.db import guard
from morello.db.file import Damaged, File
from morello.errors import MorelloError

ENDLESS = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
VIEW = (
    "CREATE VIEW steps AS WITH RECURSIVE n(id, text) AS (VALUES (1, '1') UNION ALL SELECT id + 1, id + 1 FROM n) "
    "SELECT * FROM n"
)
WAITS = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from morello.db.file import File
file = File(sys.argv[1])
try:
    with {work}:
        print("goes", flush=True)
        {does}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def changed(path: Path, *statements: str) -> Path:
    """A database, after statements that nobody guards."""
    File(path).close()
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


def interrupted(work: str, does: str, path: Path) -> str:
    """Return the output of a process that gets Ctrl-C while it waits for SQLite."""
    code = WAITS.format(work=work, does=does)
    child = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        assert child.stdout.readline() == "goes\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.3)
        child.send_signal(signal.SIGINT)
        return child.communicate(timeout=20)[0]
    finally:
        child.kill()


def test_ctrl_c_ends_a_query(tmp_path: Path) -> None:
    work = "file.messages(), file.connection.lifted()"
    assert interrupted(work, f'file.connection.execute("{ENDLESS}")', tmp_path / "a.db") == "interrupted\n"


def test_ctrl_c_ends_waiting_for_another_writer(tmp_path: Path) -> None:
    with File(tmp_path / "a.db").writing():
        does = "file.writing().__enter__()"
        assert interrupted("file.messages()", does, tmp_path / "a.db") == "interrupted\n"


def test_a_query_takes_no_longer_than_the_file_accounts_for(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    with pytest.raises(Damaged, match="takes longer than its size"), file.messages(), file.connection.lifted():
        list(file.rows(ENDLESS))
    # What is not counted goes on.
    assert file.connection.execute("SELECT count(*) FROM steps").fetchone() == (0,)


def test_after_waiting_in_naps_a_connection_is_as_patient_as_before(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    (before,) = file.connection.execute("PRAGMA busy_timeout").fetchone()
    with file.writing() as connection:
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (before,) == (guard.PATIENCE * 1000,)


@pytest.mark.parametrize(
    "statement",
    [
        ENDLESS,
        "ATTACH 'other.db' AS other",
        "CREATE VIEW v AS SELECT 1",
        "CREATE TEMP TABLE t (a)",
        "DROP TABLE steps",
        "SELECT load_extension('x')",
        "SELECT randomblob(9)",
        "PRAGMA trusted_schema = ON",
        "UPDATE sqlite_master SET sql = ''",
    ],
)
def test_what_morello_does_not_do_is_denied(statement: str, tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    with pytest.raises(MorelloError, match=r"not authorized|prohibited|may not be modified"), file.messages():
        file.connection.execute(statement).fetchall()
    assert file.connection.execute("PRAGMA quick_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE more (a)",),
        ("CREATE VIEW more AS SELECT 1",),
        ("CREATE INDEX more ON steps (id, text)",),
        ("CREATE TRIGGER more AFTER INSERT ON steps BEGIN DELETE FROM tables; END",),
        ("ALTER TABLE steps ADD COLUMN more",),
        ("ALTER TABLE steps ADD COLUMN more AS (hex(id))",),
        ("DROP TABLE steps",),
        ("DROP TABLE steps", "CREATE TABLE steps (id INTEGER PRIMARY KEY, text TEXT NOT NULL)"),
        ("DROP TABLE steps", VIEW),
        ("ANALYZE",),
        ("PRAGMA writable_schema = ON", "UPDATE sqlite_master SET rootpage = 4 WHERE name = 'steps'"),
    ],
)
def test_any_other_schema_is_refused_at_once(statements: tuple[str, ...], tmp_path: Path) -> None:
    path = changed(tmp_path / "a.db", *statements)
    with pytest.raises(Damaged, match=r"a\.db is damaged: (its (table|view|index|trigger|schema)|malformed)") as caught:
        File(path)
    assert caught.value.hint


def test_a_schema_that_changes_later_is_not_run(tmp_path: Path) -> None:
    file = File(tmp_path / "a.db")
    changed(tmp_path / "a.db", "DROP TABLE steps", VIEW)
    with pytest.raises(MorelloError, match=r"prohibited|not authorized"), file.messages():
        list(file.rows("SELECT id, text FROM steps"))


def test_connections_stay_as_they_were_made(tmp_path: Path) -> None:
    connection = guard.connect(tmp_path / "a.db")
    with connection.lifted():
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
        assert connection.execute("PRAGMA cell_size_check").fetchone() == (1,)
    with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
        connection.execute("PRAGMA cell_size_check = OFF")
