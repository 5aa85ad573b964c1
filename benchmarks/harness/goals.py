"""Goals of the Specs that are searched for, for benchmarks that begin with one."""

from __future__ import annotations

from harness.specs import SPECS
from morello import api
from morello.api.goals import Goal


def goal_of(name: str, target: str) -> Goal:
    """Return the goal of a Spec of the harness, or of a text, for a target."""
    if name in SPECS:
        spec, chosen = SPECS[name].for_target(target)
        return Goal.of(spec, chosen, "searched")
    return api.goal(name, target=target, cpu="native")
