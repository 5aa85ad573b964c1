"""The databases that commands and functions use: one that is passed, or the user's default one.

A place is the path of a file, or the address of a server, such as postgresql://HOST/NAME. A distribution opens
addresses whose scheme is the name of its entry point in the group `morello.databases`: a function of the address and of
whether the store is `tolerant`, which returns a SpecStore.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import threading
import warnings
from pathlib import Path
from typing import Literal, TypeAlias
from weakref import WeakValueDictionary

from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.paths import make_private, user_folder

#: A database as functions take it: an open one, a path or address, None for the default one, False for none.
DatabaseLike: TypeAlias = SpecStore | str | os.PathLike[str] | Literal[False] | None

#: The entry point group of plugins that open addresses.
ENTRY_POINTS = "morello.databases"
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)

#: Open stores by tolerance and place, so that goals share the searches that belong to a database.
_open: WeakValueDictionary[tuple[bool, str], SpecStore] = WeakValueDictionary()
_opening = threading.Lock()


def is_address(place: object) -> bool:
    """Return whether a place is the address of a server, and no path."""
    return isinstance(place, str) and _ADDRESS.match(place) is not None


def default_place() -> str | None:
    """Return the path or address of the default database: MORELLO_DB if that is set, None if it is `off`."""
    given = os.environ.get("MORELLO_DB")
    if given:
        return None if given.lower() == "off" else given if is_address(given) else os.path.expanduser(given)
    return str(user_folder() / "specs.db")


def open_store(place: str | os.PathLike[str], *, tolerant: bool = False) -> SpecStore:
    """Return the database at a path or an address. Raises MorelloError, also for an address without a plugin."""
    found = _ADDRESS.match(place) if isinstance(place, str) else None
    if not found:
        return SpecStore(Path(place), tolerant=tolerant)
    scheme = found[1].lower()
    entries = {one.name: one for one in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if scheme not in entries:
        known = f"; installed plugins open {', '.join(map('{}://'.format, sorted(entries)))}" if entries else ""
        hint = "pip install 'morello[postgres]'" if scheme in ("postgres", "postgresql") else "give the path of a file"
        raise MorelloError(f"no installed plugin opens databases at {scheme}://", f"{hint}{known}")
    return entries[scheme].load()(place, tolerant=tolerant)


def database(given: DatabaseLike) -> SpecStore | None:
    """Return the database that a function was given. A file is made if it does not exist.

    Any failure of the default one is a NotSaved warning, after which it is not used. Raises MorelloError for another
    place that cannot be used, and for a value that is not a database.
    """
    if isinstance(given, SpecStore):
        return given
    if given is False:
        return None
    if given is not None and not isinstance(given, str | os.PathLike):
        raise MorelloError(
            f"db is {given!r}, which is not a database",
            "pass a path, an address, a SpecStore, False for none, or omit it for the default one",
        )
    place = default_place() if given is None else os.fspath(given)
    if place is None:
        return None
    if not is_address(place):
        place = os.path.abspath(os.path.expanduser(place))
    key = given is None, place
    with _opening:
        store = _open.get(key) or (_open_default(place) if given is None else open_store(place))
        if store is not None:
            _open[key] = store
    return store


def _open_default(place: str) -> SpecStore | None:
    """Return a tolerant store; None with a NotSaved warning if it cannot be used."""
    try:
        if not is_address(place):
            make_private(Path(place).parent)
        return open_store(place, tolerant=True)
    except OSError as error:
        message = f"database {place}: its folder cannot be made: {error.strerror or error}"
        fault = MorelloError(message, "set MORELLO_DB to a path that can be written, or to off")
    except MorelloError as error:
        fault = error
    warnings.warn(f"going on without a database: {fault}", NotSaved, stacklevel=2)
    return None
