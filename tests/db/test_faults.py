"""Under any fault of the file, no answer is wrong, no committed one is lost, and a message names the fault.

`python -m tools.faults` does more of the same.
"""

from __future__ import annotations

import errno
import os
import random
import re
import resource
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from morello.db import maintenance
from morello.db.file import APPLICATION
from morello.db.store import SpecStore
from morello.errors import MorelloError, SetAside
from tools.faults import disks, flips, kills, pieces


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.db"
    pieces.make(path, 3)
    return path


def test_a_database_on_a_full_disk_answers(whole: Path) -> None:
    def use() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        disks.answers(whole)

    assert disks.in_child(use) == ""


@pytest.fixture
def public() -> Iterator[Path]:
    with disks.public_folder() as folder:
        yield folder


@pytest.mark.slow
def test_kill_at_random_moments(tmp_path: Path) -> None:
    found = kills.kill(tmp_path / "killed.db", 12, random.Random(0))
    assert found["kills"] == 12
    assert found["commits"] >= sum(turn % 6 for turn in range(12))


@pytest.mark.slow
def test_processes_that_write_one_file_at_once(tmp_path: Path) -> None:
    assert kills.together(tmp_path / "many.db", 3, 10)["commits"] == 30


@pytest.mark.slow
@pytest.mark.parametrize(("change", "times"), [("flip", 60), ("tear", 20), ("truncate", 20)])
def test_damage(change: str, times: int, whole: Path) -> None:
    found = flips.damage(whole, 3, times, random.Random(1), getattr(flips, change))
    assert found.total() == times
    # A missing answer is searched for again.
    assert found["missing"] <= times // 10


@pytest.mark.parametrize("column", ["target", "levels", "labels", "steps", "boxes", "crc"])
def test_every_column_of_a_row_is_checked(column: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    pieces.make(path, 1)
    store = SpecStore(path)
    value = {"crc": "crc + 1", "boxes": "CAST(boxes || 'x' AS BLOB)"}.get(column, f"{column} || 'x'")
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE tables SET {column} = {value}")
    if column != "labels":
        with pytest.raises(MorelloError, match="is damaged: table"):
            pieces.look(store, 0)
    assert [*maintenance.damage(store)]


@pytest.mark.slow
def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    assert "database" in disks.file_limit(tmp_path / "limited.db")


@pytest.mark.slow
def test_a_full_disk(public: Path) -> None:
    said = disks.full_disk(public)
    if said is None:
        pytest.skip("no disk may be mounted here")
    assert "is full" in said
    assert "free some space on the disk" in said


@pytest.mark.parametrize("file_only", [False, True])
def test_read_only_files_still_answer(file_only: bool, public: Path) -> None:
    said = disks.read_only(public, 3, file_only=file_only)
    assert "readonly" in said
    assert "writable" in said


@pytest.mark.parametrize(
    ("application", "version", "words"),
    [(APPLICATION, 99, "newer version of Morello: format 99"), (7, 2, "is not a Morello database")],
)
def test_other_files_are_not_changed(application: int, version: int, words: str, tmp_path: Path) -> None:
    pieces.make(tmp_path / "a.db", 1)
    flips.mark(tmp_path / "a.db", application, version)
    before = (tmp_path / "a.db").read_bytes()
    with pytest.raises(MorelloError, match=words):
        SpecStore(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes() == before


def schema(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TRIGGER more AFTER INSERT ON tables BEGIN DELETE FROM tables; END")


def tear(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:200] = bytes(100)
    path.write_bytes(data)


UNREADABLE: dict[str, Callable[[Path], None]] = {
    "has format 8, not 9": lambda path: flips.mark(path, APPLICATION, 8),
    "has an unexpected schema": schema,
    "is damaged": tear,
}


@pytest.mark.parametrize("words", UNREADABLE)
def test_unreadable_files_are_set_aside(words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for number in (1, 2):
        pieces.make(path, 1)
        UNREADABLE[words](path)
        before = path.read_bytes()
        with pytest.warns(SetAside, match=f"{words}.*renamed to a.db.old-{number}"):
            store = SpecStore(path)
        assert (tmp_path / f"a.db.old-{number}").read_bytes() == before
        assert pieces.look(store, 0) == "none"
        store.close()


def test_several_processes_set_a_file_aside_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    pieces.make(path, 1)
    flips.mark(path, APPLICATION, 8)

    def work(number: int) -> None:
        store = SpecStore(path)
        store.add(pieces.TARGET, pieces.piece(number))
        store.close()

    with pytest.warns(SetAside) as warned, ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(8)))
    assert len([one for one in warned if one.category is SetAside]) == 1
    store = SpecStore(path)
    assert {pieces.look(store, number) for number in range(8)} == {"all"}


def test_a_disk_that_cannot_say_whether_the_file_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", fail)
        with pytest.raises(MorelloError, match="Input/output error"):
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
    assert len(places) >= 3
    found: Counter[str] = Counter()
    for place in places:
        for offset in (0, 3):

            def change(copy: bytearray, _: random.Random, at: int = place + offset) -> None:
                copy[at] ^= 32

            found += flips.damage(whole, 3, 1, random.Random(0), change)
    assert found["refused"] + found["missing"] >= 4
