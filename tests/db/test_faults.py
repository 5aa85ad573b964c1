"""Whatever happens to the file, no answer is wrong, nothing committed is lost, and a message says what is the matter.

`python -m tools.faults` does more of the same.
"""

from __future__ import annotations

import errno
import os
import random
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from morello.db import upkeep
from morello.db.file import APPLICATION
from morello.db.store import SpecStore
from morello.errors import MorelloError
from tools.faults import disks, flips, kills, pieces


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    pieces.make(path, 3)
    return path


@pytest.fixture
def public() -> Iterator[Path]:
    with disks.public_folder() as folder:
        yield folder


@pytest.mark.slow
def test_kill_at_random_moments(tmp_path: Path) -> None:
    found = kills.kill(tmp_path / "killed.db", 30, random.Random(0))
    assert found["kills"] == 30
    assert found["commits"] >= sum(turn % 6 for turn in range(30))


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_that_write_one_file_at_once(processes: int, tmp_path: Path) -> None:
    assert kills.together(tmp_path / "many.db", processes, 15)["commits"] == 15 * processes


@pytest.mark.slow
@pytest.mark.parametrize(("change", "times"), [("flip", 150), ("tear", 50), ("truncate", 50)])
def test_damage(change: str, times: int, whole: Path) -> None:
    found = flips.damage(whole, 3, times, random.Random(1), getattr(flips, change))
    assert found.total() == times
    # What is missing is searched again. It is rare, as tables know how many boxes they have.
    assert found["missing"] <= times // 20


def test_every_bit_of_a_row_counts(tmp_path: Path) -> None:
    """A bit that flips in any column of a rectangle, its table or its fingerprint is noticed."""
    for table, columns in {
        "rectangles": ("kind", "numerator", "denominator", "box", "step", "crc", "tab"),
        "tables": ("boxes", "checksum", "crc"),
        "fingerprints": ("target", "levels", "crc"),
        "steps": ("text",),
    }.items():
        for column in columns:
            path = tmp_path / f"{table}-{column}.db"
            pieces.make(path, 1)
            store = SpecStore(path)
            with sqlite3.connect(path) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                changed = {"kind": "2 - kind", "box": "zeroblob(length(box))", "tab": "tab % 3 + 1"}
                words = {"target", "levels", "text"}
                value = f"{column} || 'x'" if column in words else changed.get(column, f"{column} + 1")
                condition = "WHERE kind = 0 AND id = 1 AND tab = 1" if table == "rectangles" else "WHERE id = 1"
                if column == "tab":
                    connection.execute("DELETE FROM rectangles WHERE tab = 2 AND id = 1")
                connection.execute(f"UPDATE {table} SET {column} = {value} {condition}")
            with pytest.raises(MorelloError, match="is damaged"):
                pieces.look(store, 0)
            assert [*upkeep.damage(store)]
            store.close()


def test_a_row_that_is_gone_is_noticed(tmp_path: Path) -> None:
    pieces.make(tmp_path / "a.db", 1)
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("DELETE FROM rectangles WHERE tab = 1 AND id = 1")
    with pytest.raises(MorelloError, match="boxes, not the"):
        pieces.look(SpecStore(tmp_path / "a.db"), 0)


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    assert "database" in disks.file_limit(tmp_path / "limited.db")


def test_a_full_disk(public: Path) -> None:
    said = disks.full_disk(public)
    if said is None:
        pytest.skip("no disk may be mounted here")
    assert "is full" in said
    assert "make room on the disk" in said


@pytest.mark.parametrize("file_only", [False, True])
def test_what_may_not_be_written_still_answers(file_only: bool, public: Path) -> None:
    said = disks.read_only(public, 3, file_only=file_only)
    assert "readonly" in said
    assert "writable" in said


@pytest.mark.parametrize(
    ("application", "version", "words"),
    [
        (APPLICATION, 99, "newer version of Morello: format 99"),
        (APPLICATION, 0, "older version of Morello: format 0"),
        (7, 2, "no Morello database"),
    ],
)
def test_files_of_other_versions(application: int, version: int, words: str, tmp_path: Path) -> None:
    pieces.make(tmp_path / "a.db", 1)
    flips.mark(tmp_path / "a.db", application, version)
    with pytest.raises(MorelloError, match=words):
        SpecStore(tmp_path / "a.db")


def test_a_disk_that_cannot_say_whether_the_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", fail)
        with pytest.raises(MorelloError, match="cannot be read: Input/output error"):
            SpecStore(tmp_path / "a.db")
    assert pieces.look(SpecStore(tmp_path / "a.db"), 0) == "none"


def test_an_empty_file_is_filled(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    store = SpecStore(tmp_path / "a.db")
    store.add(pieces.TARGET, pieces.piece(0))
    assert pieces.look(store, 0) == "all"


def test_a_damaged_index_neither_hides_nor_doubles_a_table(whole: Path) -> None:
    """Labels stand in the table and in its index: whichever is damaged, nothing is stored where it is not found."""
    data = whole.read_bytes()
    places = [found.start() for found in re.finditer(b"FillZero 2|Move 2", data)]
    assert len(places) >= 6
    found: Counter[str] = Counter()
    for place in places:
        for offset in (0, 3):

            def change(copy: bytearray, _: random.Random, at: int = place + offset) -> None:
                copy[at] ^= 32

            found += flips.damage(whole, 3, 1, random.Random(0), change)
    # Some places are left over from rows that have moved, and mean nothing.
    assert found["refused"] + found["missing"] >= 6
