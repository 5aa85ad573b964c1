"""`tune`: make a program faster, from Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import attrs

from morello.api import goal_from
from morello.api.goals import Goal
from morello.db.default import DatabaseLike, database
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.profile_choice import ProfileLike
from morello.search.budget import SearchBudget
from morello_tune.beam import BeamOptions
from morello_tune.proposers import proposer as proposer_named
from morello_tune.tuner import Tuner, TuningResult


@attrs.frozen(kw_only=True)
class TuningOptions(BeamOptions):
    """The options of `morello tune`: the sizes of the beam search, what plans, and where results go.

    Items that paid for similar Specs in the database `reuse` are tried first. Every result is appended to the file
    `trace`. `budget` is for the search of the first program, `proposer_options` are those of the proposer.
    """

    proposer: str = "offline"
    reuse: DatabaseLike = False
    trace: str | os.PathLike[str] | None = None
    cc: str | None = None
    threads: int | None = None
    budget: SearchBudget | None = None
    proposer_options: Mapping[str, Any] = attrs.field(factory=dict[str, Any])


def tune(
    what: str | os.PathLike[str] | Spec | Goal,
    options: TuningOptions | None = None,
    *,
    target: str | Target | None = None,
    profile: ProfileLike | None = None,
    db: DatabaseLike = None,
) -> TuningResult:
    """Return the fastest program found by measuring edits of a schedule. It is stored in `db` as measured.

    The first program is that of `compile` with `measured=False`. `what`, `target` and `profile` are those of
    `morello.synthesize`. Raises what `compile` raises, and MorelloError for an unknown proposer.
    """
    goal, options = goal_from(what, target, profile), options or TuningOptions()
    return Tuner(
        goal=goal,
        proposer=proposer_named(options.proposer, goal.target.name),
        options=options,
        db=database(db),
        reuse=database(options.reuse),
        trace=None if options.trace is None else os.fspath(options.trace),
        compiler=options.cc,
        threads=options.threads,
        budget=options.budget,
        extra=options.proposer_options,
    ).run()
