"""start: Verify the programs of FILE thoroughly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello import api, models
from morello.cli.common import (
    SearchOptions,
    cc_option,
    json_option,
    measured_option,
    model_threads_option,
    print_json,
    runner_option,
    seed_option,
    with_goals_of_models,
    with_steps,
)
from morello.cli.kernels import make, print_compiler, print_sizes
from morello.cli.models import check_threads, shares_of
from morello.errors import VerificationError
from morello.progress import ModelDisplay, Spinner
from morello.report.tables import Column, print_table


@click.command("check")
@with_goals_of_models
@with_steps
@seed_option
@cc_option
@runner_option
@model_threads_option
@measured_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    goals: Sequence[api.Goal],
    search: SearchOptions,
    model: models.PlannedModel | None,
    seed: int,
    threads: int,
    as_json: bool,
) -> None:
    """Verify the programs of FILE, Specs or a model in ONNX, thoroughly.

    Each runs on random and on hard data (cancellation, infinities, subnormals, ...) and is compared with numpy and
    plain C. Errors are fractions of the bound of rounding errors. The exit status is 1 if any result is wrong; the
    other Specs are still checked.

    The kernels of a model are checked on fewer data sets, and then the model as a whole: each step on random inputs,
    and the outputs within the errors of all steps.
    """
    search.check_tools(goals)
    check_threads(model, threads)
    if model:
        goals = [models.shared(goal, threads) for goal in _searched(goals, model, search)]
    checked = [_check(goal, search, seed, model is not None, quiet=as_json) for goal in goals]
    if model and len(goals) == model.kernels:
        checked.append(_check_model(model.with_goals(goals), search, threads, seed, quiet=as_json))
    if as_json:
        print_json(checked)
    if not all(one["passed"] for one in checked):
        ctx.exit(1)


def _searched(goals: Sequence[api.Goal], model: models.PlannedModel, search: SearchOptions) -> list[api.Goal]:
    """Return the goals of a model with programs, whose searches share the budget."""
    shares = shares_of(model, search.budget)
    with ModelDisplay(model.name, len(goals), search.db.name if search.db else None) as display:
        return models.solved(goals, search.db, [shares[goal.name] for goal in goals], 1, display)


def _check_model(
    model: models.PlannedModel, search: SearchOptions, threads: int, seed: int, quiet: bool
) -> dict[str, Any]:
    """Check a model as a whole, print the result unless `quiet`, and return it for JSON."""
    name = model.name
    try:
        with Spinner(f"verifying {name}"):
            report = models.check_model(model.source, model.program(search.cc, threads=threads), seed, search.cc)
    except VerificationError as error:
        click.echo(f"error: {name}: {error}", err=True)
        return {"model": name, "passed": False, "error": error.message}
    if not quiet:
        click.echo(report)
    return {"model": name, "passed": True, "error": None, **attrs.asdict(report)}


def _check(goal: api.Goal, search: SearchOptions, seed: int, of_model: bool, quiet: bool) -> dict[str, Any]:
    """Check one goal, print the result unless `quiet`, and return it for JSON; that of a model's kernel is a line."""
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
            report = kernel.check(seed, thorough=not of_model)
    except VerificationError as error:
        click.echo(f"error: {error}", err=True)
        return {**head, "passed": False, "error": error.message, "results": []}
    if of_model and not quiet:
        click.echo(f"{report.kernel}: {report.operation}: passed, the largest error is {report.worst:.3f} of its bound")
    elif not quiet:
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
