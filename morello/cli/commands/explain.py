"""start: Show the programs of FILE with what each part costs and holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from morello import api, models
from morello.atomic_write import check_writable, write_file
from morello.cli.common import (
    PATH,
    FiniteRange,
    SearchOptions,
    as_group,
    json_option,
    measured_option,
    model_threads_option,
    print_json,
    with_goals_of_models,
    with_steps,
)
from morello.cli.figures import draw_roofline, figures
from morello.cli.kernels import SearchedKernel, make, print_sizes
from morello.cli.models import check_threads, shares_of
from morello.errors import MorelloError
from morello.progress import SearchDisplay
from morello.report.tables import Column, print_table


@attrs.frozen
class ExplainOptions:
    """Options of the command: runner-ups to show, noise to hide, kernels instead of programs, plot, page, threads."""

    runner_ups: int | None
    noise: float
    only_kernels: bool
    plot: str | None
    html: str | None
    threads: int


@click.command("explain")
@with_goals_of_models
@with_steps
@click.option(
    "--runner-ups",
    metavar="N",
    type=click.IntRange(0, 1000),
    help="Show the N best other steps of each node, 0 for none.  [default: 1, but 0 for Specs solved before]",
)
@click.option(
    "--noise",
    metavar="PERCENT",
    type=FiniteRange(min=0),
    default=1.0,
    help="Leave out runner-ups that would cost less than PERCENT more, 0 to show all.  [default: 1]",
)
@click.option("--kernels", "only_kernels", is_flag=True, help="List the target's microkernels instead.")
@click.option("--plot", metavar="FILE", type=PATH, help="Draw a roofline with the program's parts on it.")
@click.option("--html", metavar="FILE", type=PATH, help="Write a page for browsers, with the C, in place of the text.")
@model_threads_option
@measured_option
@json_option
@as_group(ExplainOptions, "options")
def command(
    goals: Sequence[api.Goal],
    search: SearchOptions,
    model: models.PlannedModel | None,
    options: ExplainOptions,
    as_json: bool,
) -> None:
    """Show the programs of FILE, Specs or a model in ONNX, with what each part costs and holds.

    \b
    cost        of one run of the node, with all that is below it
    runs        how often it runs in one call
    share       its own cost in all runs, of the program's cost; all shares add up to 100 %
    implements  the Spec: operation, sizes, and the memory level of each operand
    holds       memory that the node itself takes, per level
    peak        most memory in use at a time, with all that is below it

    The head shows the cost as a time, if target and profile define the clock, and the bottleneck: computing if kernels
    make up at least half of the cost (without the part due to operands outside of the fastest cache), else the memory
    level with the largest part.

    Below a node, each `or` is a runner-up: another step, and the cost of the best program that begins with it; `≥`
    marks a lower bound. Among equal costs, search chooses the step that the target lists first. Nodes fixed by a
    schedule have no runner-ups. For solved Specs from a database they take another search, requested by --runner-ups.
    Those within the noise of measurements are left out.

    With --kernels nothing is searched: the microkernels that implement the Spec are listed with their cost, the others
    of its operation with the rule that the Spec breaks.
    """
    plot, file = options.plot, click.get_current_context().params["file"]
    if options.html is not None:
        if as_json or options.only_kernels:
            raise click.UsageError(f"--html and {'--json' if as_json else '--kernels'} exclude each other")
        check_writable(options.html, file)
    if plot is not None:
        _check_plot(goals, plot)
    if options.only_kernels:
        if plot is not None:
            raise click.UsageError("--kernels and --plot exclude each other")
        _kernels(goals, as_json)
        return
    check_threads(model, options.threads)
    explained: list[dict[str, Any]] = []
    pages: list[tuple[api.Kernel, api.Explanation]] = []
    shares = shares_of(model, search.budget) if model else {}
    for goal in goals:
        # Like `morello build`, which takes no tuned programs.
        own = attrs.evolve(search, budget=shares[goal.name], measured=False) if model else search
        made = make(goal, own)
        if options.threads > 1:
            shared = models.shared(made.kernel.goal, options.threads)
            made = attrs.evolve(made, kernel=make(shared, own).kernel)
        searched = made.searched and made.solved == 0 and search.db is not None
        default = 0 if searched else 1
        shown = default if options.runner_ups is None else options.runner_ups
        explanation = _explained(made, search.db, shown, options.noise)
        if as_json:
            explained.append(explanation.as_dict())
        elif options.html is not None:
            pages.append((made.kernel, explanation))
        else:
            _print(explanation)
            if searched and options.runner_ups is None:
                click.echo("runner-ups take a search: --runner-ups 1 shows them", err=True)
            click.echo()
        if plot is not None:
            roof = api.roofline(made.kernel.impl, goal.target)
            draw_roofline(roof, f"{goal.name} for {goal.target.label}", plot)
    if as_json:
        print_json(explained)
    elif options.html is not None:
        kernels = [kernel for kernel, _ in pages]
        steps = models.steps_of(model, kernels) if model and len(kernels) == model.kernels else ()
        write_file(options.html, api.explanation_page(Path(file).name, pages, steps).encode(errors="replace"))


def _check_plot(goals: Sequence[api.Goal], plot: str) -> None:
    """Raise MorelloError before the search if no plot can be drawn."""
    check_writable(plot, click.get_current_context().params["file"])
    figures()
    if len(goals) > 1:
        names = ", ".join(goal.name for goal in goals)
        raise MorelloError(f"the file has {len(goals)} Specs: {names}", "choose one for --plot with --spec NAME")


def _kernels(goals: Sequence[api.Goal], as_json: bool) -> None:
    """Print the candidates for each Spec's operation and the number of the others, or all of them as JSON."""
    found = {goal: api.kernel_candidates(goal.spec, goal.allowed_target) for goal in goals}
    if as_json:
        print_json(
            [
                {
                    "name": goal.name,
                    "target": goal.target.full_name,
                    "spec": goal.plain.text(goal.spec.logical),
                    "kernels": [attrs.asdict(one) for one in kernels],
                }
                for goal, kernels in found.items()
            ]
        )
        return
    columns = [Column("kernel"), Column("cost", number=True), Column("rule broken"), Column("why", wraps=True)]
    for goal, kernels in found.items():
        click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
        print_sizes(goal)
        shown = [one for one in kernels if not one.for_other_operation]
        costs = ["–" if one.cost is None else f"{one.cost:,}" for one in shown]
        rows = [(one.kernel, cost, one.rule or "–", one.detail) for one, cost in zip(shown, costs, strict=True)]
        print_table(columns, rows)
        if others := len(kernels) - len(shown):
            click.echo(f"{others:,} kernels are for other operations: --json lists them, too")
        click.echo()


def _explained(made: SearchedKernel, db: api.SpecStore | None, runner_ups: int, noise: float) -> api.Explanation:
    """Explain a kernel with progress on stderr, its origin and its proof."""
    goal = made.kernel.goal
    with SearchDisplay(f"runner-ups of {goal.name}", goal.searches.solved(db), db.name if db else None) as display:
        explanation = made.kernel.explain(runner_ups, noise, db or False, display)
    return attrs.evolve(explanation, origin=made.story if made.cheapest else f"{made.story}; {made.proof}")


def _print(explanation: api.Explanation) -> None:
    for line in explanation.head:
        click.echo(line)
    print_table(*explanation.table)
    for line in explanation.foot:
        click.echo(line)
