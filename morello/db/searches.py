"""The searches of a target, one for each database and each set of allowed steps: they share no answers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from morello.db.store import SpecStore
from morello.ir.impl import ANY_STEPS, AllowedSteps, Leaf
from morello.ir.ops.compose import Compose
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.allowed import confined
from morello.search.progress import Progress

if TYPE_CHECKING:
    from morello.search.session import SearchSession


@attrs.define(eq=False)
class _Lent:
    """A search, its lock, and the number of uses under way."""

    session: SearchSession
    #: The last goal.
    goal: object = None
    lock: threading.RLock = attrs.field(factory=threading.RLock)
    uses: int = 0


#: Shapes of the tables that several goals share; larger ones take too much time and memory if one goal needs them.
_MOST_SHAPES = 10_000
#: The search used last by any `Searches`. Others are reset, since each holds hundreds of megabytes.
_last: weakref.ref[_Lent] | None = None
_last_lock = threading.Lock()


class Searches:
    """The searches of each database, and those without a database. Threads that use the same search take turns.

    The process keeps the tables of the search used last; another one builds its own again.
    The search for a goal begins without what those for others have solved, so that its program does not depend on
    them, unless the search is `shared`: then it begins with tables and bounds for all expected Specs. Others for
    expected Specs that differ in sizes alone use the same tables and bounds, if these are small.
    """

    def __init__(self, target: Target, shared: bool = False, expected: Iterable[Leaf] = ()):
        self.target = target
        self._shared = shared
        self._found: dict[tuple[SpecStore | None, AllowedSteps], _Lent] = {}
        self._expected = [*expected]
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Searches], tuple[Target, bool, list[Leaf]]]:
        # Another process has searches of its own.
        return Searches, (self.target, self._shared, self._expected)

    def expect(self, leaves: Iterable[Leaf]) -> None:
        """Note Specs that will be searched for, each for a goal of its own."""
        self._expected += leaves

    def of(self, store: SpecStore | None) -> SearchSession:
        """Return the search of a database by all steps, to read its state; see `using` for searching."""
        return self._of(store, ANY_STEPS).session

    @contextmanager
    def using(
        self,
        store: SpecStore | None,
        progress: Callable[[Progress], None] | None,
        leaf: Leaf,
        goal: object,
    ) -> Iterator[SearchSession]:
        """Lend the search of a database by the allowed steps of a leaf to this thread alone, for a goal.

        `progress` is called with the Specs solved by all searches of the database.
        """
        lent = self._of(store, leaf.allowed)
        search = lent.session
        with _in_use(lent):
            if lent.goal != goal and not self._shared:
                search.reset(self._alike(leaf))
                lent.goal = goal
            others = self.solved(store) - search.solved

            def report(one: Progress) -> None:
                if progress is not None:
                    progress(attrs.evolve(one, solved=one.solved + others))

            before, search.progress = search.progress, progress and report
            try:
                yield search
            finally:
                search.progress = before

    def solved(self, store: SpecStore | None) -> int:
        """Return the number of Specs that the searches of a database have solved."""
        return sum(search.solved for search in self._searches_of(store))

    def details(self, store: SpecStore | None) -> list[str]:
        """Return statistics of the searches of a database as text."""
        return [line for search in self._searches_of(store) for line in search.details()]

    def used_database(self, store: SpecStore | None) -> bool:
        """Return whether a search of a database has used a stored answer."""
        from morello.db.database_cache import DatabaseCache

        caches = [search.cache for search in self._searches_of(store)]
        return any(isinstance(cache, DatabaseCache) and cache.used for cache in caches)

    def _alike(self, leaf: Leaf) -> list[LogicalSpec]:
        """Return the expected Specs that differ from one in sizes alone, or nothing where their tables are large.

        Small tables have the same bounds as those of one Spec; of a Compose, the number of shapes is not known.
        """
        from morello.search.incumbents import shapes_below

        def kind(one: Leaf) -> object:
            logical = one.spec.logical
            return one.allowed, one.spec.limits, logical.op, logical.states, logical.serial, len(logical.shape)

        alike = [one.spec.logical for one in self._expected if kind(one) == kind(leaf)]
        large = isinstance(leaf.spec.op.without_constants, Compose)
        large = large or sum(shapes_below(one, self.target) for one in alike) > _MOST_SHAPES
        return [] if large or leaf.spec.logical not in alike else alike

    def _searches_of(self, store: SpecStore | None) -> list[SearchSession]:
        with self._lock:
            return [lent.session for (kept, _), lent in self._found.items() if kept is store]

    def _of(self, store: SpecStore | None, allowed: AllowedSteps) -> _Lent:
        # Imported late, since that takes long, and a stored program needs no search.
        from morello.db.database_cache import DatabaseCache
        from morello.search.session import SearchSession

        with self._lock:
            if (store, allowed) not in self._found:
                cache = None if store is None else DatabaseCache(store)
                session = SearchSession(confined(self.target, allowed), cache=cache)
                if self._shared:
                    session.reset(one.spec.logical for one in self._expected)
                self._found[store, allowed] = _Lent(session)
            return self._found[store, allowed]


@contextmanager
def _in_use(lent: _Lent) -> Iterator[None]:
    """Hold a search; first reset the one used before it, unless that is in use."""
    global _last
    with _last_lock:
        before, _last = _last and _last(), weakref.ref(lent)
    if before and before is not lent and before.lock.acquire(blocking=False):
        try:
            if not before.uses:
                before.session.reset()
        finally:
            before.lock.release()
    with lent.lock:
        lent.uses += 1
        try:
            yield
        finally:
            lent.uses -= 1
