"""Databases of earlier formats: what is kept of them, and what they must be."""

from __future__ import annotations

import sqlite3
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import morello
from morello.db import measured, upkeep
from morello.db.exchange import exported, imported
from morello.db.file import APPLICATION, FORMAT, Damaged
from morello.db.migrations import MIGRATIONS
from morello.db.store import SpecStore
from morello.errors import Converted, MorelloError
from morello.ir.impl import cost_and_peak

TEXT = "Matmul(1×1×1×2, L1, L1, L1, serial)"

#: What formats 2 and 5 had, with a row in each table.
OLD = {
    2: """
CREATE TABLE fingerprints (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    engine INTEGER NOT NULL,
    levels TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE steps (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
INSERT INTO fingerprints VALUES (1, 'a', 'x86_avx2', 3, 'VRF:32 L1', 7);
INSERT INTO steps VALUES (1, 'split 1')
""",
    5: """
CREATE TABLE fingerprints (
    id INTEGER PRIMARY KEY,
    hash TEXT NOT NULL UNIQUE,
    target TEXT NOT NULL,
    levels TEXT NOT NULL,
    crc INTEGER NOT NULL
);
CREATE TABLE tables (id INTEGER PRIMARY KEY, fingerprint INTEGER NOT NULL REFERENCES fingerprints);
INSERT INTO fingerprints VALUES (1, 'a', 'x86_avx2', 'VRF:32 L1', 7);
INSERT INTO tables VALUES (1, 1)
""",
}


def goal() -> morello.Goal:
    return morello.goal(TEXT, target="x86_avx2")


def change(path: Path, script: str, version: int) -> None:
    """Do to a file what no store would do."""
    connection = sqlite3.connect(path)
    connection.executescript(f"{script};\nPRAGMA application_id = {APPLICATION}; PRAGMA user_version = {version}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with the answers to a Spec, of format 6: that had no unproven programs, nor measured ones."""
    path = tmp_path_factory.mktemp("old") / "a.db"
    goal().synthesize(db=str(path))
    change(path, "DROP TABLE unproven; DROP TABLE measured", 6)
    return path.read_bytes()


@pytest.fixture
def old(answers: bytes, tmp_path: Path) -> Path:
    path = tmp_path / "old.db"
    path.write_bytes(answers)
    return path


def test_every_earlier_format_leads_to_this_one() -> None:
    assert set(MIGRATIONS) == set(range(2, FORMAT))
    for version in MIGRATIONS:
        while version < FORMAT:
            assert MIGRATIONS[version].to > version
            version = MIGRATIONS[version].to
        assert version == FORMAT


def test_answers_of_format_6_are_kept(old: Path) -> None:
    with pytest.warns(Converted, match=r"old\.db was converted from format 6 to 7, and all of its answers are kept"):
        store = SpecStore(old)
    one = goal()
    entry = store.find(one.target, one.spec)
    assert entry is not None
    assert entry.cost == cost_and_peak(one.synthesize(db=False).impl).cost
    assert [*upkeep.damage(store)] == []
    text = [*exported(store)]
    store.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error", Converted)
        assert [*exported(SpecStore(old))] == text, "it is of this format now"


def test_format_7_only_lacked_measured_programs(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    goal().synthesize(db=str(path))
    change(path, "DROP TABLE measured", 7)
    with pytest.warns(Converted, match="from format 7 to 8, and all of its answers are kept"):
        store = SpecStore(path)
    one = goal()
    assert store.find(one.target, one.spec) is not None
    assert measured.counts(store.file) == {}


@pytest.mark.parametrize("version", OLD)
def test_what_does_not_fit_is_dropped(tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.db"
    change(path, OLD[version], version)
    with pytest.warns(Converted, match=f"from format {version} to 8, and its answers do not fit and are dropped"):
        store = SpecStore(path)
    assert upkeep.summaries(store) == []
    done = goal().synthesize(db=store)
    entry = store.find(done.target, done.spec)
    assert entry is not None
    assert entry.cost == cost_and_peak(done.impl).cost


@pytest.mark.parametrize(
    ("version", "script"),
    [
        (6, "CREATE TRIGGER more AFTER INSERT ON steps BEGIN DELETE FROM tables; END"),
        (6, "CREATE TABLE unproven (a)"),
        (5, "CREATE VIEW more AS SELECT 1"),
        (5, "CREATE TABLE more (a)"),
        (5, "CREATE INDEX more ON steps (hex(text))"),
        (2, "DROP TABLE steps; CREATE VIRTUAL TABLE steps USING fts5(text)"),
    ],
)
def test_what_only_says_that_it_is_old_is_left_as_it_is(old: Path, version: int, script: str) -> None:
    change(old, script, version)
    before = old.read_bytes()
    with pytest.raises(Damaged, match="is none of a Morello database"):
        SpecStore(old)
    assert old.read_bytes() == before


@pytest.mark.parametrize(("version", "words"), [(FORMAT + 1, "a newer version(?s:.*)update Morello"), (1, "an older")])
def test_formats_without_a_way_to_this_one(old: Path, version: int, words: str) -> None:
    change(old, "", version)
    with pytest.raises(MorelloError, match=words):
        SpecStore(old)


def test_several_may_open_it_at_once(old: Path) -> None:
    with pytest.warns(Converted) as told, ThreadPoolExecutor(4) as threads:
        stores = [*threads.map(lambda _: SpecStore(old), range(4))]
    assert len([one for one in told if one.category is Converted]) == 1
    assert len({tuple(exported(store)) for store in stores}) == 1


def test_text_of_format_6_is_read(old: Path) -> None:
    with pytest.warns(Converted):
        lines = [*exported(SpecStore(old))]
    older = [lines[0].replace(str(FORMAT), "6"), *lines[1:]]
    assert len([*imported(older, "text")]) == len([*imported(lines, "text")]) > 0
