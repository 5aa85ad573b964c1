"""Searches of a target, one for each database: what is solved with one is not written to another."""

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
    """Hands out the search that goes with a database, and one that goes with none.

    May be used by several threads: those that want the same search take turns, others do not meet.
    """

    def __init__(self, target: Target):
        self.target = target
        self._found: dict[SpecStore | None, tuple[SearchSession, threading.RLock]] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Searches], tuple[Target]]:
        # Another process searches for itself.
        return Searches, (self.target,)

    def of(self, store: SpecStore | None) -> SearchSession:
        """Return the search that goes with a database, for what it tells of itself; `using` lends it for more."""
        return self._of(store)[0]

    @contextmanager
    def using(
        self, store: SpecStore | None, progress: Callable[[Progress], None] | None = None
    ) -> Iterator[SearchSession]:
        """Lend the search that goes with a database to this thread alone, which `progress` hears of meanwhile."""
        search, lock = self._of(store)
        with lock:
            before, search.progress = search.progress, progress
            try:
                yield search
            finally:
                search.progress = before

    def solved(self, store: SpecStore | None) -> int:
        """Return how many Specs the search that goes with a database has solved so far."""
        return self._of(store)[0].solved if store in self._found else 0

    def was_told(self, store: SpecStore | None) -> bool:
        """Return whether a database has told its search anything."""
        from morello.db.database_cache import DatabaseCache

        cache = self.of(store).cache
        return isinstance(cache, DatabaseCache) and cache.used

    def _of(self, store: SpecStore | None) -> tuple[SearchSession, threading.RLock]:
        # Not before, as importing search takes long, and a program that is stored needs none.
        from morello.db.database_cache import DatabaseCache
        from morello.search.session import SearchSession

        with self._lock:
            if store not in self._found:
                cache = None if store is None else DatabaseCache(store)
                self._found[store] = SearchSession(self.target, cache=cache), threading.RLock()
            return self._found[store]
