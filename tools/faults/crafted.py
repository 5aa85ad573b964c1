"""Makes databases with right checksums and wrong contents, and sees that each gives the right answer or one message.

python -m tools.faults.crafted [--every 1]
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from morello.api import goal
from morello.db import upkeep
from morello.db.records import Header, Print, _row_crc
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.ir.impl import Node, cost_and_peak

TARGET, TEXT = "x86_avx2", "Matmul(1×1×1×2, L1, L1, L1, serial)"
#: Seconds that a database may take.
_PATIENCE = 20
#: SQL of values that are none of a column: of every type, range and size, and text that is nearly right.
_VALUES = (
    "-1", "0", "3", "7.5", "9223372036854775807", "-9223372036854775808", "NULL", "''", "'abc'", "'# c'", "'1'",
    "'99999999999999999999'", "x''", "x'00'", "x'ff00'", "zeroblob(100000)", "printf('%.100000c', 'x')", "char(27)",
)  # fmt: skip
_COLUMNS = {
    "fingerprints": ("id", "hash", "target", "levels"),
    "tables": ("id", "fingerprint", "labels", "boxes"),
    "steps": ("id", "text"),
    "rectangles": ("tab", "id", "kind", "box", "numerator", "denominator", "step", '"foreign"'),
}
_ENDLESS = "WITH RECURSIVE n(id, text) AS (VALUES (1, '1') UNION ALL SELECT id + 1, id + 1 FROM n) SELECT * FROM n"
_GOAL = "tab = (SELECT id FROM tables WHERE labels LIKE 'Matmul %')"
_SCHEMA = "PRAGMA writable_schema = ON; UPDATE sqlite_master"
_STATEMENTS = {
    "two steps in one": "UPDATE steps SET text = text || char(10) || text",
    "all steps the same": "UPDATE rectangles SET step = (SELECT min(id) FROM steps) WHERE step IS NOT NULL",
    "steps of no rewrite": "UPDATE steps SET text = 'fly [' || id || ']'",
    "steps to itself": f"UPDATE rectangles SET step = (SELECT id FROM steps WHERE text LIKE 'tile%') WHERE {_GOAL}",
    "cost lowered": f"UPDATE rectangles SET numerator = numerator - 1 WHERE {_GOAL}",
    "cost raised": f"UPDATE rectangles SET numerator = numerator + 1 WHERE {_GOAL}",
    "a cost past 2^53": f"UPDATE rectangles SET numerator = {2**53 + 1} WHERE {_GOAL}",
    "a cost past 64 bits": f"UPDATE rectangles SET numerator = {2**63 - 1} WHERE {_GOAL}",
    "a cost past 64 bits as text": f"UPDATE rectangles SET numerator = '{2**63 + 1}' WHERE {_GOAL}",
    "all costs doubled": "UPDATE rectangles SET numerator = 2 * numerator",
    "no program": f"UPDATE rectangles SET kind = 2, step = NULL, numerator = 0, denominator = 1 WHERE {_GOAL}",
    "only a bound": f"UPDATE rectangles SET kind = 1, step = NULL WHERE {_GOAL}",
    "marked": 'UPDATE rectangles SET "foreign" = 1',
    "marked, and dearer": 'UPDATE rectangles SET "foreign" = 1, numerator = numerator + 1',
    "marked, and none": 'UPDATE rectangles SET "foreign" = 1, kind = 2, step = NULL, numerator = 0, denominator = 1',
    "wider boxes": "UPDATE rectangles SET box = CAST(box || x'00' AS BLOB)",
    "boxes upside down": "UPDATE rectangles "
    "SET box = CAST(substr(box, 1, 1) || substr(box, 9) || substr(box, 2, 7) AS BLOB)",
    "boxes of another width": "UPDATE rectangles SET box = CAST(x'02' || substr(box, 2) AS BLOB)",
    "boxes of no width": "UPDATE rectangles SET box = CAST(x'00' || substr(box, 2) AS BLOB)",
    "rows twice": 'INSERT INTO rectangles SELECT tab, id + 100, kind, box, numerator, denominator, step, "foreign", '
    "crc FROM rectangles",
    "rows that differ": "INSERT INTO rectangles SELECT tab, id + 100, kind, box, numerator + 1, denominator, step, "
    '"foreign", crc FROM rectangles',
    "rows gone": f"DELETE FROM rectangles WHERE NOT {_GOAL}",
    "tables gone": "DELETE FROM tables",
    "no steps": "DELETE FROM steps",
    "view": "CREATE VIEW more AS SELECT 1",
    "trigger": "CREATE TRIGGER more AFTER INSERT ON steps BEGIN DELETE FROM tables; END",
    "index": "CREATE INDEX more ON steps (hex(text))",
    "further table": "CREATE TABLE more (a)",
    "generated column": "ALTER TABLE steps ADD COLUMN more AS (hex(id))",
    "endless view": f"ALTER TABLE steps RENAME TO old; CREATE VIEW steps AS {_ENDLESS}",
    "statistics": "ANALYZE",
    "one page for two tables": f"{_SCHEMA} SET rootpage = 4 WHERE name = 'steps'",
    "a table in the schema": f"{_SCHEMA} SET rootpage = 1 WHERE name = 'steps'",
    "no schema": f"{_SCHEMA} SET sql = 'x' WHERE name = 'steps'",
    "another format": "PRAGMA user_version = 99",
    "another application": "PRAGMA application_id = 7",
}


def kinds() -> Iterator[tuple[str, str]]:
    """Give the name of each kind, and the statements that make it of a right database."""
    for table, columns in _COLUMNS.items():
        for column in columns:
            row = _GOAL if table == "rectangles" else f"rowid = (SELECT max(rowid) FROM {table})"
            for value in _VALUES:
                yield f"{table}.{column} = {value}", f"UPDATE {table} SET {column} = {value} WHERE {row}"
    yield from _STATEMENTS.items()


def make(path: Path) -> int:
    """Make a right database, and return the cost of its goal."""
    store = SpecStore(path)
    solved = goal(TEXT, target=TARGET).synthesize(db=store)
    store.close()
    assert isinstance(solved.impl, Node)
    return cost_and_peak(solved.impl).cost


def craft(path: Path, statements: str) -> bool:
    """Carry out statements, and set all checksums right. False where SQLite does not let it be done."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for statement in statements.split("; ") if "BEGIN" not in statements else [statements]:
            connection.execute(statement)
        if "writable_schema" not in statements:
            _seal(connection)
        return True
    except sqlite3.DatabaseError:
        return False
    finally:
        connection.close()


def _seal(connection: sqlite3.Connection) -> None:
    """Compute the checksums of all rows anew."""
    prints: dict[Any, Print] = {}
    for row in connection.execute("SELECT id, hash, target, levels FROM fingerprints").fetchall():
        prints[row[0]] = one = Print(*row)
        connection.execute("UPDATE fingerprints SET crc = ? WHERE id = ?", (one.crc, one.id))
    limit = "LIMIT 1000"  # a view might have no end
    steps = dict(connection.execute(f"SELECT id, text FROM steps {limit}").fetchall())
    for number, whose, labels, boxes in connection.execute(
        "SELECT id, fingerprint, labels, boxes FROM tables"
    ).fetchall():
        whose = prints.get(whose, next(iter(prints.values())))
        seed, total, count = Header(number, whose, labels).seed, 0, 0
        query = 'SELECT id, kind, box, numerator, denominator, step, "foreign" FROM rectangles WHERE tab = ?'
        for row, kind, box, above, below, step, foreign in connection.execute(query, (number,)).fetchall():
            data = box if isinstance(box, bytes) else str(box).encode()
            text = None if step is None else steps.get(step)
            crc = _row_crc(seed, data, kind, above, below, text, foreign)
            total, count = total + crc, count + 1
            connection.execute("UPDATE rectangles SET crc = ? WHERE tab = ? AND id = ?", (crc, number, row))
        boxes = count if isinstance(boxes, int) and 0 < boxes < 1000 else boxes
        header = Header(number, whose, labels, boxes, total % (1 << 32))
        values = (boxes, header.checksum, header.crc, number)
        connection.execute("UPDATE tables SET boxes = ?, checksum = ?, crc = ? WHERE id = ?", values)


def ask(path: Path, cost: int) -> str:
    """Ask a database for its goal: `right`, or `refused` with a message. Raises AssertionError for all else."""
    try:
        store = SpecStore(path)
        found = goal(TEXT, target=TARGET).synthesize(db=store).impl
        assert isinstance(found, Node)
        assert cost_and_peak(found).cost == cost, f"a wrong cost: {cost_and_peak(found).cost}, not {cost}"
        list(upkeep.damage(store))
        store.close()
    except MorelloError as error:
        if str(path) not in error.message or not error.hint:
            raise AssertionError(f"a message without file or remedy: {error}") from error
        return "refused"
    return "right"


def _late(_signal: int, _frame: object) -> None:
    raise AssertionError(f"it takes more than {_PATIENCE} seconds")


def run(folder: Path, every: int = 1) -> Counter[str]:
    """Try each `every`-th kind. Raises AssertionError, naming the kind, for a wrong answer, a traceback or a hang."""
    cost = make(folder / "right.db")
    outcomes: Counter[str] = Counter()
    before = signal.signal(signal.SIGALRM, _late)
    try:
        for name, statements in [*kinds()][::every]:
            for leftover in folder.glob("crafted.db*"):
                leftover.unlink()
            shutil.copy(folder / "right.db", folder / "crafted.db")
            if not craft(folder / "crafted.db", statements):
                outcomes["not possible in SQLite"] += 1
                continue
            signal.alarm(_PATIENCE)
            try:
                outcomes[ask(folder / "crafted.db", cost)] += 1
            except (Exception, KeyboardInterrupt) as error:
                raise AssertionError(f"{name}: {error!r}") from error
            finally:
                signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=1, help="try each N-th kind only")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="morello-") as folder:
        found = run(Path(folder), options.every)
    print(f"{found.total():,} kinds: " + ", ".join(f"{name} {count:,}" for name, count in sorted(found.items())))


if __name__ == "__main__":
    sys.exit(main())
