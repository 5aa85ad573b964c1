"""Breaks databases in every way a machine can, and checks that no answer is ever wrong and nothing committed is lost.

    python scripts/faults.py [--kills 200] [--flips 2000] [--seed 0]

tests/db/test_faults.py runs the same on fewer draws. POSIX only: writers are forked, and killed with SIGKILL.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from morello.db import upkeep
from morello.db.file import APPLICATION
from morello.db.store import Block, Kind, SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed

TARGET = installed().target("reference_c")
TEXTS = ("FillZero(4×8, {}, serial)", "FillZero(4×8, {})", "Move(4×8, {}, {}, serial)")
FULL = TARGET.full_limits()
LEVEL = TARGET.levels[-1].name
LABELS = [parse_spec(text.format(LEVEL, LEVEL), TARGET).logical for text in TEXTS]
STEPS = ("tile [1, 1]", "tile [0, 1]", "tile [1, 0]")
_FORK = multiprocessing.get_context("fork")


def truth(shapes: np.ndarray, table: int) -> tuple[np.ndarray, np.ndarray]:
    """The cost of the optimum of each Spec of a table, and its step."""
    step = (shapes[:, 0] + table) % len(STEPS)
    return shapes.prod(axis=1) * (1 + step), step


def piece(number: int) -> list[Block]:
    """What one transaction stores: Specs that no other piece has, and some that many have."""
    return [_block(number, table) for table in range(len(LABELS))]


def own_shapes(number: int) -> np.ndarray:
    return np.array([[1 << bit, 2 * number + 3] for bit in range(8)], dtype=np.int64)


def _block(number: int, table: int) -> Block:
    common = np.array([[1 << (number + bit) % 8, 1 << number % 11] for bit in range(4)], dtype=np.int64)
    shapes = np.concatenate([own_shapes(number), common])
    costs, step = truth(shapes, table)
    kinds = np.where(np.arange(len(shapes)) % 4 == 3, Kind.LOWER, Kind.EXACT).astype(np.int8)
    nothing = np.zeros((len(shapes), len(FULL)), dtype=np.int64)
    exact = kinds == Kind.EXACT
    step = np.where(exact, step, -1).astype(np.int32)
    limits = nothing + np.array(FULL, dtype=np.int64)
    return Block(LABELS[table], shapes, limits, nothing, np.where(exact, costs, costs - 1), kinds, STEPS, step)


def look(store: SpecStore, number: int) -> str:
    """Whether a piece is there: all, some or none of it. Raises AssertionError for a wrong answer."""
    known = total = 0
    for table, labels in enumerate(LABELS):
        block = _block(number, table)
        costs, kinds = store.known(TARGET, labels, block.shapes, block.limits)
        right, _ = truth(block.shapes, table)
        assert (costs[kinds == Kind.EXACT] == right[kinds == Kind.EXACT]).all(), "a wrong cost"
        assert (costs[kinds == Kind.LOWER] <= right[kinds == Kind.LOWER]).all(), "a wrong bound"
        assert not (kinds == Kind.NONE).any(), "a program denied"
        own = len(own_shapes(number))
        exact = block.kinds[:own] == Kind.EXACT
        known += int((kinds[:own][exact] == Kind.EXACT).sum()) + int((kinds[:own][~exact] >= 0).sum())
        total += own
        for i in range(0, own, 3):
            spec = attrs.evolve(labels, shape=tuple(block.shapes[i].tolist()))
            entry = store.find(TARGET, TARGET.spec(spec))
            if entry and entry.kind == Kind.EXACT:
                assert (entry.cost, entry.step) == (right[i], STEPS[truth(block.shapes, table)[1][i]]), "a wrong entry"
    return "none" if not known else "all" if known == total else "some"


def _write(path: Path, numbers: Iterator[int], said: Any) -> None:
    """A process that stores pieces and says which ones are committed."""
    store = SpecStore(path)
    for number in numbers:
        store.add(TARGET, piece(number))
        said.send(number)


@contextmanager
def writer(path: Path, start: int, step: int = 1, stop: int = 1 << 30) -> Iterator[tuple[Any, list[int]]]:
    """A process that stores pieces, and the list that says, once it has ended, which ones it had committed."""
    hears, said = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_write, args=(path, range(start, stop, step), said))
    process.start()
    said.close()
    committed: list[int] = []
    try:
        yield process, committed
    finally:
        while True:
            try:
                committed.append(hears.recv())
            except EOFError:
                break
        process.join()


def kill(path: Path, times: int, luck: random.Random) -> Counter[str]:
    """Kill a writer again and again, each time at a random moment."""
    found: Counter[str] = Counter()
    following = 0
    safe: list[int] = []
    for _ in range(times):
        with writer(path, following) as (process, committed):
            time.sleep(luck.uniform(0.0, 0.15))
            os.kill(process.pid, signal.SIGKILL)
        found["kills"] += 1
        found["commits"] += len(committed)
        store = SpecStore(path)
        for number in committed:
            assert look(store, number) == "all", f"piece {number} was committed and is lost"
        following += len(committed)
        # What was under way when the process died is there in full or not at all.
        state = look(store, following)
        assert state != "some", f"piece {following} is there in part"
        found[f"under way: {state}"] += 1
        following += state == "all"
        safe += committed
        for number in luck.sample(safe, min(3, len(safe))):
            assert look(store, number) == "all", f"piece {number} is lost"
        store.close()
    store = SpecStore(path)
    assert all(look(store, number) == "all" for number in safe)
    assert store.file.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    return found


def make(path: Path, pieces: int) -> None:
    """A database of that many pieces, all of it in one file."""
    store = SpecStore(path)
    for number in range(pieces):
        store.add(TARGET, piece(number))
    store.close()


def flip(data: bytearray, luck: random.Random) -> None:
    """Turn one bit."""
    at = luck.randrange(len(data))
    data[at] ^= 1 << luck.randrange(8)


def tear(data: bytearray, luck: random.Random) -> None:
    """Put garbage or zeros in place of a sector."""
    at = luck.randrange(len(data) // 512) * 512
    data[at : at + 512] = luck.choice([bytes(512), luck.randbytes(512)])


def truncate(data: bytearray, luck: random.Random) -> None:
    """Cut off the end."""
    del data[luck.randrange(1, len(data)) :]


def damage(
    whole: Path, pieces: int, times: int, luck: random.Random, change: Callable[[bytearray, random.Random], None]
) -> Counter[str]:
    """Change a copy of a database, ask it everything, store more, and ask again: no answer may be wrong."""
    found: Counter[str] = Counter()
    original = whole.read_bytes()
    copy = whole.with_name("damaged.db")
    for _ in range(times):
        data = bytearray(original)
        change(data, luck)
        for leftover in whole.parent.glob("damaged.db*"):
            leftover.unlink()
        copy.write_bytes(data)
        found[_ask(copy, pieces)] += 1
    return found


def _ask(path: Path, pieces: int) -> str:
    """What a damaged database says: `right`, `refused` with a message, or that something is `missing`."""
    states: set[str] = set()
    try:
        store = SpecStore(path)
    except MorelloError:
        return "refused at once"
    for number in range(pieces):
        try:
            states.add(look(store, number))
        except MorelloError as error:
            states.add("refused" if str(path) in error.message and error.hint else "unclear")
    try:
        store.add(TARGET, piece(pieces))
        assert look(store, pieces) == "all"
    except MorelloError:
        states.add("refused")
    assert "unclear" not in states, "a message that does not name the file, or no remedy"
    found = "refused" if "refused" in states else "right" if states == {"all"} else "missing"
    assert found != "missing" or [*upkeep.damage(store)], "something is missing, and `morello db verify` does not tell"
    store.close()
    return found


def together(path: Path, processes: int, pieces: int) -> Counter[str]:
    """Several processes write one file at once, and find in the end what each of them stored."""
    running = [writer(path, start, processes, pieces * processes) for start in range(processes)]
    entered = [one.__enter__() for one in running]
    reader = SpecStore(path)
    while any(process.is_alive() for process, _ in entered):
        for number in range(pieces * processes):
            # A transaction may end while the reader looks, but then all of it is there.
            if look(reader, number) == "some":
                assert look(reader, number) == "all", "a reader sees a part of a transaction"
    for one in running:
        one.__exit__(None, None, None)
    assert sorted(number for _, committed in entered for number in committed) == [*range(pieces * processes)]
    assert all(look(SpecStore(path), number) == "all" for number in range(pieces * processes))
    return Counter({"processes": processes, "commits": pieces * processes})


def in_child(action: Callable[[], None]) -> str:
    """Run in a process of its own, for what cannot be undone; gives what it failed with, or an empty text."""
    hears, said = _FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            action()
            said.send("")
        except BaseException as error:
            said.send(f"{type(error).__name__}: {error}")

    process = _FORK.Process(target=run)
    process.start()
    failed = hears.recv()
    process.join()
    return failed


def fill(path: Path) -> None:
    """Store until that fails, and check that what was committed is there, and nothing of what failed."""
    store = SpecStore(path)
    for number in range(10_000):
        try:
            store.add(TARGET, piece(number))
        except MorelloError:
            assert all(look(store, one) == "all" for one in range(number)), "a piece is lost"
            assert look(store, number) == "none"
            raise
    raise AssertionError("the disk was never full")


def goes_on(path: Path) -> None:
    """With room again, the database goes on where it was."""
    store = SpecStore(path)
    assert look(store, 0) == "all"
    store.add(TARGET, piece(20_000))
    assert look(store, 20_000) == "all"
    store.close()


def file_limit(path: Path) -> str:
    """Store until no file may grow any more. Gives the message."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        fill(path)

    said = in_child(limited)
    goes_on(path)
    return said


def full_disk(folder: Path) -> str | None:
    """Store until a disk of 1 MiB is full, then make room. Gives the message; None where no disk may be mounted."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        return None
    try:
        said = in_child(lambda: fill(folder / "full.db"))
        # Every byte of it, so that not even a new database has room.
        with contextlib.suppress(OSError), (folder / "rest").open("wb") as rest:
            while True:
                rest.write(bytes(4096))
        unmade = in_child(lambda: SpecStore(folder / "new.db").close())
        assert "full" in unmade, unmade
        assert not list(folder.glob("*new.db*")), "something is left of a database that could not be made"
        (folder / "rest").unlink()
        subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)
        goes_on(folder / "full.db")
        return said
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def read_only(folder: Path, pieces: int, *, file_only: bool = False) -> str:
    """Use a database that may not be written: it answers, and says why nothing is saved. Gives the message."""
    path = folder / "fixed.db"
    make(path, pieces)
    path.chmod(0o444)
    folder.chmod(0o755 if file_only else 0o555)

    def use() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        store = SpecStore(path)
        assert all(look(store, number) == "all" for number in range(pieces))
        store.add(TARGET, piece(pieces))

    try:
        return in_child(use)
    finally:
        folder.chmod(0o755)


def mark(path: Path, application: int, version: int) -> None:
    """Make a database look like that of another version."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {application}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()


@contextmanager
def public_folder() -> Iterator[Path]:
    """A temporary folder that any user may look into."""
    folder = Path(tempfile.mkdtemp(prefix="morello-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _story(name: str, found: Counter[str], started: float) -> None:
    told = ", ".join(f"{what} {count:,}" for what, count in sorted(found.items()))
    print(f"{name:<12} {told}  ({time.monotonic() - started:.0f} s)", flush=True)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--flips", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    luck = random.Random(options.seed)
    with public_folder() as folder:
        started = time.monotonic()
        _story("kill -9", kill(folder / "killed.db", options.kills, luck), started)
        make(folder / "whole.db", 4)
        for change, times in ((flip, options.flips), (tear, options.flips // 4), (truncate, options.flips // 4)):
            started = time.monotonic()
            _story(change.__name__, damage(folder / "whole.db", 4, times, luck, change), started)
        for processes in (2, 4):
            started = time.monotonic()
            _story(f"{processes} writers", together(folder / f"{processes}.db", processes, 40), started)
        (folder / "disk").mkdir()
        (folder / "fixed").mkdir()
        print(f"file limit   {file_limit(folder / 'limited.db')}")
        print(f"full disk    {full_disk(folder / 'disk') or 'not tried: no disk may be mounted here'}")
        print(f"read-only    {read_only(folder / 'fixed', 3)}")
        for name, application, version in (("newer file", APPLICATION, 99), ("older file", APPLICATION, 0)):
            mark(folder / "whole.db", application, version)
            try:
                SpecStore(folder / "whole.db")
                raise AssertionError("a file of another version was opened")
            except MorelloError as error:
                print(f"{name:<12} {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
