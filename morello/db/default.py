"""Databases that are used without much ado: what fails there must not take away what was found.

Commands and functions of Python have the same default one, which must not stop them either.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from morello.db.block import UNKNOWN, AnswerBlock, Entry, Ints
from morello.db.measured import Measured
from morello.db.rectangles import Boxes
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.paths import make_private, user_folder

_T = TypeVar("_T")
#: Hears why the default database is not used.
Tell = Callable[[MorelloError], None]
#: A database as functions of Python take it: an open one, a path, None for the user's own, False for none.
DatabaseLike: TypeAlias = SpecStore | str | os.PathLike[str] | Literal[False] | None


#: Stores of paths that are in use, so that goals share what was searched for with the same database.
_open: WeakValueDictionary[tuple[type[SpecStore], str], SpecStore] = WeakValueDictionary()
_opening = threading.Lock()


def default_path() -> Path | None:
    """Return the user's own database; None if MORELLO_DB=off. MORELLO_DB may also be a path."""
    asked = os.environ.get("MORELLO_DB")
    if asked:
        return None if asked.lower() == "off" else Path(os.path.expanduser(asked))
    return user_folder() / "specs.db"


def default_store(tell: Tell) -> SpecStore | None:
    """Return the user's own database, made if need be; None if it is switched off, or cannot be used, which is told."""
    path = default_path()
    if path is None:
        return None
    try:
        try:
            make_private(path.parent)
        except OSError as error:
            raise MorelloError(
                f"database {path}: its folder cannot be made: {error.strerror or error}",
                "set MORELLO_DB to a path that can be written, or to off",
            ) from error
        return ForgivingStore(path, tell)
    except MorelloError as error:
        tell(error)
        return None


class SavingStore(SpecStore):
    """A store that, once something cannot be saved, says so and saves nothing from then on."""

    def __init__(self, path: str | Path, tell: Tell):
        super().__init__(path)
        self._tell = tell
        self._failed = False

    def add(self, target: Target, blocks: Iterable[AnswerBlock], *, foreign: bool = False) -> None:
        parent = super()
        self._try(lambda: parent.add(target, blocks, foreign=foreign), None)

    def keep_measured(self, target: Target, spec: Spec, best: Measured) -> None:
        parent = super()
        self._try(lambda: parent.keep_measured(target, spec, best), None)

    def _try(self, action: Callable[[], _T], otherwise: _T) -> _T:
        if self._failed:
            return otherwise
        try:
            return action()
        except MorelloError as error:
            self._failed = True
            self._tell(error)
            return otherwise


class ForgivingStore(SavingStore):
    """A store that, once it fails in any way, says so, and knows and saves nothing from then on."""

    def find(self, target: Target, spec: Spec) -> Entry | None:
        parent = super()
        return self._try(lambda: parent.find(target, spec), None)

    def has_any(self, target: Target) -> bool:
        parent = super()
        return self._try(lambda: parent.has_any(target), False)

    def boxes(self, target: Target, labels: LogicalSpec) -> Boxes | None:
        parent = super()
        return self._try(lambda: parent.boxes(target, labels), None)

    def believed(
        self, target: Target, labels: LogicalSpec, shapes: Ints, limits: Ints
    ) -> tuple[Ints, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        parent = super()
        size = len(shapes)
        nothing = np.zeros(size, dtype=np.int64), np.full(size, UNKNOWN, dtype=np.int8), np.zeros(size, dtype=np.bool_)
        return self._try(lambda: parent.believed(target, labels, shapes, limits), nothing)

    def measured(self, target: Target, spec: Spec) -> list[Measured]:
        parent = super()
        return self._try(lambda: parent.measured(target, spec), [])

    def program(self, target: Target, spec: Spec) -> Impl | None:
        parent = super()
        return self._try(lambda: parent.program(target, spec), None)


def database(given: DatabaseLike) -> SpecStore | None:
    """Return the database that a function was given: see `DatabaseLike`. Paths are made if they do not exist.

    What cannot be saved in it later, or read from the user's own, is a NotSaved warning. Raises MorelloError for
    another path that cannot be used, and for what is no database.
    """
    if isinstance(given, SpecStore):
        return given
    if given is False:
        return None
    if given is not None and not isinstance(given, str | os.PathLike):
        raise MorelloError(
            f"db is {given!r}, which is no database",
            "pass a path, a SpecStore, False for none, or leave it out for the default one",
        )
    path = default_path() if given is None else Path(os.path.abspath(os.path.expanduser(given)))
    if path is None:
        return None
    key = ForgivingStore if given is None else SavingStore, str(path.absolute())
    with _opening:
        store = _open.get(key) or (default_store(_warn) if given is None else SavingStore(path, _warn))
        if store is not None:
            _open[key] = store
    return store


def _warn(error: MorelloError) -> None:
    warnings.warn(f"going on without a database: {error}", NotSaved, stacklevel=2)
