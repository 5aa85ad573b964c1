"""Searches for several goals at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import attrs

from morello.api.goals import Goal
from morello.db.store import SpecStore
from morello.errors import MorelloError, NoImplementation, Undecided
from morello.interrupt import result_of
from morello.progress import Spinner
from morello.search.budget import SearchBudget


def synthesize_all(goals: Sequence[Goal], db: SpecStore | None, budget: SearchBudget, jobs: int) -> list[Goal]:
    """Return the goals with the programs that up to `jobs` searches at once find, which share the budget's memory.

    With one job or one goal, return the goals as they are. Raises what `Goal.synthesize` raises, for the first goal
    that fails, and leaves no process behind.
    """
    jobs = min(jobs, len(goals))
    if jobs == 1:
        return [*goals]
    if budget.memory is not None:
        budget = attrs.evolve(budget, memory=budget.memory // jobs)
    # The threads of progress displays do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with (
        Spinner(f"searching {len(goals)} Specs, {jobs} at once", "the searches"),
        ProcessPoolExecutor(jobs, context, _end_with_parent) as pool,
    ):
        try:
            waiting = [pool.submit(_search, goal, db.path if db else None, budget) for goal in goals]
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


def _end_with_parent() -> None:
    """Let this process end when its parent does, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _search(goal: Goal, db: Path | None, budget: SearchBudget) -> Goal:
    return goal.synthesize(db=db or False, progress=False, budget=budget)


def _result(goal: Goal, found: Future[Goal]) -> Goal:
    """Return the result of a process, with the searches of this process."""
    try:
        return attrs.evolve(result_of(found), searches=goal.searches)
    except (NoImplementation, Undecided) as error:
        raise type(error)(f"{goal.name}: {error.message}", error.hint) from error
