"""Disks that are full, files that may not grow, and files that may not be written."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from morello.db.store import SpecStore
from morello.errors import MorelloError
from tools.children import ending_of
from tools.faults.pieces import TARGET, Broken, look, make, piece, require


def in_child(action: Callable[[], None]) -> str:
    """Run an action that cannot be undone in a process of its own; return its failure, or an empty text."""

    def run() -> str:
        try:
            action()
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        return ""

    return ending_of(run).result


def fill(path: Path) -> None:
    """Store until that fails, and check that what was committed is there, and nothing of what failed."""
    store = SpecStore(path)
    for number in range(10_000):
        try:
            store.add(TARGET, piece(number))
        except MorelloError:
            require(all(look(store, one) == "all" for one in range(number)), "a piece is lost")
            require(look(store, number) == "none", "something of what failed is there")
            raise
    raise Broken("the disk was never full")


def goes_on(path: Path) -> None:
    """See that with room again, the database goes on where it was."""
    store = SpecStore(path)
    require(look(store, 0) == "all", "a piece is lost")
    store.add(TARGET, piece(20_000))
    require(look(store, 20_000) == "all", "what was just stored is lost")
    store.close()


def answers(path: Path) -> None:
    """See that a database answers."""
    require(look(SpecStore(path), 0) == "all", "a piece is lost")


def file_limit(path: Path) -> str:
    """Store until no file may grow any more; return the message."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        fill(path)

    said = in_child(limited)
    goes_on(path)
    return said


def full_disk(folder: Path) -> str | None:
    """Store until a disk of 1 MiB is full, then make room; return the message, or None if no disk may be mounted."""
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
        require("full" in unmade, unmade)
        require(not list(folder.glob("*new.db*")), "something is left of a database that could not be made")
        unread = in_child(lambda: answers(folder / "full.db"))
        require(not unread, unread)
        (folder / "rest").unlink()
        subprocess.run(["mount", "-o", "remount,size=8m", str(folder)], check=True)
        goes_on(folder / "full.db")
        return said
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def read_only(folder: Path, pieces: int, *, file_only: bool = False) -> str:
    """Use a database that may not be written: it answers, and says why nothing is saved. Return the message."""
    path = folder / "fixed.db"
    make(path, pieces)
    path.chmod(0o444)
    folder.chmod(0o755 if file_only else 0o555)

    def use() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        store = SpecStore(path)
        require(all(look(store, number) == "all" for number in range(pieces)), "a piece is lost")
        store.add(TARGET, piece(pieces))

    try:
        return in_child(use)
    finally:
        folder.chmod(0o755)


@contextmanager
def public_folder() -> Iterator[Path]:
    """Yield a temporary folder that any user may look into."""
    folder = Path(tempfile.mkdtemp(prefix="morello-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
