"""`morello front`: the programs that trade computing for memory, and the schedule of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from morello import api
from morello.api.goals import Goal
from morello.cli.common import SearchOptions, json_option, print_json, with_goals, with_steps
from morello.cli.kernels import named_after
from morello.errors import MorelloError
from morello.report.tables import Column, print_table
from morello_bounds.certificate import sides
from morello_bounds.cli import facts_of, print_head
from morello_bounds.front import STEEPEST, FrontPoint, front
from morello_bounds.traffic import program_traffic


@click.command("front")
@with_goals
@with_steps
@click.option(
    "--point",
    "number",
    metavar="N",
    type=click.IntRange(min=1),
    help="Print a Spec file with the schedule of this point instead, for other commands.",
)
@json_option
def command(goals: Sequence[Goal], search: SearchOptions, number: int | None, as_json: bool) -> None:
    """Show the programs of FILE that trade computing for memory: points of the Pareto front of both costs.

    \b
    compute   cost of kernels that compute, with operands in the fastest cache, and of starting threads
    memory    the rest: cost of moves, and what operands farther away cost kernels
    cost      the sum, as in `morello explain`
    of least  cost divided by that of the cheapest program
    A ⇄ B     bytes moved between these levels: see `morello bound`

    Each point is proven to have the least sum for some weights of the two costs, so no program beats it in both. Those
    above the lines from point to point are not shown: they have the least sum for no weights.
    """
    if number is not None and as_json:
        raise click.UsageError("--point and --json exclude each other")
    found: list[tuple[Goal, list[FrontPoint]]] = []
    for goal in goals:
        with named_after(goal):
            found.append((goal, front(goal, search.db or False, search.budget)))
        if number is None and not as_json:
            _print(*found[-1])
    if number is not None:
        click.echo(api.spec_file([_at(points, number, goal.name) for goal, points in found]), nl=False)
    elif as_json:
        print_json([{**facts_of(goal), "points": [*map(_facts, points)]} for goal, points in found])


def _at(points: Sequence[FrontPoint], number: int, name: str) -> Goal:
    """Return the program of a point. Raises MorelloError if there are fewer."""
    if number > len(points):
        raise MorelloError(f"{name} has no point {number}", f"its points are 1 to {len(points)}; --spec chooses a Spec")
    return points[number - 1].goal


def _moved(point: FrontPoint) -> dict[str, int]:
    """Return the bytes that a program moves at each boundary, by name."""
    goal, levels = point.goal, point.goal.target.levels
    return {
        f"{levels[at].name} ⇄ {levels[at - 1].name}": program_traffic(goal.impl, goal.target, at)
        for at in sides(goal.spec, goal.target)
    }


def _facts(point: FrontPoint) -> dict[str, Any]:
    goal = point.goal
    costs = {"compute": point.compute, "memory": point.memory, "cost": point.cost}
    return {**costs, "bytes": _moved(point), "schedule": goal.schedule.splitlines()}


def _print(goal: Goal, points: Sequence[FrontPoint]) -> None:
    """Print a table of the points of a goal."""
    least = min(point.cost for point in points)
    moved = [_moved(point) for point in points]
    columns = [Column(name, number=True) for name in ("point", "compute", "memory", "cost", "of least")]
    columns += [Column(name, number=True, spare=at + 1) for at, name in enumerate(moved[0])]
    rows = [
        [
            str(number),
            *(f"{one:,}" for one in (point.compute, point.memory, point.cost)),
            f"{point.cost / least:.2f}",
            *(f"{one:,}" for one in own.values()),
        ]
        for number, (point, own) in enumerate(zip(points, moved, strict=True), 1)
    ]
    print_head(goal)
    print_table(columns, rows)
    click.echo(f"proven: each is the cheapest for some weights of compute and memory, up to {STEEPEST}:1\n")
