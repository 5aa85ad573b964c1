"""The databases that commands and functions use: one that is passed, or the user's default one."""

from __future__ import annotations

import os
import threading
import warnings
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


def database(given: DatabaseLike) -> SpecStore | None:
    """Return the database that a function was given. A file is made if it does not exist.

    Any failure of the default one is a NotSaved warning, after which it is not used. Raises MorelloError for another
    path that cannot be used, and for a value that is not a database.
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
        store = _open.get(key) or (_open_default(path) if given is None else SpecStore(path))
        if store is not None:
            _open[key] = store
    return store


def _open_default(path: Path) -> SpecStore | None:
    """Return a tolerant store; None with a NotSaved warning if the file cannot be used."""
    try:
        make_private(path.parent)
        return SpecStore(path, tolerant=True)
    except OSError as error:
        message = f"database {path}: its folder cannot be made: {error.strerror or error}"
        fault = MorelloError(message, "set MORELLO_DB to a path that can be written, or to off")
    except MorelloError as error:
        fault = error
    warnings.warn(f"going on without a database: {fault}", NotSaved, stacklevel=2)
    return None
