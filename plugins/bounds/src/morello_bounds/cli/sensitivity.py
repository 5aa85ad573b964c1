"""`morello bound --sensitivity`: the sizes, memories and prices, or the tiles, that determine the cost of moves."""

from __future__ import annotations

from collections.abc import Sequence

import click

from morello.api.goals import Goal
from morello.cli.common import facts_of, print_json, print_sizes
from morello.report.tables import Column, print_table
from morello_bounds.sensitivity import MovesModel, of_bound, of_tiles, sobol_indices

MODELS = {"bound": of_bound, "tiles": of_tiles}
_COLUMNS = [
    Column("input"),
    Column("kind", spare=2),
    Column("alone", number=True),
    Column("±", number=True, spare=1),
    Column("in all", number=True),
    Column("±", number=True, spare=1),
]


def print_sensitivity(goals: Sequence[Goal], model: str, samples: int, seed: int, as_json: bool) -> None:
    """Print a table of Sobol's indices for each goal, the largest total index first."""
    found = [
        (goal, sobol_indices(*MODELS[model](MovesModel.of(goal.spec, goal.target)), samples, seed)) for goal in goals
    ]
    if as_json:
        how = {"of": model, "samples": samples, "seed": seed}
        print_json([{**facts_of(goal), **how, "inputs": [one.as_dict() for one in rows]} for goal, rows in found])
        return
    for goal, rows in found:
        click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
        print_sizes(goal)
        cells = [
            (one.input.name, one.input.kind, *map(_percent, (one.first, one.first_error, one.total, one.total_error)))
            for one in sorted(rows, key=lambda one: -one.total)
        ]
        print_table(_COLUMNS, cells)
        click.echo()


def _percent(share: float) -> str:
    # Estimates of an index of 0 may be slightly negative.
    return f"{100 * max(0.0, share):.0f} %"
