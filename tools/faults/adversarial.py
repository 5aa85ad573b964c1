"""Databases with right checksums and wrong contents: each gives the right answer or one message.

python -m tools.faults.adversarial [--every 1]
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from morello.api import goal
from morello.db import maintenance
from morello.db.answers import Ints
from morello.db.store import SpecStore
from morello.db.tables import _crc
from morello.errors import MorelloError
from morello.ir.impl import Node, cost_and_peak

TARGET, TEXT = "x86_avx2", "Matmul(1×1×1×2, L1, L1, L1, serial)"
_GOAL = "labels LIKE 'Matmul 4%'"
#: Columns of `Boxes.matrix` for four sizes and six limits, and that of a cost.
_COLUMNS, _COST = 2 * (4 + 6) + 5, 2 * (4 + 6) + 1
_TEXTS = (
    "''",
    "'abc'",
    "'[]'",
    "'[\"fly [1]\"]'",
    "char(27)",
    "printf('%.100000c', 'x')",
    "x'00'",
    "7",
    "printf('%.*c', 99999, '[')",
)
_NUMBERS = (-1, 0, 1, 2, 3, 63, 64, 2**53 + 1, 2**62, 2**63 - 1)
_STATEMENTS = {
    "tables gone": "DELETE FROM tables",
    "no boxes": f"UPDATE tables SET boxes = x'' WHERE {_GOAL}",
    "boxes of other tables": "UPDATE tables SET boxes = (SELECT max(boxes) FROM tables)",
    "view": "CREATE VIEW more AS SELECT 1",
    "trigger": "CREATE TRIGGER more AFTER INSERT ON tables BEGIN DELETE FROM tables; END",
    "index": "CREATE INDEX more ON tables (hex(labels))",
    "another table": "CREATE TABLE more (a)",
    "generated column": "ALTER TABLE tables ADD COLUMN more AS (hex(labels))",
    "schema": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = 'x' WHERE name = 'tables'",
    "root page": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 1 WHERE name = 'tables'",
    "newer format": "PRAGMA user_version = 99",
    "older format": "PRAGMA user_version = 8",
    "another application": "PRAGMA application_id = 7",
}


def kinds() -> Iterator[tuple[str, Callable[[sqlite3.Connection], None]]]:
    """Yield the name of each kind, and a function that makes it of a right database."""
    for column in ("fingerprint", "target", "levels", "labels", "steps"):
        for text in _TEXTS:
            yield f"{column} = {text}", _statement(f"UPDATE tables SET {column} = {text} WHERE {_GOAL}")
    for column in range(_COLUMNS):
        for number in _NUMBERS:
            yield f"column {column} = {number}", _matrix(lambda one, at=column, to=number: _set(one, at, to))
    yield "cheaper", _matrix(lambda one: _add(one, _COST, -1))
    yield "more expensive", _matrix(lambda one: _add(one, _COST, 1))
    yield "twice", _matrix(lambda one: np.concatenate([one, one]))
    yield "another row", _matrix(lambda one: np.concatenate([one, _add(one, _COST, 1)]))
    for name, text in _STATEMENTS.items():
        yield name, _statement(text)


def _set(matrix: Ints, column: int, number: int) -> Ints:
    matrix[:, column] = number
    return matrix


def _add(matrix: Ints, column: int, number: int) -> Ints:
    return _set(matrix, column, int(matrix[0, column]) + number)


def _statement(text: str) -> Callable[[sqlite3.Connection], None]:
    def change(connection: sqlite3.Connection) -> None:
        for statement in [text] if "BEGIN" in text else text.split("; "):
            connection.execute(statement)

    return change


def _matrix(edit: Callable[[Ints], Ints]) -> Callable[[sqlite3.Connection], None]:
    """Return a change of the boxes of the goal's table."""

    def change(connection: sqlite3.Connection) -> None:
        for number, data in connection.execute(f"SELECT labels, boxes FROM tables WHERE {_GOAL}").fetchall():
            matrix = np.frombuffer(zlib.decompress(data), dtype="<i8").reshape(-1, _COLUMNS).copy()
            changed = zlib.compress(edit(matrix).tobytes())
            connection.execute("UPDATE tables SET boxes = ? WHERE labels = ?", (changed, number))

    return change


def make(path: Path) -> int:
    """Make a right database, and return the cost of its goal."""
    store = SpecStore(path)
    solved = goal(TEXT, target=TARGET).synthesize(db=store)
    store.close()
    assert isinstance(solved.impl, Node)
    return cost_and_peak(solved.impl).cost


def craft(path: Path, change: Callable[[sqlite3.Connection], None]) -> None:
    """Change a database as far as SQLite allows it, and set all checksums right."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        change(connection)
        query = "SELECT fingerprint, target, levels, labels, steps, boxes FROM tables"
        for *texts, data in connection.execute(query).fetchall():
            if all(isinstance(one, str) for one in texts):
                connection.execute("UPDATE tables SET crc = ? WHERE labels = ?", (_crc(texts, data), texts[3]))
    except sqlite3.DatabaseError:
        return
    finally:
        connection.close()


def outcome(path: Path, cost: int) -> str:
    """Return `right`, or `refused` for a message. Raises AssertionError for a wrong answer."""
    try:
        store = SpecStore(path)
        found = goal(TEXT, target=TARGET).synthesize(db=store).impl
        assert isinstance(found, Node)
        assert cost_and_peak(found).cost == cost, f"a wrong cost: {cost_and_peak(found).cost}, not {cost}"
        list(maintenance.damage(store))
        store.close()
    except MorelloError as error:
        if str(path) not in error.message or not error.hint:
            raise AssertionError(f"a message without file or remedy: {error}") from error
        return "refused"
    return "right"


def run(folder: Path, every: int = 1) -> Counter[str]:
    """Try each `every`-th kind. Raises AssertionError, with the kind, for a wrong answer or a traceback."""
    cost = make(folder / "right.db")
    outcomes: Counter[str] = Counter()
    for name, change in [*kinds()][::every]:
        for leftover in folder.glob("changed.db*"):
            leftover.unlink()
        shutil.copy(folder / "right.db", folder / "changed.db")
        craft(folder / "changed.db", change)
        try:
            outcomes[outcome(folder / "changed.db", cost)] += 1
        except Exception as error:
            raise AssertionError(f"{name}: {error!r}") from error
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=1, help="try each N-th kind only")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="morello-") as folder:
        found = run(Path(folder), options.every)
    print(f"{found.total():,} kinds: " + ", ".join(f"{name} {count:,}" for name, count in sorted(found.items())))


if __name__ == "__main__":
    sys.exit(main())
