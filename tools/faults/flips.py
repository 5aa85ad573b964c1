"""Databases whose bytes have changed: flipped bits, torn sectors, files cut short, and files of other versions."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from morello.db import maintenance
from morello.db.store import SpecStore
from morello.errors import MorelloError
from tools.faults.pieces import TARGET, look, piece, require


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
    outcomes: Counter[str] = Counter()
    original = whole.read_bytes()
    copy = whole.with_name("damaged.db")
    for _ in range(times):
        data = bytearray(original)
        change(data, luck)
        for leftover in whole.parent.glob("damaged.db*"):
            leftover.unlink()
        copy.write_bytes(data)
        outcomes[_ask(copy, pieces)] += 1
    return outcomes


def _ask(path: Path, pieces: int) -> str:
    """Return what a damaged database says: `right`, `refused` with a message, or that something is `missing`."""
    states: set[str] = set()
    try:
        store = SpecStore(path)
    except MorelloError:
        return "refused at once"
    if path.with_name(f"{path.name}.old-1").exists():
        store.close()
        return "set aside"
    for number in range(pieces):
        try:
            states.add(look(store, number))
        except MorelloError as error:
            states.add("refused" if str(path) in error.message and error.hint else "unclear")
    try:
        store.add(TARGET, piece(pieces))
        require(look(store, pieces) == "all", "what was just stored is lost")
    except MorelloError:
        states.add("refused")
    require("unclear" not in states, "a message that does not name the file, or no remedy")
    found = "refused" if "refused" in states else "right" if states == {"all"} else "missing"
    if found == "missing":
        require([*maintenance.damage(store)], "something is missing, and `morello db verify` does not report it")
    store.close()
    return found


def mark(path: Path, application: int, version: int) -> None:
    """Make a database look like that of another version."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {application}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.commit()
    connection.close()
