"""start: Show the programs of FILE with what each part costs and holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.cli import completion, roofline
from morello.cli.candidates import Candidate, candidates, print_candidates
from morello.cli.common import Made, json_option, make, print_json, print_sizes, with_goals
from morello.cli.figures import figures
from morello.cli.output import check_writable
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.kernels.target import BASE
from morello.plugins.registry import installed
from morello.progress import SearchDisplay
from morello.report.explanation import Explanation
from morello.report.tables import print_table


@click.command("explain")
@with_goals
@click.option(
    "--runner-ups",
    metavar="N",
    type=click.IntRange(0, 1000),
    help="Show the N best other steps of each node, 0 for none.  [default: 1, but 0 for Specs solved before]",
)
@click.option(
    "--noise",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=1.0,
    help="Leave out runner-ups that would cost less than PERCENT more, 0 to show all.  [default: 1]",
)
@click.option("--kernels", "only_kernels", is_flag=True, help="List the target's microkernels instead.")
@click.option(
    "--plot", metavar="FILE", shell_complete=completion.files, help="Draw a roofline with the program's parts on it."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    goals: Sequence[Goal],
    db: SpecStore | None,
    runner_ups: int | None,
    noise: float,
    only_kernels: bool,
    plot: str | None,
    as_json: bool,
) -> None:
    """Show the programs of FILE with what each part costs and holds.

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
    if plot is not None:
        _check_plot(goals, plot, ctx.params["file"])
    if only_kernels:
        if plot is not None:
            raise click.UsageError("--kernels and --plot exclude each other")
        _kernels(goals, as_json)
        return
    explained: list[dict[str, Any]] = []
    for goal in goals:
        made = make(goal, db)
        searched = made.searched and made.solved == 0 and db is not None
        explanation = _explained(made, db, (0 if searched else 1) if runner_ups is None else runner_ups, noise)
        if as_json:
            explained.append(explanation.as_dict())
        else:
            _print(explanation)
            if searched and runner_ups is None:
                click.echo("runner-ups take a search: --runner-ups 1 shows them", err=True)
            click.echo()
        if plot is not None:
            roofline.draw(made.kernel.impl, goal.target, f"{goal.name} for {goal.target.label}", plot)
    if as_json:
        print_json(explained)


def _check_plot(goals: Sequence[Goal], plot: str, file: str) -> None:
    """Raise MorelloError before the search if no plot can be drawn."""
    check_writable(plot, file)
    figures()
    if len(goals) > 1:
        names = ", ".join(goal.name for goal in goals)
        raise MorelloError(f"the file has {len(goals)} Specs: {names}", "choose one for --plot with --spec NAME")


def _kernels(goals: Sequence[Goal], as_json: bool) -> None:
    found = {goal: candidates(goal.spec, goal.target, installed().target(goal.target.name, BASE)) for goal in goals}
    if as_json:
        print_json([_listed(goal, kernels) for goal, kernels in found.items()])
        return
    for goal, kernels in found.items():
        click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
        print_sizes(goal)
        print_candidates(kernels)
        click.echo()


def _listed(goal: Goal, kernels: Sequence[Candidate]) -> dict[str, Any]:
    spec = goal.plain.text(goal.spec.logical)
    return {"name": goal.name, "target": goal.target.name, "spec": spec, "kernels": [*map(attrs.asdict, kernels)]}


def _explained(made: Made, db: SpecStore | None, runner_ups: int, noise: float) -> Explanation:
    """Explain a kernel with progress on stderr, its origin and its proof."""
    goal = made.kernel.goal
    with SearchDisplay(f"runner-ups of {goal.name}", goal.searches.solved(db), db.path if db else None) as display:
        explanation = made.kernel.explain(runner_ups, noise, db or False, display)
    return attrs.evolve(explanation, origin=made.story if made.proven else f"{made.story}; {made.proof}")


def _print(explanation: Explanation) -> None:
    for line in explanation.head:
        click.echo(line)
    print_table(*explanation.table)
    for line in explanation.foot:
        click.echo(line)
