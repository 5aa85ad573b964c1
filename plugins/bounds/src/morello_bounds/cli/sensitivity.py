"""`morello sensitivity`: which sizes, memories and prices, or which choices of tiles, decide what moving costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from morello.cli.common import facts_of, json_option, print_json, tell_sizes, with_specs
from morello.goals import Goal
from morello.report.tables import Column, print_table
from morello_bounds.sensitivity import Index, Moving, indices, of_bound, of_tiles

_MODELS = {"bound": of_bound, "tiles": of_tiles}
_COLUMNS = [
    Column("input"),
    Column("kind", spare=2),
    Column("alone", number=True),
    Column("±", number=True, spare=1),
    Column("in all", number=True),
    Column("±", number=True, spare=1),
]


@click.command("sensitivity")
@with_specs
@click.option(
    "--of",
    "model",
    type=click.Choice([*_MODELS]),
    default="bound",
    help="The result: what moving costs at least, or what it costs in tiles of random sizes and orders."
    "  [default: bound]",
)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=2),
    default=256,
    help="A power of two; there are N times as many results as there are inputs, and a few more.  [default: 256]",
)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of the samples.  [default: 0]")
@json_option
def command(goals: Sequence[Goal], model: str, samples: int, seed: int, as_json: bool) -> None:
    """Show what the cost of moving depends on for the Specs of FILE, by Sobol's indices.

    \b
    bound  the least that moves cost which take as many bytes across each boundary as any program has to; sizes of
           loops, bytes of memory and prices of levels vary between half and twice what they are
    tiles  the same for the bytes that tiles move; at each boundary the sizes of tiles are to each other as they
           come, as large as fits, and any loop may be the one along which they go on first
    alone  the share of the variance that one input has, whatever the others are
    in all the same with what it has together with others
    ±      how far both may be off, with 95 % confidence

    The variance is that of the logarithm of the cost: a factor of two is the same everywhere.
    """
    found = [(goal, indices(*_MODELS[model](Moving.of(goal.spec, goal.target)), samples, seed)) for goal in goals]
    if as_json:
        print_json([_as_dict(goal, model, samples, seed, rows) for goal, rows in found])
        return
    for goal, rows in found:
        click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
        tell_sizes(goal)
        print_table(_COLUMNS, [_row(one) for one in sorted(rows, key=lambda one: -one.total)])
        click.echo()


def _row(one: Index) -> list[str]:
    values = (one.first, one.first_error, one.total, one.total_error)
    # A negative share is one of nothing, within the error.
    return [one.input.name, one.input.kind, *(f"{100 * max(0.0, value):.0f} %" for value in values)]


def _as_dict(goal: Goal, model: str, samples: int, seed: int, rows: Sequence[Index]) -> dict[str, Any]:
    return {
        **facts_of(goal),
        "of": model,
        "samples": samples,
        "seed": seed,
        "inputs": [
            {
                "name": one.input.name,
                "kind": one.input.kind,
                "alone": one.first,
                "alone_error": one.first_error,
                "in_all": one.total,
                "in_all_error": one.total_error,
            }
            for one in rows
        ],
    }
