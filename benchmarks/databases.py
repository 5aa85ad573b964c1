"""Measure databases: a file and a PostgreSQL server on this machine.

    python -m benchmarks.databases [--kernels 50] [--clients 1 --clients 16] [--pieces 400] [--json FILE]

A library of kernels is compiled with empty and full databases, by a new process each time. Then clients, each a process
with a cache folder of its own, look up all parts of its programs, parts before wholes: cold with nothing read yet, warm
a second time. A transaction writes 36 answers to three tables, which all clients share. The server syncs each one.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import click
from rich.console import Console
from rich.table import Table

from morello.api import open_database, parse
from morello.db import maintenance
from morello.errors import NotSaved
from morello.ir.impl import walk
from morello.ir.spec import Spec
from morello.kernels.target import Target
from tools.faults.pieces import TARGET, piece
from tools.postgres import Server, server

#: Sizes m, k and n of products; rows of the operations after them.
SIZES = (1, 8, 32, 64), (64, 128, 256), (64, 128, 256)
#: Looked up at most.
MOST = 300
#: Seconds for all clients to be ready.
PATIENCE = 300
#: Where clients wait for each other.
_begin: Any = None


@attrs.frozen
class Measured:
    """A measured number, with the place of the database and the number of clients."""

    name: str
    place: str
    clients: int
    value: float
    unit: str

    def __str__(self) -> str:
        digits = 0 if self.value >= 100 else 1 if self.value >= 1 else 3
        return f"{self.value:,.{digits}f} {self.unit}"


def mix(kernels: int) -> str:
    """Return a Spec file with this number of Specs: products of f32, and operations of their results."""
    products = [
        f"Matmul(1×{m}×{k}×{n}, {', '.join(['(f32, GL)'] * 3)}, serial)" for m, k, n in itertools.product(*SIZES)
    ]
    others = [
        f"{op}({m}×{n}, (f32, GL), (f32, GL), serial)"
        for op, m, n in itertools.product(("Relu", "Softmax"), SIZES[0][1:], SIZES[2])
    ]
    # Operations take turns, so that a smaller mix has all of them.
    chosen = sorted([*enumerate(products), *enumerate(others)], key=lambda pair: pair[0])[:kernels]
    lines = [f"spec kernel{number} = {text}\n" for number, (_, text) in enumerate(chosen)]
    return "".join(["target x86_avx2\n", *lines])


def compiled(file: Path, place: str, cache: Path) -> float:
    """Compile a library with a database and a cache folder; return the seconds from the start of the process."""
    command = [sys.executable, "-m", "morello", "compile", str(file), "--db", place]
    environment = {**os.environ, "MORELLO_CACHE_DIR": str(cache)}
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        subprocess.run([*command, "-d", folder], check=True, env=environment, capture_output=True)
        return time.monotonic() - start


def parts(file: Path, place: str) -> tuple[Target, list[Spec]]:
    """Return the Specs in the proven programs of a file, parts before wholes."""
    opened = parse(file)
    found: dict[Spec, None] = {}
    with closing(open_database(place)) as store:
        for goal in opened.values():
            store.prepare(goal.target, [goal.spec])
            program = store.program(goal.target, goal.spec)
            found |= dict.fromkeys(one.spec for one in reversed([*walk(program)])) if program else {}
    return next(iter(opened.values())).target, [*found][:MOST]


def _look_up(place: str, file: Path, known: str, number: int) -> list[tuple[float, float, int]]:
    """Look all parts up twice; return start, end and number of look-ups of each time."""
    target, specs = parts(file, known)
    spans: list[tuple[float, float, int]] = []
    with closing(open_database(place)) as store:
        for _ in range(2):
            _begin.wait()
            start = time.time()
            for spec in specs:
                store.prepare(target, [spec])
                assert store.find(target, spec)
            spans.append((start, time.time(), len(specs)))
    return spans


def _write(place: str, pieces: int, number: int) -> list[tuple[float, float, int]]:
    """Store pieces; return start, end and number of transactions."""
    warnings.simplefilter("error", NotSaved)
    with closing(open_database(place, new=True)) as store:
        _begin.wait()
        start = time.time()
        for one in range(pieces):
            store.add(TARGET, piece(number * pieces + one))
        return [(start, time.time(), pieces)]


def _ready(barrier: Any, folder: str) -> None:
    global _begin
    _begin = barrier
    os.environ["MORELLO_CACHE_DIR"] = f"{folder}/{os.getpid()}"


def rates(work: Callable[[int], list[tuple[float, float, int]]], clients: int) -> list[float]:
    """Return how much of each span of the work all clients do a second."""
    context = multiprocessing.get_context("spawn")
    # A client that waits for the others leaves their work to them.
    barrier = context.Barrier(clients, timeout=PATIENCE)
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(clients, context, initializer=_ready, initargs=(barrier, folder)) as pool,
    ):
        found = [*pool.map(work, range(clients))]
    return [
        sum(count for *_, count in spans) / (max(end for _, end, _ in spans) - min(start for start, *_ in spans))
        for spans in zip(*found, strict=True)
    ]


def bytes_of(place: str) -> float:
    """Return the bytes that a database takes for each of its rectangles."""
    with closing(open_database(place)) as store:
        return store.size() / sum(one.rectangles for one in maintenance.summaries(store.whole()))


def prepared(file: Path, place: str, cache: Path) -> float:
    """Return the seconds in which a client with nothing gets the answers to the first Spec of a file."""
    goal = next(iter(parse(file).values()))
    os.environ["MORELLO_CACHE_DIR"] = str(cache)
    with closing(open_database(place)) as store:
        start = time.monotonic()
        store.prepare(goal.target, [goal.spec])
        return time.monotonic() - start


def measured(kernels: int, clients: Sequence[int], pieces: int, one: Server, folder: Path) -> Iterator[Measured]:
    """Yield all numbers."""
    file, caches = folder / "mix.spec", (folder / f"cache{number}" for number in itertools.count())
    file.write_text(mix(kernels), encoding="utf-8")
    known = str(folder / "known.db")
    places = {"file": known, "server": one.create_database().address(trust="yes", sslmode="disable")}
    for name, place in places.items():
        yield Measured("library, empty database", name, 1, compiled(file, place, next(caches)), "s")
        # Another cache folder is another machine, which has nothing of the server's answers yet.
        cache = next(caches)
        yield Measured("library, full database", name, 1, compiled(file, place, cache), "s")
        if name == "server":
            yield Measured("library, full database and local file", name, 1, compiled(file, place, cache), "s")
            yield Measured("prepare of a solved Spec", name, 1, prepared(file, place, next(caches)), "s")
        yield Measured("size of a rectangle", name, 1, bytes_of(place), "bytes")
    for count in clients:
        for name, place in places.items():
            cold, warm = rates(partial(_look_up, place, file, known), count)
            yield Measured("look-ups, cold", name, count, cold, "/s")
            yield Measured("look-ups, warm", name, count, warm, "/s")
            new = str(folder / f"new{count}.db") if name == "file" else one.create_database().address(sslmode="disable")
            with closing(open_database(new, new=True)) as store:
                store.add(TARGET, piece(1 << 20))
            (written,) = rates(partial(_write, new, max(1, pieces // count)), count)
            yield Measured("transactions", name, count, written, "/s")


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--kernels", default=50, show_default=True, help="Specs of the library.")
@click.option("--clients", multiple=True, default=(1, 16), show_default=True, help="Clients at once.")
@click.option("--pieces", default=400, show_default=True, help="Transactions of all clients.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all numbers to this file.")
def main(kernels: int, clients: tuple[int, ...], pieces: int, path: Path | None) -> None:
    with tempfile.TemporaryDirectory() as folder, server() as one:
        found = [*measured(kernels, clients, pieces, one, Path(folder))]
    table = Table("", "clients", "file", "server", box=None, pad_edge=False)
    for name, count in dict.fromkeys((each.name, each.clients) for each in found):
        shown = {each.place: str(each) for each in found if (each.name, each.clients) == (name, count)}
        table.add_row(name, str(count), shown.get("file", "–"), shown.get("server", "–"))
    Console(width=100).print(table)
    if path:
        path.write_text(json.dumps([attrs.asdict(each) for each in found], indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
