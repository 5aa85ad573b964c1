"""start: Verify the programs of FILE thoroughly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from morello import api
from morello.cli.common import (
    SearchOptions,
    cc_option,
    json_option,
    measured_option,
    print_json,
    runner_option,
    seed_option,
    with_goals_of_sizes,
    with_steps,
)
from morello.cli.kernels import make, print_compiler, print_sizes
from morello.errors import VerificationError
from morello.progress import Spinner
from morello.report.tables import Column, print_table


@click.command("check")
@with_goals_of_sizes
@with_steps
@seed_option
@cc_option
@runner_option
@measured_option
@json_option
@click.pass_context
def command(ctx: click.Context, goals: Sequence[api.Goal], search: SearchOptions, seed: int, as_json: bool) -> None:
    """Verify the programs of FILE thoroughly.

    Each runs on random and on hard data (cancellation, infinities, subnormals, ...) and is compared with numpy and
    plain C. Errors are fractions of the bound of rounding errors. The exit status is 1 if any result is wrong; the
    other Specs are still checked.
    """
    search.check_tools(goals)
    checked = [_check(goal, search, seed, quiet=as_json) for goal in goals]
    if as_json:
        print_json(checked)
    if not all(one["passed"] for one in checked):
        ctx.exit(1)


def _check(goal: api.Goal, search: SearchOptions, seed: int, quiet: bool) -> dict[str, Any]:
    """Check one goal, print the result unless `quiet`, and return it for JSON."""
    kernel = make(goal, search).kernel
    print_compiler(kernel, search)
    head = {
        "spec": goal.name,
        "target": goal.target.full_name,
        "profile": goal.target.profile,
        "compiler": str(kernel.compiler),
        "runner": str(kernel.runner) if kernel.runner else None,
        "seed": seed,
    }
    try:
        with Spinner(f"verifying {goal.name}"):
            report = kernel.check(seed, thorough=True)
    except VerificationError as error:
        click.echo(f"error: {error}", err=True)
        return {**head, "passed": False, "error": error.message, "results": []}
    if not quiet:
        _print(report, goal)
    results = [{"data": one.name, "error": one.error, "from_reference": one.reference} for one in report.results]
    return {**head, "passed": True, "error": None, "results": results}


def _print(report: api.CheckReport, goal: api.Goal) -> None:
    click.echo(f"{report.kernel}: {report.operation} for {report.target}, {report.compiler}, seed {report.seed}")
    print_sizes(goal)
    columns = [
        Column("data set"),
        Column("error / bound", number=True),
        Column(f"from {api.REFERENCE_NAME}", number=True),
    ]
    distances = ["–" if one.reference is None else f"{one.reference:.3f}" for one in report.results]
    rows = [(one.name, f"{one.error:.3f}", far) for one, far in zip(report.results, distances, strict=True)]
    print_table(columns, rows)
    click.echo(f"passed: the largest error is {report.worst:.3f} of its bound\n")
