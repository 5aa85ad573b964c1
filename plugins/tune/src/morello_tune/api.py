"""`tune`: make a program faster, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from morello.api import goal_from
from morello.db.default import DatabaseLike, database
from morello.goals import Goal
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.profile_choice import ProfileLike
from morello.search.budget import SearchBudget
from morello_tune.beam import BeamOptions
from morello_tune.proposers import proposer as named
from morello_tune.tuner import Tuner, TuningResult, check_options


def tune(
    what: str | os.PathLike[str] | Spec | Goal,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    proposer: str = "offline",
    beam: int = 6,
    plans: int = 6,
    implementations: int = 2,
    iterations: int = 10,
    dropout: float = 0.7,
    samples: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    db: DatabaseLike = None,
    reuse: DatabaseLike = False,
    trace: str | os.PathLike[str] | None = None,
    cc: str | None = None,
    threads: int | None = None,
    budget: SearchBudget | None = None,
    options: Mapping[str, Any] | None = None,
) -> TuningResult:
    """Return the fastest program found by measuring edits of a schedule, which `proposer` plans.

    It begins with the program that `compile` would give without measurements. Sizes are those of the beam search: it
    ends after `iterations`, or so many `samples` or `seconds`. `reuse` is a database of Specs that were tuned: what
    paid there is tried first. Results are appended to the file `trace` as they come, and the best program is kept in
    `db` as measured. `options` are those of the proposer. Raises what `compile` raises, and MorelloError for options
    that make no search.
    """
    goal = goal_from(what, target, profile)
    sizes = BeamOptions(
        beam=beam,
        plans=plans,
        implementations=implementations,
        iterations=iterations,
        dropout=dropout,
        samples=samples,
        seconds=seconds,
        seed=seed,
    )
    check_options(sizes)
    return Tuner(
        goal=goal,
        proposer=named(proposer, goal.target.name),
        options=sizes,
        db=database(db),
        reuse=database(reuse),
        trace=os.fspath(trace) if trace is not None else None,
        compiler=cc,
        threads=threads,
        budget=budget,
        extra=options or {},
    ).run()
