"""Processes that write a database are killed, or write it together."""

from __future__ import annotations

import os
import random
import signal
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from morello.db.default import open_store
from morello.db.store import SpecStore
from morello.errors import NotSaved
from tools.children import forked
from tools.faults.pieces import TARGET, look, piece, require


def _write(place: Path | str, numbers: Iterable[int], said: Any) -> None:
    """Store pieces, and say which ones are committed."""
    # A server that is away is no fault of the writer.
    warnings.simplefilter("ignore", NotSaved)
    store = open_store(place)
    for number in numbers:
        store.add(TARGET, piece(number))
        said.send(number)


class Writer:
    """A process that stores pieces at a path or an address.

    `committed` are those it has said to be stored, all of them once it has ended.
    """

    def __init__(self, place: Path | str, start: int, step: int = 1, stop: int = 1 << 30):
        self.process, self._hears = forked(partial(_write, place, range(start, stop, step)))
        self.committed: list[int] = []

    def wait(self, commits: int) -> None:
        """Wait until it has committed this number of pieces, or has ended."""
        try:
            while len(self.committed) < commits:
                self.committed.append(self._hears.recv())
        except EOFError:
            self.process.join()

    def kill(self) -> None:
        """End it at once; it gets no say in it."""
        assert self.process.pid
        os.kill(self.process.pid, signal.SIGKILL)


@contextmanager
def writer(place: Path | str, start: int, step: int = 1, stop: int = 1 << 30) -> Iterator[Writer]:
    """Yield a process that stores pieces, and wait for its end."""
    one = Writer(place, start, step, stop)
    try:
        yield one
    except BaseException:
        one.kill()
        raise
    finally:
        one.wait(1 << 30)


def kill(path: Path, times: int, luck: random.Random) -> Counter[str]:
    """Kill a writer again and again, each time a random moment after some commits."""
    outcomes: Counter[str] = Counter()
    following = 0
    safe: list[int] = []
    for turn in range(times):
        with writer(path, following) as process:
            # Counted rather than timed, so that a busy machine kills writers in all stages of their work, too.
            process.wait(turn % 6)
            time.sleep(luck.choice([0, luck.uniform(0, 0.03)]))
            process.kill()
        outcomes["kills"] += 1
        outcomes["commits"] += len(process.committed)
        store = SpecStore(path)
        for number in process.committed:
            require(look(store, number) == "all", f"piece {number} was committed and is lost")
        following += len(process.committed)
        # What was under way when the process died is there in full or not at all.
        state = look(store, following)
        require(state != "some", f"piece {following} is there in part")
        outcomes[f"under way: {state}"] += 1
        following += state == "all"
        safe += process.committed
        for number in luck.sample(safe, min(3, len(safe))):
            require(look(store, number) == "all", f"piece {number} is lost")
        store.close()
    store = SpecStore(path)
    require(all(look(store, number) == "all" for number in safe), "a piece is lost")
    require(store.file.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",), "the file is damaged")
    return outcomes


def together(path: Path, processes: int, pieces: int) -> Counter[str]:
    """Let several processes write one file at once, and find in the end what each of them stored."""
    running = [Writer(path, start, processes, pieces * processes) for start in range(processes)]
    reader = SpecStore(path)
    while any(one.process.is_alive() for one in running):
        for number in range(pieces * processes):
            # A transaction may end while the reader looks, but then all of it is there.
            if look(reader, number) == "some":
                require(look(reader, number) == "all", "a reader sees a part of a transaction")
    for one in running:
        one.wait(1 << 30)
    committed = sorted(number for one in running for number in one.committed)
    require(committed == [*range(pieces * processes)], "a writer has failed")
    require(all(look(SpecStore(path), number) == "all" for number in committed), "a piece is lost")
    return Counter({"processes": processes, "commits": pieces * processes})
