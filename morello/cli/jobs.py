"""Searches for several Specs at once, each in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

import attrs
import click

from morello.api.goals import Goal
from morello.cli.common import budget_of, named_after
from morello.db.store import SpecStore
from morello.interrupt import result_of
from morello.progress import Spinner
from morello.search.budget import SearchBudget

jobs_option = click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    default=1,
    help="Search for up to N Specs at once, in processes that share the memory that --memory grants.  [default: 1]",
)


def searched(goals: Sequence[Goal], db: SpecStore | None, jobs: int) -> list[Goal]:
    """Return the goals with what search finds for them, as they come with `jobs` of 1, where they are left open.

    Raises what `Goal.synthesize` raises, for the first goal that fails, and leaves no process behind.
    """
    jobs = min(jobs, len(goals))
    if jobs == 1:
        return [*goals]
    budget = budget_of(click.get_current_context())
    if budget.memory is not None:
        budget = attrs.evolve(budget, memory=budget.memory // jobs)
    # Threads, of progress among them, do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with (
        Spinner(f"searching {len(goals)} Specs, {jobs} at once", "the searches"),
        ProcessPoolExecutor(jobs, context) as pool,
    ):
        try:
            waiting = [pool.submit(_search, goal, db.path if db else None, budget) for goal in goals]
            return [_result(goal, one) for goal, one in zip(goals, waiting, strict=True)]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.terminate()
            raise


def _search(goal: Goal, db: Path | None, budget: SearchBudget) -> Goal:
    return goal.synthesize(db=db or False, progress=False, budget=budget)


def _result(goal: Goal, found: Future[Goal]) -> Goal:
    with named_after(goal):
        # Searches, and what they know, stay with the goal of this process.
        return attrs.evolve(result_of(found), searches=goal.searches)
