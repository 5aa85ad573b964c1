"""Small pieces of work that faults are injected into, and what must hold whatever fails."""

from __future__ import annotations

import atexit
import gc
import mmap
import os
import shlex
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import cache, cached_property
from pathlib import Path
from typing import ClassVar

import attrs
import numpy as np

from morello.build.toolchain import BASE_FLAGS, Compiler, find_compiler
from morello.db import file, maintenance
from morello.db.export_import import import_tables
from morello.db.store import SpecStore
from morello.frontend.parser import parse_spec
from morello.run.function import NativeFunction
from morello.verify.reference import implement
from tools.faults.pieces import LEVEL, TARGET, look, make, piece, require

Step = Callable[[], None]


class Promises:
    """Numbers of what was said to be committed, in memory that forked processes share."""

    def __init__(self, heard: Callable[[int], None] = lambda number: None):
        self._heard = heard
        self._made = mmap.mmap(-1, 256)

    def make(self, number: int) -> None:
        """Promise that this is kept from now on."""
        self._made[number] = 1
        self._heard(number)

    def made(self) -> set[int]:
        """Return what was promised."""
        return {number for number, one in enumerate(self._made[:]) if one}


@attrs.define(slots=False)
class Work(ABC):
    """Something that is done in a folder, in steps that may fail one by one."""

    folder: Path
    promises: Promises = attrs.field(factory=Promises)

    @classmethod
    @abstractmethod
    def prepare(cls, folder: Path) -> None:
        """Put into an empty folder what must be there before the work begins."""

    @abstractmethod
    def steps(self) -> Sequence[Step]:
        """Return what to do, in order."""

    @abstractmethod
    def settle(self) -> None:
        """See that the same process, whatever failed in it, gives right answers. Raises Broken."""

    @classmethod
    @abstractmethod
    def again(cls, folder: Path, promised: set[int]) -> None:
        """See, in a new process, that all promised is kept, nothing is wrong, and all works. Raises Broken."""


class ShortDatabase(Work):
    """A database is made, pieces are stored and read."""

    pieces: ClassVar[Sequence[int]] = (0, 1)

    @cached_property
    def store(self) -> SpecStore:
        return SpecStore(self.folder / "specs.db")

    @classmethod
    def prepare(cls, folder: Path) -> None:
        """Put nothing there: the database is made by the work."""

    def steps(self) -> Sequence[Step]:
        return [self._open, lambda: self._add(0), lambda: self._add(1), self._read, self._close]

    def settle(self) -> None:
        _check(self.store, self.promises.made(), self.pieces)
        self.store.close()

    @classmethod
    def again(cls, folder: Path, promised: set[int]) -> None:
        require(not promised or (folder / "specs.db").exists(), "the database is lost")
        store = SpecStore(folder / "specs.db")
        _check(store, promised, cls.pieces)
        for number in {*cls.pieces, 50} - promised:
            store.add(TARGET, piece(number))
            require(look(store, number) == "all", "what was just stored is not there")
        require(not [*maintenance.damage(store)], "the database is damaged")
        store.close()

    def _open(self) -> None:
        require(self.store.path, "no path")

    def _add(self, number: int) -> None:
        self.store.add(TARGET, piece(number))
        self.promises.make(number)

    def _read(self) -> None:
        self.store.clear_cache()
        _check(self.store, self.promises.made(), self.pieces)

    def _close(self) -> None:
        self.store.close()


class Database(ShortDatabase):
    """A database is made, written, merged with another, opened again, written and made small."""

    pieces: ClassVar[Sequence[int]] = (0, 1, 2, 3, 4)

    @classmethod
    def prepare(cls, folder: Path) -> None:
        shutil.copyfile(_other_database(), folder / "other.db")

    def steps(self) -> Sequence[Step]:
        first = [self._open, lambda: self._add(0), lambda: self._add(1), self._merge, self._close]
        return [*first, lambda: self._add(4), self._prune, self._read, self._close]

    def _merge(self) -> None:
        with closing(SpecStore(self.folder / "other.db")) as other:
            # The stored answers have no programs, so they could not be proven.
            import_tables(self.store, other.tables(), trust=True)
            self.promises.make(2)
            self.promises.make(3)

    def _prune(self) -> None:
        maintenance.prune(self.store, [TARGET], lower=False)


def _check(store: SpecStore, promised: set[int], possible: Sequence[int]) -> None:
    """See that all promised is there, and of what else is possible all or nothing."""
    states = {number: look(store, number) for number in possible}
    for number, state in states.items():
        require(number not in promised or state == "all", f"piece {number} was committed and is lost")
        require(state != "some", f"piece {number} is there in part")
    # A merge is one transaction.
    require(states.get(2) == states.get(3), "a merge is there in part")


@cache
def scratch() -> Path:
    """Return a temporary folder, which the process that forks removes."""
    folder, owner = tempfile.mkdtemp(prefix="morello-faults-"), os.getpid()
    atexit.register(lambda: shutil.rmtree(folder) if os.getpid() == owner else None)
    return Path(folder).resolve()


@cache
def _other_database() -> Path:
    path = scratch() / "other.db"
    make(path, 4)
    return path


@cache
def sample() -> tuple[NativeFunction, Compiler]:
    """Return the kernel that the build cache is tried with, and a compiler that takes no time for it."""
    spec = parse_spec(f"FillZero(4×8, {LEVEL}, serial)", TARGET)
    impl = implement(spec.logical, TARGET)
    kernel = NativeFunction(impl, TARGET, TARGET.emitter.emit(impl, TARGET, "zero"), find_compiler())
    for name, text in kernel.files.items():
        (scratch() / name).write_text(text, encoding="utf-8")
    library, script = scratch() / "zero.so", scratch() / "copycc"
    command = [*kernel.compiler.command, *BASE_FLAGS, *kernel.flags, "-o", str(library), "zero.c"]
    subprocess.run(command, cwd=scratch(), check=True)
    # The stub returns the finished kernel; the library of fast calls is compiled.
    script.write_text(
        f'case "$*" in *fastcall.c*) exec {shlex.join(kernel.compiler.command)} "$@";; esac\n'
        f'while [ "$1" != -o ]; do shift; done\nexec cp {library} "$2"\n'
    )
    return kernel, Compiler(("/bin/sh", str(script)), "copycc", "1")


class Cache(Work):
    """A kernel is built and run, and then found in the cache of what was built."""

    @classmethod
    def prepare(cls, folder: Path) -> None:
        (folder / "cache").mkdir(mode=0o700)

    def steps(self) -> Sequence[Step]:
        return [self._run, self._run]

    def settle(self) -> None:
        self._run()

    @classmethod
    def again(cls, folder: Path, promised: set[int]) -> None:
        for step in cls(folder).steps():
            step()

    def _run(self) -> None:
        os.environ["MORELLO_CACHE_DIR"] = str(self.folder / "cache")
        made, compiler = sample()
        kernel = NativeFunction(made.impl, TARGET, made.program, compiler)
        out = np.ones((4, 8), dtype=np.float32)
        kernel([out])
        require((out == 0).all(), "a kernel computes something else")


WORKS: tuple[type[Work], ...] = (Database, Cache)


@cache
def ready() -> None:
    """Prepare this process for forks: do all work once, so that imports and caches are in each of them."""
    # SQLite cannot distinguish a lock that fails from one that another process holds.
    file.PATIENCE = 0
    for work in WORKS:
        with tempfile.TemporaryDirectory(prefix="morello-warm-") as folder:
            place = Path(folder).resolve()
            work.prepare(place)
            for step in work(place).steps():
                step()
            work.again(place, set())
    # The garbage collector would make forked processes copy memory.
    gc.freeze()
