"""A PostgreSQL server and the processes that write to it are killed: what was acknowledged is on the server."""

from __future__ import annotations

import itertools
import os
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

from morello.db.default import open_store
from morello.db.store import SpecStore
from morello.errors import NotSaved
from tools.faults.kills import Writer, writer
from tools.faults.pieces import TARGET, look, piece, require
from tools.postgres import Server

_numbers = itertools.count()


@contextmanager
def cache_folder(folder: Path) -> Iterator[None]:
    """Within a block, let databases on servers keep their local files in a folder, as on another machine."""
    with patch.dict(os.environ, MORELLO_CACHE_DIR=str(folder)):
        yield


@contextmanager
def newcomer(address: str, folder: Path) -> Iterator[SpecStore]:
    """Yield all that a client gets from the server that has nothing of its own."""
    with cache_folder(folder / f"newcomer{next(_numbers)}"), closing(open_store(address)) as store:
        yield store.whole()


def require_all(address: str, folder: Path, numbers: Iterable[int]) -> None:
    """Raise Broken unless a newcomer finds all of these pieces."""
    with newcomer(address, folder) as store:
        lost = [number for number in numbers if look(store, number) != "all"]
    require(not lost, f"pieces {lost} were acknowledged and are lost")


def kill_writers(server: Server, folder: Path, times: int, luck: random.Random) -> Counter[str]:
    """Kill a writer again and again, each time a random moment after some commits."""
    outcomes: Counter[str] = Counter()
    address, safe, following = server.address("writer", trust="yes"), list[int](), 0
    for turn in range(times):
        with cache_folder(folder / "writer"), writer(address, following) as process:
            process.wait(turn % 6)
            time.sleep(luck.choice([0, luck.uniform(0, 0.03)]))
            process.kill()
        safe += process.committed
        following += len(process.committed)
        with newcomer(address, folder) as store:
            state = look(store, following)
        require(state != "some", f"piece {following} is there in part")
        outcomes[f"under way: {state}"] += 1
        following += 1
    require_all(address, folder, safe)
    return outcomes + Counter({"kills": times, "acknowledged": len(safe), "lost": 0})


def kill_server(server: Server, folder: Path, commits: int, every: int, luck: random.Random) -> Counter[str]:
    """Kill the server about every so many commits of a writer, which goes on; kill the writer in the end, too."""
    address, kills = server.address("writer", trust="yes"), 0
    with cache_folder(folder / "writer"), writer(address, 0) as process:
        while len(process.committed) < commits:
            process.wait(len(process.committed) + luck.randint(1, 2 * every))
            server.kill9()
            kills += 1
            # Meanwhile the writer keeps its answers in its outbox.
            time.sleep(luck.choice([0, luck.uniform(0, 0.5)]))
            server.start()
        process.kill()
    acknowledged = process.committed
    with cache_folder(folder / "writer"), closing(open_store(address)) as store:
        store.add(TARGET, piece(len(acknowledged) + 1))
    require_all(address, folder, acknowledged)
    return Counter({"kills": kills, "acknowledged": len(acknowledged), "lost": 0})


def together(server: Server, folder: Path, processes: int, pieces: int) -> Counter[str]:
    """Let several machines write to a server at once, and find in the end what each of them stored."""
    address, running = server.address("writer", trust="yes"), list[Writer]()
    for start in range(processes):
        with cache_folder(folder / f"writer{start}"):
            running.append(Writer(address, start, processes, pieces * processes))
    for one in running:
        one.wait(1 << 30)
    committed = sorted(number for one in running for number in one.committed)
    require(committed == [*range(pieces * processes)], "a writer has failed")
    require_all(address, folder, committed)
    return Counter({"processes": processes, "acknowledged": len(committed), "lost": 0})


def make_schema(server: Server, folder: Path) -> None:
    """Make the schema, as the owner of the database."""
    with (
        cache_folder(folder / "owner"),
        closing(open_store(server.address(trust="yes"))) as store,
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("error", NotSaved)
        store.add(TARGET, piece(1 << 20))
