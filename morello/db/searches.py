"""The searches of a target, one for each database: answers found with one are not stored in another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from morello.db.store import SpecStore
from morello.kernels.target import Target
from morello.search.progress import Progress

if TYPE_CHECKING:
    from morello.search.session import SearchSession


class Searches:
    """The search of each database, and one without a database. Threads that use the same search take turns."""

    def __init__(self, target: Target):
        self.target = target
        self._found: dict[SpecStore | None, tuple[SearchSession, threading.RLock]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Searches], tuple[Target]]:
        # Another process has searches of its own.
        return Searches, (self.target,)

    def of(self, store: SpecStore | None) -> SearchSession:
        """Return the search of a database, to read its state; see `using` for searching."""
        return self._of(store)[0]

    @contextmanager
    def using(
        self, store: SpecStore | None, progress: Callable[[Progress], None] | None = None
    ) -> Iterator[SearchSession]:
        """Lend the search of a database to this thread alone, with a callback for its progress."""
        search, lock = self._of(store)
        with lock:
            before, search.progress = search.progress, progress
            try:
                yield search
            finally:
                search.progress = before

    def solved(self, store: SpecStore | None) -> int:
        """Return the number of Specs that the search of a database has solved."""
        return self._of(store)[0].solved if store in self._found else 0

    def used_database(self, store: SpecStore | None) -> bool:
        """Return whether the search of a database has used a stored answer."""
        from morello.db.database_cache import DatabaseCache

        cache = self.of(store).cache
        return isinstance(cache, DatabaseCache) and cache.used

    def _of(self, store: SpecStore | None) -> tuple[SearchSession, threading.RLock]:
        # Imported late, since that takes long, and a stored program needs no search.
        from morello.db.database_cache import DatabaseCache
        from morello.search.session import SearchSession

        with self._lock:
            if store not in self._found:
                cache = None if store is None else DatabaseCache(store)
                self._found[store] = SearchSession(self.target, cache=cache), threading.RLock()
            return self._found[store]
