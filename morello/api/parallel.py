"""Many searches at once: tasks on an executor, by default of processes of this machine."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import signal
import threading
import warnings
from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any

import attrs

from morello.api.goals import Goal, prepare, warn_of_memory
from morello.db.default import DatabaseLike, database
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import MemoryLimited, MorelloError, NoImplementation, Undecided
from morello.interrupt import completed, result_of
from morello.ir.impl import leaves
from morello.kernels.target import Target
from morello.progress import Spinner
from morello.search.budget import SearchBudget

#: The entry point group of plugins that run searches on a cluster. A name is that of a scheduler, or the scheme of its
#: address; its value is a function of what --scheduler and --jobs give, which returns Workers.
ENTRY_POINTS = "morello.schedulers"
#: The most workers that die of one task.
_ATTEMPTS = 3


class Workers(Executor):
    """An executor of searches. A task whose workers died, several in turn, has an error of type `died`."""

    died: type[Exception]

    @abstractmethod
    def count(self) -> int:
        """Return the number of workers now; before the first task, that of workers to make tasks for."""


class Processes(Workers):
    """Spawned processes, each of which ends with its parent; those that die are replaced, and try their task again.

    Each calls `start` first. A task that `attempts` processes die of fails with BrokenProcessPool.
    """

    died = BrokenProcessPool

    def __init__(self, jobs: int, attempts: int = _ATTEMPTS, start: Callable[..., object] = os.getpid, *args: object):
        self._jobs, self._attempts, self._start = jobs, attempts, (start, *args)
        self._threads = ThreadPoolExecutor(jobs)
        # Pools of one process each, so that a process takes no task but its own with it.
        self._free: SimpleQueue[ProcessPoolExecutor | None] = SimpleQueue()
        #: The number of processes that have begun.
        self.begun = 0
        for pool, started in [self._pool() for _ in range(jobs)]:
            # A task that gets a process which has died begins again in another one.
            with suppress(BrokenProcessPool):
                result_of(started)
                self.begun += 1
            self._free.put(pool)

    def count(self) -> int:
        return self._jobs

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._threads.submit(self._run, self._attempts, fn, *args, **kwargs)

    def _run(self, attempts: int, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        pool = self._free.get() or self._pool()[0]
        try:
            return pool.submit(fn, *args, **kwargs).result()
        except BrokenProcessPool:
            # Its thread would meet the end of this process.
            pool.shutdown()
            pool = None
            if attempts == 1 or not self._jobs:
                raise
        finally:
            self._free.put(pool)
        return self._run(attempts - 1, fn, *args, **kwargs)

    def _pool(self) -> tuple[ProcessPoolExecutor, Future[object]]:
        # The threads of progress displays do not survive a fork.
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _follow_parent)
        return pool, pool.submit(*self._start)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind:
            self._jobs = 0
            self._threads.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
        self._threads.shutdown()
        while not self._free.empty():
            if pool := self._free.get():
                pool.shutdown()


def _follow_parent() -> None:
    """End this process when its parent ends, however that ends; the parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def cluster(scheduler: str) -> Callable[[int | None], Workers]:
    """Return what makes the workers of a scheduler, a name or an address, of the number of those that it may start.

    Raises MorelloError without a plugin for the scheduler.
    """
    found = {one.name: one for one in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    entry = found.get(scheduler.partition("://")[0])
    if entry is None:
        known = f"installed are {', '.join(sorted(found))}" if found else "pip install 'morello[cluster]'"
        raise MorelloError(f"no installed plugin has the scheduler {scheduler}", known)
    return partial(entry.load(), scheduler)


def expect(goals: Sequence[Goal], db: SpecStore | None) -> list[Goal]:
    """Return goals that will be searched for; their searches share tables, and the database is prepared for them."""
    for goal in goals:
        goal.searches.expect(leaves(goal.impl))
    prepare(goals, db)
    return [*goals]


def synthesize_all(
    goals: Sequence[Goal],
    db: SpecStore | None,
    budget: SearchBudget | Sequence[SearchBudget],
    jobs: int,
    done: Callable[[int, Goal], object] | None = None,
) -> list[Goal]:
    """Return the goals with the programs that up to `jobs` searches at once find, in the order given.

    `budget` is that of each search, or a list with one for each goal: its `seconds` count from the start of the goal's
    own search, its `memory` is shared by all searches. With budgets of expansions, programs do not depend on `jobs`.
    `done` is called in this thread with index and result of each goal as it is done; without it, a display shows
    progress. Raises what `Goal.synthesize` raises, for the first goal that fails. No process outlives the call, also
    after Ctrl-C, which raises KeyboardInterrupt; `done` has had the results until then.

        budgets = [SearchBudget(seconds=90 * share, memory=4 << 30, accepts_stored=True) for share in shares]
        solved = api.synthesize_all(goals, api.database(None), budgets, 2, lambda at, goal: print(at, goal.proof))
    """
    jobs, goals, found = min(jobs, len(goals)), expect(goals, db), dict[int, Goal]()
    budgets = [budget] * len(goals) if isinstance(budget, SearchBudget) else budget
    with ExitStack() as stack:
        if done is None:
            stack.enter_context(Spinner(f"searching {len(goals)} Specs, {jobs} at once", "the searches"))
        results = _in_processes(goals, db, budgets, jobs) if jobs > 1 else _in_turn(goals, db, budgets)
        for at, goal in stack.enter_context(closing(results)):
            found[at] = goal
            if done:
                done(at, goal)
    return [found[at] for at in range(len(goals))]


def _in_turn(
    goals: Sequence[Goal], db: SpecStore | None, budgets: Sequence[SearchBudget]
) -> Generator[tuple[int, Goal]]:
    for at, (goal, budget) in enumerate(zip(goals, budgets, strict=True)):
        yield at, _result(goal, partial(_quietly, goal, db, budget))


def _in_processes(
    goals: Sequence[Goal], db: SpecStore | None, budgets: Sequence[SearchBudget], jobs: int
) -> Generator[tuple[int, Goal]]:
    """Yield index and result of each goal as it is done; on errors, raise that of the first goal that fails."""
    budgets = [attrs.evolve(one, memory=one.memory and one.memory // jobs) for one in budgets]
    with ExitStack() as stack:
        with _unchanged(db):
            # A process that replaced another would see another state of the file.
            pool = stack.enter_context(Processes(jobs, 1, _start, _source(db)))
        if not pool.begun:
            raise MorelloError(
                "no process of --jobs has begun: each imports the script that starts it, which starts others then",
                'write `if __name__ == "__main__":` above what the script does',
            )
        waiting = {pool.submit(_search, *each): at for at, each in enumerate(zip(goals, budgets, strict=True))}
        for one in completed(waiting):
            if isinstance(error := one.exception(), pool.died):
                raise MorelloError(
                    "the system ended a process of --jobs, most likely for lack of memory",
                    "run fewer at once, or give them less memory",
                ) from error
            if error:
                break
            yield waiting[one], _result(goals[waiting[one]], one.result)
        else:
            return
        for one, at in waiting.items():
            _result(goals[at], partial(result_of, one))


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


#: The searches of this process, its database, and what closes its snapshot.
_searches: dict[Target, Searches] = {}
_db: SpecStore | None = None
_open = ExitStack()


def _start(source: DatabaseLike) -> None:
    """Open the database of a worker, whose searches see one state of the file."""
    global _db
    _db = database(source)
    if _db:
        _open.enter_context(_db.snapshot())


def _search(goal: Goal, budget: SearchBudget) -> Goal:
    return _quietly(attrs.evolve(goal, searches=_searches.setdefault(goal.target, goal.searches)), _db, budget)


def _quietly(goal: Goal, db: SpecStore | None, budget: SearchBudget) -> Goal:
    """Search without warnings of memory: `_result` warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MemoryLimited)
        return goal.synthesize(db or False, False, budget)


def _result(goal: Goal, get: Callable[[], Goal]) -> Goal:
    """Return the result of a search, with the searches of this process. Errors name the goal."""
    try:
        done = attrs.evolve(get(), searches=goal.searches)
    except (NoImplementation, Undecided) as error:
        raise type(error)(f"{goal.name}: {error.message}", error.hint) from error
    if done.memory_reached:
        warn_of_memory(goal.name)
    return done
