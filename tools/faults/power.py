"""Loses power at every moment of a small piece of work, and checks what the disk may hold then.

What reaches the files is recorded, then replayed up to a moment. What was not synced by then is on the disk in full, in
part or not at all: writes in any order and sector by sector, changes of names in the order they were made.
"""

from __future__ import annotations

import gc
import hashlib
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import attrs

from tools.faults.calls import Sweep, failure_of
from tools.faults.forks import forked
from tools.faults.pieces import Broken
from tools.faults.shim import Shim
from tools.faults.works import Promises, Work, warm

#: Random states after each event, in addition to three: all pending writes lost, none lost, the last one torn.
DRAWS = 6
_SECTORS = (512, 4096)
_HEAD = struct.Struct("5q")


@attrs.frozen
class Event:
    """One line of the record: an operation of shim.c, with the file it was done to."""

    op: str
    path: str
    inode: int
    offset: int
    data: bytes


@attrs.define(eq=False)
class _Content:
    """The contents that a file holds for sure, and writes and changes of size since; those of size have no data."""

    synced: bytearray = attrs.field(factory=bytearray)
    pending: list[tuple[int, bytes | None]] = attrs.field(factory=list)

    def sync(self) -> None:
        self.synced = bytearray(self.after(None))
        self.pending = []

    def after(self, luck: random.Random | None, torn: bool = False) -> bytes:
        """Return the bytes after all pending changes, and the last one torn if `torn`. `luck` loses sectors."""
        data = bytearray(self.synced)
        sector = luck.choice(_SECTORS) if luck else _SECTORS[0]
        for i, (offset, written) in enumerate(self.pending, 1):
            if written is None:
                if not luck or luck.random() < 0.5:
                    data = data[:offset] + bytes(max(0, offset - len(data)))
                continue
            end = offset + len(written)
            if end > len(data):
                # Space that was given to a file whose data never came holds zeros, or what was there before.
                data += luck.randbytes(end - len(data)) if luck and luck.random() < 0.3 else bytes(end - len(data))
            for at in range(offset - offset % sector, end, sector):
                first, last = max(at, offset), min(at + sector, end)
                whole = luck.random() < 0.6 if luck else not (torn and i == len(self.pending) and at > offset)
                if whole:
                    data[first:last] = written[first - offset : last - offset]
        return bytes(data)


#: Names that are set to a file, and names that are gone.
_Change = tuple[dict[str, _Content | None], set[str]]


class Disk:
    """Files and folders, with their synced and their pending changes."""

    def __init__(self, folder: str):
        self._folder = folder
        self._names: dict[str, _Content | None] = {}
        self._synced: dict[str, _Content | None] = {}
        self._changes: list[_Change] = []
        self._contents: dict[int, _Content] = {}
        self.promised: set[int] = set()

    def put(self, path: str, data: bytes | None) -> None:
        """Place a file (or a folder, without data) that was there, and synced, before."""
        content = None if data is None else _Content(bytearray(data))
        self._names[path] = self._synced[path] = content

    def apply(self, event: Event) -> None:
        """Do what was done."""
        if event.op == "k":
            self.promised.add(event.offset)
        elif event.op in "nwtcs":
            self._write(event)
        else:
            self._rename(event)

    def _write(self, event: Event) -> None:
        if event.op == "n":
            self._contents[event.inode] = _Content()
            self._change({event.path: self._contents[event.inode]}, set())
        elif event.op == "s" and (event.path in self._names or event.path == self._folder) and self._is_folder(event):
            self._sync_folder(event.path)
        elif event.op == "s":
            self._content(event).sync()
        elif event.op == "c":
            # Another process made this file: only its content was recorded.
            if self._names.get(event.path) is None and event.inode not in self._contents:
                self._contents[event.inode] = _Content(pending=[(0, event.data)])
        else:
            self._content(event).pending.append((event.offset, event.data if event.op == "w" else None))

    def _is_folder(self, event: Event) -> bool:
        return event.path == self._folder or self._names[event.path] is None

    def _content(self, event: Event) -> _Content:
        known = self._names.get(event.path)
        if known is not None:
            self._contents[event.inode] = known
        return self._contents.setdefault(event.inode, _Content())

    def _rename(self, event: Event) -> None:
        path, _, to = event.path.partition("\n")
        if event.op == "m":
            self._change({path: None}, set())
        elif event.op == "u":
            self._contents = {key: one for key, one in self._contents.items() if one is not self._names.get(path)}
            self._change({}, {path})
        else:
            self._change({to: self._content(attrs.evolve(event, path=path))}, {path} if event.op == "r" else set())

    def _change(self, added: dict[str, _Content | None], gone: set[str]) -> None:
        self._changes.append((added, gone))
        _carry_out(self._names, (added, gone))

    def _sync_folder(self, folder: str) -> None:
        kept = []
        for change in self._changes:
            if any(str(Path(name).parent) == folder for name in {*change[0], *change[1]}):
                _carry_out(self._synced, change)
            else:
                kept.append(change)
        self._changes = kept

    def states(self, moment: int) -> Iterator[dict[str, bytes | None]]:
        """Yield files that the disk may hold if power is lost now."""
        for torn in (False, True):
            yield self._state(len(self._changes), partial(_Content.after, luck=None, torn=torn))
        for changes in (0, len(self._changes)):
            yield self._state(changes, lambda one: bytes(one.synced))
        for draw in range(DRAWS):
            luck = random.Random(f"{moment} {draw}")
            yield self._state(luck.randint(0, len(self._changes)), partial(_Content.after, luck=luck))

    def _state(self, changes: int, read: Callable[[_Content], bytes]) -> dict[str, bytes | None]:
        names = dict(self._synced)
        for change in self._changes[:changes]:
            _carry_out(names, change)
        state: dict[str, bytes | None] = {}
        for name, content in sorted(names.items()):
            parent = str(Path(name).parent)
            # The shared memory of SQLite is in a file, too, but is made again by the next process.
            if (parent == self._folder or parent in names) and not name.endswith("-shm"):
                state[name.removeprefix(self._folder)] = content and read(content)
        return state


def _carry_out(names: dict[str, _Content | None], change: _Change) -> None:
    made, gone = change
    for name in gone:
        names.pop(name, None)
    names.update(made)


def events(record: Path) -> Iterator[Event]:
    """Yield what was recorded, in order."""
    data = record.read_bytes()
    place = 0
    while place < len(data):
        op, length, inode, offset, size = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        path = data[place : place + length].decode()
        place += length
        yield Event(chr(op), path, inode, offset, data[place : place + size])
        place += size


def record(shim: Shim, work: type[Work], folder: Path) -> tuple[Disk, list[Event]]:
    """Do some work; return the disk as it was before, and what was done to it."""
    place, log = folder / "work", folder / "record"
    place.mkdir(mode=0o700)
    work.prepare(place)
    before = Disk(str(place))
    for path in sorted(place.rglob("*")):
        before.put(str(path), path.read_bytes() if path.is_file() else None)

    def run() -> None:
        with shim.recording(place, log):
            for step in work(place, Promises(shim.mark)).steps():
                step()

    ending = forked(run)
    if ending.died:
        raise Broken(f"{work.__name__} does not work: {ending.died}")
    return before, [*events(log)]


def lose(shim: Shim, work: type[Work], folder: Path, every: int = 1) -> Sweep:
    """Lose power after every event of some work, or every nth; check that everything promised is kept."""
    disk, done = record(shim, work, folder)
    result, seen = Sweep(), set[bytes]()
    for moment, event in enumerate(done, 1):
        disk.apply(event)
        if moment % every:
            continue
        for number, state in enumerate(disk.states(moment)):
            digest = hashlib.sha256(repr((sorted(state.items()), sorted(disk.promised))).encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            wrong = _look(work, folder / "after", state, disk.promised)
            place = Path(event.path.partition("\n")[0]).name
            shown = f"{work.__name__}: power lost after event {moment} ({event.op} {place}), state {number}"
            result.add("broken" if wrong else "right", wrong, shown)
    result.outcomes["moments"] = len(done) // every
    return result


def _look(work: type[Work], folder: Path, state: dict[str, bytes | None], promised: set[int]) -> str:
    """Return the fault of the files of a state, or an empty text."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for name, data in state.items():
        path = folder / name.lstrip("/")
        if data is None:
            path.mkdir(mode=0o700)
        else:
            path.write_bytes(data)
    ending = forked(lambda: failure_of(lambda: work.again(folder, promised)))
    return ending.died or ending.result


def main(shim: Shim, works: list[type[Work]], every: int = 1) -> bool:
    """Lose power in all this work, and print the results. Return whether there was no finding."""
    well = True
    warm()
    gc.freeze()
    for work in works:
        with tempfile.TemporaryDirectory(prefix="morello-power-") as folder:
            found = lose(shim, work, Path(folder).resolve(), every)
        print(f"power   {work.__name__:<13}", "\n".join(found.lines()), flush=True)
        well = well and not found.findings
    return well
