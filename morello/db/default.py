"""The databases that commands and functions use: one that is passed, or the user's default one."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.paths import make_private, user_folder

#: A database as functions take it: an open one, a path, None for the default one, False for none.
DatabaseLike: TypeAlias = SpecStore | str | os.PathLike[str] | Literal[False] | None

#: Open stores by tolerance and path, so that goals share the searches that belong to a database.
_open: WeakValueDictionary[tuple[bool, str], SpecStore] = WeakValueDictionary()
_opening = threading.Lock()


def default_path() -> Path | None:
    """Return the path of the default database: MORELLO_DB if that is set, None if it is `off`."""
    given = os.environ.get("MORELLO_DB")
    if given:
        return None if given.lower() == "off" else Path(os.path.expanduser(given))
    return user_folder() / "specs.db"


def default_store(report: Callable[[MorelloError], None]) -> SpecStore | None:
    """Return the default database, made if necessary; None if it is off or cannot be used, which is reported.

    It is a tolerant one: its first failure is reported, and it stores and finds nothing from then on.
    """
    path = default_path()
    if path is None:
        return None
    try:
        make_private(path.parent)
        return SpecStore(path, report=report, tolerant=True)
    except OSError as error:
        message = f"database {path}: its folder cannot be made: {error.strerror or error}"
        report(MorelloError(message, "set MORELLO_DB to a path that can be written, or to off"))
    except MorelloError as error:
        report(error)
    return None


def database(given: DatabaseLike) -> SpecStore | None:
    """Return the database that a function was given. A file is made if it does not exist.

    A later failure to store in it, and any failure of the default one, is a NotSaved warning. Raises MorelloError for
    another path that cannot be used, and for a value that is not a database.
    """
    if isinstance(given, SpecStore):
        return given
    if given is False:
        return None
    if given is not None and not isinstance(given, str | os.PathLike):
        raise MorelloError(
            f"db is {given!r}, which is not a database",
            "pass a path, a SpecStore, False for none, or omit it for the default one",
        )
    path = default_path() if given is None else Path(os.path.abspath(os.path.expanduser(given)))
    if path is None:
        return None
    key = given is None, str(path.absolute())
    with _opening:
        store = _open.get(key) or (default_store(_warn) if given is None else SpecStore(path, report=_warn))
        if store is not None:
            _open[key] = store
    return store


def _warn(error: MorelloError) -> None:
    warnings.warn(f"going on without a database: {error}", NotSaved, stacklevel=2)
