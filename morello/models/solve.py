"""Kernels of a plan: each distinct Spec is solved once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.api.pipeline import goal_from, kernel_of
from morello.db.default import DatabaseLike, database
from morello.kernels.target import Target
from morello.models.plan import Plan
from morello.search.budget import SearchBudget

#: The expansions that the searches of a model share by default.
EXPANSIONS = 12_000_000
#: The fewest expansions of a search.
_LEAST = 400_000


def goals_of(plan: Plan, name: str, target: Target) -> Mapping[str, Goal]:
    """Return the goals of the distinct Specs of a plan, by text, in the order of their first calls."""
    found: dict[str, Goal] = {}
    for call in plan.calls:
        text = call.written.text
        if text not in found:
            stem = "_".join(re.sub(r"\W", "", node.op.lower(), flags=re.ASCII) for node in call.step.nodes[:3])
            made = goal_from(text, target)
            found[text] = attrs.evolve(made, name=f"{name}_{len(found)}_{stem}")
    return found


def solved(
    goals: Sequence[Goal], db: DatabaseLike = None, expansions: int = EXPANSIONS, jobs: int = 1, cc: str | None = None
) -> list[Kernel]:
    """Return the kernels of goals, whose searches share `expansions`, each by its share of the work."""
    store = database(db)
    work = [one.spec.logical.flops for one in goals]
    total = sum(work) or 1
    made = []
    for one, each in zip(goals, work, strict=True):
        share = max(_LEAST, int(expansions * each / total))
        budget = attrs.evolve(SearchBudget.default(), expansions=share)
        made.append(one.synthesize(store or False, None, budget))
    return [kernel_of(one, cc) for one in made]
