"""start: Verify the programs of FILE thoroughly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.cli.common import (
    cc_option,
    json_option,
    make,
    print_compiler,
    print_json,
    print_sizes,
    seed_option,
    with_goals,
)
from morello.db.store import SpecStore
from morello.errors import VerificationError
from morello.progress import Spinner
from morello.report.tables import Column, print_table
from morello.verify.check import CheckReport, DataSetResult
from morello.verify.reference import REFERENCE_NAME as REFERENCE
from morello.verify.reference import reference_target


@click.command("check")
@with_goals
@seed_option
@cc_option
@json_option
@click.pass_context
def command(
    ctx: click.Context, goals: Sequence[Goal], db: SpecStore | None, seed: int, cc: str | None, as_json: bool
) -> None:
    """Verify the programs of FILE thoroughly.

    Each runs on random and on hard data (cancellation, infinities, subnormals, ...) and is compared with numpy and
    plain C. Errors are fractions of the bound of rounding errors. The exit status is 1 if any result is wrong; the
    other Specs are still checked.
    """
    # Fail before the search.
    find_compiler(cc)
    reference_target()
    checked = [_check(goal, db, cc, seed, quiet=as_json) for goal in goals]
    if as_json:
        print_json(checked)
    if not all(one["passed"] for one in checked):
        ctx.exit(1)


def _check(goal: Goal, db: SpecStore | None, cc: str | None, seed: int, quiet: bool) -> dict[str, Any]:
    """Check one goal, print the result unless `quiet`, and return it for JSON."""
    kernel = make(goal, db, cc).kernel
    print_compiler(kernel)
    head = {
        "spec": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "compiler": str(kernel.compiler),
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
    return {**head, "passed": True, "error": None, "results": [_result(one) for one in report.results]}


def _result(result: DataSetResult) -> dict[str, Any]:
    return {"data": result.name, "error": result.error, "from_reference": result.reference}


def _print(report: CheckReport, goal: Goal) -> None:
    click.echo(f"{report.kernel}: {report.operation} for {report.target}, {report.compiler}, seed {report.seed}")
    print_sizes(goal)
    columns = [Column("data set"), Column("error / bound", number=True), Column(f"from {REFERENCE}", number=True)]
    print_table(columns, [(one.name, f"{one.error:.3f}", _from_reference(one)) for one in report.results])
    click.echo(f"passed: the largest error is {report.worst:.3f} of its bound\n")


def _from_reference(result: DataSetResult) -> str:
    return "–" if result.reference is None else f"{result.reference:.3f}"
