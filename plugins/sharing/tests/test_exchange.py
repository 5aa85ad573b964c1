"""Answers pass from one database to another through an address."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from morello_sharing import Pushed, pull, push
from morello_sharing.address import Address

from morello.db.export_import import import_lines, import_tables
from morello.db.store import SpecStore
from morello.errors import MorelloError
from tools.faults.disks import in_child
from tools.faults.pieces import TARGET, look, piece

from .conftest import KEY, OTHER, PUBLIC, filled, lines


@pytest.mark.slow
def test_answers_pass_through_every_kind_of_address(places: tuple[str, str], tmp_path: Path) -> None:
    to, source = places
    a, b = filled(tmp_path / "a.db", range(5)), SpecStore(tmp_path / "b.db")
    (sent,) = push(a, to, KEY)
    assert (sent.target, sent.objects, sent.new) == ("reference_c", 1, 1)
    (got,) = pull(b, source, [PUBLIC], trust=True)
    assert (got.objects, got.rectangles, got.bytes) == (1, sent.rectangles, sent.bytes)
    assert lines(a) == lines(b)


@pytest.mark.slow
def test_an_unchanged_push_and_pull_move_nothing(places: tuple[str, str], tmp_path: Path) -> None:
    to, source = places
    a, b = filled(tmp_path / "a.db", range(5)), SpecStore(tmp_path / "b.db")
    first = push(a, to, KEY)[0]
    pull(b, source, [PUBLIC])
    assert push(a, to, KEY) == [Pushed(first.target, first.rectangles, 1, 0, 0)]
    (again,) = pull(b, source, [PUBLIC])
    assert (again.rectangles, again.bytes) == (0, 0)


def test_pulled_answers_are_unverified_without_trust(tmp_path: Path) -> None:
    push(filled(tmp_path / "a.db", [1]), str(tmp_path / "shared"), KEY)
    for trust in (False, True):
        b = SpecStore(tmp_path / f"{trust}.db")
        pull(b, str(tmp_path / "shared"), [PUBLIC], trust=trust)
        assert any('"unverified": true' in line for line in lines(b)) is not trust
        # What is not verified is not signed.
        assert bool(push(b, str(tmp_path / f"of {trust}"), OTHER)) is trust


def test_pull_with_trust_verifies_what_was_pulled_without(tmp_path: Path) -> None:
    a, b = filled(tmp_path / "a.db", [1]), SpecStore(tmp_path / "b.db")
    push(a, str(tmp_path / "shared"), KEY)
    pull(b, str(tmp_path / "shared"), [PUBLIC])
    pull(b, str(tmp_path / "shared"), [PUBLIC], trust=True)
    assert lines(a) == lines(b)


def test_a_push_keeps_what_the_key_signed_before(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")
    push(filled(tmp_path / "a.db", range(3)), shared, KEY)
    assert push(SpecStore(tmp_path / "empty.db"), shared, KEY) == []
    push(filled(tmp_path / "b.db", range(2, 5)), shared, KEY)
    c = SpecStore(tmp_path / "c.db")
    pull(c, shared, [PUBLIC], trust=True)
    assert lines(c) == lines(filled(tmp_path / "all.db", range(5)))


def test_contradicting_answers_are_not_signed(tmp_path: Path) -> None:
    shared, a, b = str(tmp_path / "shared"), filled(tmp_path / "a.db", [1]), SpecStore(tmp_path / "b.db")
    text = [one.replace('"cost": "3/', '"cost": "5/') for one in lines(a)]
    import_tables(b, import_lines(text, "wrong"), trust=True)
    push(a, shared, KEY)
    before = {path: path.read_bytes() for path in Path(shared).rglob("*") if path.is_file()}
    with pytest.raises(MorelloError, match="that this key signed contradict those to push"):
        push(b, shared, KEY)
    assert before == {path: path.read_bytes() for path in Path(shared).rglob("*") if path.is_file()}


def test_another_rectangle_changes_one_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello_sharing.contents._SHARD", 100)
    a, shared = filled(tmp_path / "a.db", range(5)), str(tmp_path / "shared")
    (first,) = push(a, shared, KEY)
    assert first.objects == first.new == len([*a.tables()]) == 3
    store = SpecStore(tmp_path / "b.db")
    store.add(TARGET, piece(9)[:1])
    (second,) = push(store, shared, KEY)
    assert (second.objects, second.new) == (3, 1)


@pytest.mark.slow
def test_an_interrupted_push_changes_nothing_for_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello_sharing.contents._SHARD", 100)
    old = filled(tmp_path / "old.db", range(2))
    new = filled(tmp_path / "new.db", range(5))
    write = Address.write

    for most in range(5):
        shared, written, lock = tmp_path / f"shared{most}", [0], threading.Lock()
        push(old, str(shared), KEY)

        def fails(place: Address, *args: Any, most: int = most, written: list[int] = written, lock: Any = lock) -> None:
            with lock:
                written[0] += 1
                if written[0] > most:
                    raise KeyboardInterrupt
            write(place, *args)

        with monkeypatch.context() as patch:
            patch.setattr(Address, "write", fails)
            try:
                push(new, str(shared), KEY)
                expected = new
                assert most == 4
            except KeyboardInterrupt:
                expected = old
        reader = SpecStore(tmp_path / f"{most}.db")
        pull(reader, str(shared), [PUBLIC], trust=True)
        assert lines(reader) == lines(expected)
        push(new, str(shared), KEY)
        pull(reader, str(shared), [PUBLIC], trust=True)
        assert lines(reader) == lines(new)


def test_an_object_that_was_cut_is_written_again(tmp_path: Path) -> None:
    a, shared = filled(tmp_path / "a.db", range(2)), tmp_path / "shared"
    push(a, str(shared), KEY)
    (path,) = (shared / "objects").iterdir()
    path.write_bytes(path.read_bytes()[:50])
    assert push(a, str(shared), KEY)[0].new == 1
    assert pull(SpecStore(tmp_path / "b.db"), str(shared), [PUBLIC])[0].rectangles > 0


def test_keys_push_at_the_same_time(tmp_path: Path) -> None:
    shared = str(tmp_path / "shared")

    def work(number: int) -> None:
        store = filled(tmp_path / f"{number}.db", range(number, number + 3))
        for _ in range(5):
            push(store, shared, (KEY, OTHER)[number])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    both = SpecStore(tmp_path / "both.db")
    assert len(pull(both, shared, [PUBLIC, OTHER.public_key()], trust=True)) == 2
    assert lines(both) == lines(filled(tmp_path / "all.db", range(4)))


@pytest.mark.slow
def test_a_database_that_cannot_grow_stays_as_it_was(tmp_path: Path) -> None:
    shared, path = str(tmp_path / "shared"), tmp_path / "b.db"
    push(filled(tmp_path / "a.db", range(400)), shared, KEY)
    b = filled(path, range(500, 502))
    before = lines(b)
    b.close()
    size = path.stat().st_size

    def limited() -> None:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        pull(SpecStore(path), shared, [PUBLIC])

    assert in_child(limited).startswith("MorelloError: database")
    assert lines(SpecStore(path)) == before
    assert look(SpecStore(path), 501) == "all"


def test_nothing_at_an_address_is_no_error(places: tuple[str, str], tmp_path: Path) -> None:
    to, source = places
    (tmp_path / "shared").mkdir(exist_ok=True)
    store = filled(tmp_path / "a.db", [1])
    assert pull(store, source, [PUBLIC]) == []
    push(store, to, OTHER)
    assert pull(store, source, [PUBLIC]) == []
