"""Loses power at every moment of a small piece of work, and checks what the disk may hold then.

What reaches the files is recorded, then replayed up to a moment. What was not synced by then is on the disk in full, in
part or not at all: writes in any order and sector by sector, changes of names in the order they were made.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs

from tools.children import ending_of
from tools.faults.calls import Sweep, failure_of
from tools.faults.pieces import Broken
from tools.faults.shim import Shim
from tools.faults.works import Promises, Work, ready

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


#: Names with their files, None for a folder and _GONE for a name that is removed.
_Names = dict[str, Any]
_GONE = object()


class Disk:
    """Files and folders, with their synced and their pending changes."""

    def __init__(self, folder: str):
        self._folder = folder
        self._names: _Names = {}
        self._synced: _Names = {}
        self._changes: list[_Names] = []
        self._contents: dict[int, _Content] = {}
        self.promised: set[int] = set()

    def put(self, path: str, data: bytes | None) -> None:
        """Place a file (or a folder, without data) that was there, and synced, before."""
        content = None if data is None else _Content(bytearray(data))
        self._names[path] = self._synced[path] = content

    def apply(self, event: Event) -> None:
        """Do what was done."""
        path, _, to = event.path.partition("\n")
        match event.op:
            case "k":
                self.promised.add(event.offset)
            case "n":
                self._contents[event.inode] = _Content()
                self._change({path: self._contents[event.inode]})
            case "m":
                self._change({path: None})
            case "u":
                self._contents = {key: one for key, one in self._contents.items() if one is not self._names.get(path)}
                self._change({path: _GONE})
            case "r":
                self._change({path: _GONE, to: self._content(path, event.inode)})
            case "l":
                self._change({to: self._content(path, event.inode)})
            case "s" if path == self._folder or self._names.get(path, _GONE) is None:
                self._sync_folder(path)
            case "s":
                self._content(path, event.inode).sync()
            case "c":
                # Another process made this file: only its content was recorded.
                if self._names.get(path) is None:
                    self._contents.setdefault(event.inode, _Content(pending=[(0, event.data)]))
            case _:
                data = event.data if event.op == "w" else None
                self._content(path, event.inode).pending.append((event.offset, data))

    def _content(self, path: str, inode: int) -> _Content:
        known = self._names.get(path)
        if known is not None:
            self._contents[inode] = known
        return self._contents.setdefault(inode, _Content())

    def _change(self, change: _Names) -> None:
        self._changes.append(change)
        _carry_out(self._names, change)

    def _sync_folder(self, folder: str) -> None:
        kept: list[_Names] = []
        for change in self._changes:
            if any(str(Path(name).parent) == folder for name in change):
                _carry_out(self._synced, change)
            else:
                kept.append(change)
        self._changes = kept

    def states(self, moment: int) -> Iterator[dict[str, bytes | None]]:
        """Yield files that the disk may hold if power is lost now."""
        every = len(self._changes)
        for torn in (False, True):
            yield self._state(every, lambda one, torn=torn: one.after(None, torn))
        for changes in (0, every):
            yield self._state(changes, lambda one: bytes(one.synced))
        for draw in range(DRAWS):
            luck = random.Random(f"{moment} {draw}")
            yield self._state(luck.randint(0, every), lambda one, luck=luck: one.after(luck))

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


def _carry_out(names: _Names, change: _Names) -> None:
    for name, content in change.items():
        names[name] = content
        if content is _GONE:
            del names[name]


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


def lose(shim: Shim, work: type[Work], folder: Path, every: int = 1) -> Sweep:
    """Do some work, and lose power after every event of it, or every nth; check that everything promised is kept."""
    place, log = folder / "work", folder / "record"
    place.mkdir(mode=0o700)
    work.prepare(place)
    disk = Disk(str(place))
    for path in sorted(place.rglob("*")):
        disk.put(str(path), path.read_bytes() if path.is_file() else None)

    def run() -> None:
        with shim.recording(place, log):
            for step in work(place, Promises(shim.library.faults_mark)).steps():
                step()

    if died := ending_of(run).died:
        raise Broken(f"{work.__name__} does not work: {died}")
    result, seen = Sweep(), set[bytes]()
    for moment, event in enumerate(events(log), 1):
        disk.apply(event)
        if moment % every:
            continue
        result.outcomes["moments"] += 1
        for number, state in enumerate(disk.states(moment)):
            digest = hashlib.sha256(repr((sorted(state.items()), sorted(disk.promised))).encode()).digest()
            if digest in seen:
                continue
            seen.add(digest)
            wrong = _look(work, folder / "after", state, disk.promised)
            name = Path(event.path.partition("\n")[0]).name
            shown = f"{work.__name__}: power lost after event {moment} ({event.op} {name}), state {number}"
            result.add("broken" if wrong else "right", wrong, shown)
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
    ending = ending_of(lambda: failure_of(lambda: work.again(folder, promised)))
    return ending.died or ending.result


def main(shim: Shim, works: list[type[Work]], every: int = 1) -> bool:
    """Lose power in all this work, and print the results. Return whether there was no finding."""
    well = True
    ready()
    for work in works:
        with tempfile.TemporaryDirectory(prefix="morello-power-") as folder:
            well = lose(shim, work, Path(folder).resolve(), every).print(f"power   {work.__name__}") and well
    return well
