"""Searches for several goals at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.synchronize import Semaphore

import attrs

from morello.api.goals import Goal, prepare, warn_of_memory
from morello.db.default import DatabaseLike, database
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import MemoryLimited, MorelloError, NoImplementation, Undecided
from morello.interrupt import result_of
from morello.ir.impl import leaves
from morello.kernels.target import Target
from morello.progress import Spinner
from morello.search.budget import SearchBudget


def synthesize_all(goals: Sequence[Goal], db: SpecStore | None, budget: SearchBudget, jobs: int) -> list[Goal]:
    """Return the goals with the programs that up to `jobs` searches at once find, which share the budget's memory.

    With one job or one goal, return the goals as they are. Searches of a process share tables, also later ones. Raises
    what `Goal.synthesize` raises, for the first goal that fails, and leaves no process behind.
    """
    jobs = min(jobs, len(goals))
    for goal in goals:
        goal.searches.expect(leaves(goal.impl))
    prepare(goals, db)
    if jobs == 1:
        return [*goals]
    if budget.memory is not None:
        budget = attrs.evolve(budget, memory=budget.memory // jobs)
    # The threads of progress displays do not survive a fork.
    context = multiprocessing.get_context("spawn")
    ready = context.Semaphore(0)
    with (
        Spinner(f"searching {len(goals)} Specs, {jobs} at once", "the searches"),
        ProcessPoolExecutor(jobs, context, _start, (_source(db), ready)) as pool,
    ):
        try:
            with _unchanged(db):
                waiting = [pool.submit(_search, goal, budget) for goal in goals]
                _await(ready, jobs, waiting)
            return [_result(goal, one) for goal, one in zip(goals, waiting, strict=True)]
        except BrokenProcessPool as error:
            raise MorelloError(
                "the system ended a process of --jobs, most likely for lack of memory",
                "run fewer at once, or give them less memory",
            ) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _source(db: SpecStore | None) -> DatabaseLike:
    """Return what opens a database in another process, where failures of the default one are warnings, too."""
    return False if db is None or db.failed else None if db.tolerant else db.address


@contextmanager
def _unchanged(db: SpecStore | None) -> Generator[None]:
    """Keep other processes from writing within a block, so that all workers see the same state of the file."""
    with ExitStack() as stack:
        # Without the right to write, the file is read as it is.
        with suppress(MorelloError):
            if db and not db.failed:
                stack.enter_context(db.file.writing())
        yield


def _await(ready: Semaphore, jobs: int, waiting: Sequence[Future[Goal]]) -> None:
    """Wait until all workers see the database, or one has failed."""
    for _ in range(jobs):
        while not ready.acquire(timeout=0.05):
            if any(one.done() and (one.cancelled() or one.exception()) for one in waiting):
                return


#: The searches of this process, its database, and what closes its snapshot.
_searches: dict[Target, Searches] = {}
_db: SpecStore | None = None
_open = ExitStack()


def _start(source: DatabaseLike, ready: Semaphore) -> None:
    """Start a worker, which ends when its parent does, however that ends. Its searches see one state of the file."""
    global _db
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
    _db = database(source)
    if _db:
        _open.enter_context(_db.snapshot())
    ready.release()


def _search(goal: Goal, budget: SearchBudget) -> Goal:
    # The parent warns.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryLimited)
        goal = attrs.evolve(goal, searches=_searches.setdefault(goal.target, goal.searches))
        return goal.synthesize(_db or False, False, budget)


def _result(goal: Goal, found: Future[Goal]) -> Goal:
    """Return the result of a process, with the searches of this process."""
    try:
        done = attrs.evolve(result_of(found), searches=goal.searches)
    except (NoImplementation, Undecided) as error:
        raise type(error)(f"{goal.name}: {error.message}", error.hint) from error
    if done.memory_reached:
        warn_of_memory(goal.name)
    return done
