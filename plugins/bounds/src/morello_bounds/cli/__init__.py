"""The commands of morello-bounds, one a module, and the lines and options that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from morello.api.goals import Goal
from morello.cli.kernels import print_sizes


def print_head(goal: Goal) -> None:
    """Print the name of a goal, its target and Spec, and the sizes of its tensors."""
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    print_sizes(goal)


def facts_of(goal: Goal) -> dict[str, Any]:
    """Return the JSON facts of a goal: name, target, profile and Spec."""
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": goal.plain.text(goal.spec.logical),
    }


def seed_option(text: str) -> Callable[[Any], Any]:
    """Return the option --seed."""
    return click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help=f"{text}  [default: 0]")
