"""`morello explain`: where a program's cost and memory go, what bounds it, and what else there would have been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import click

from morello.cli import completion, roofline
from morello.cli.balance import Balance, balance
from morello.cli.candidates import Candidate, candidates, print_candidates
from morello.cli.common import Made, json_option, make, print_json, tell_sizes, with_goals
from morello.cli.figures import figures
from morello.cli.output import check_writable
from morello.cli.tables import print_table
from morello.cli.tree import Branch, Others, RunnerUp, in_time, memory, program_tree, tree_table
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.printer import show_logical
from morello.goals import Goal
from morello.ir.impl import Impl, Leaf
from morello.ir.spec import Spec
from morello.kernels.target import BASE
from morello.plugins.registry import installed
from morello.progress import SearchDisplay
from morello.search.block_search import Alternative


@click.command("explain")
@with_goals
@click.option(
    "--runner-ups",
    metavar="N",
    type=click.IntRange(0, 1000),
    help="Show the N best other steps of each node, 0 for none.  [default: 1, and 0 for what was solved before]",
)
@click.option(
    "--noise",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=1.0,
    help="Leave out runner-ups with which the program would cost less than so much more, 0 to show all.  [default: 1]",
)
@click.option("--kernels", "only_kernels", is_flag=True, help="List the target's microkernels instead: see above.")
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

    The head says what the cost comes to in time, if target and profile know the clock, and what bounds the program: it
    is compute-bound if kernels make up half of the cost or more, without what they would save if operands were in the
    fastest cache; else the level bounds it that moves and kernels pay most for.

    Below a node stand runner-ups, each after `or`: another step, and what the best program that begins with it
    costs; after `≥`, what it costs at least. Of equal costs the step that the target lists first was chosen. Nodes
    that a schedule fixed have none. What was solved before has to be searched again for them, in part or in full:
    give --runner-ups for that. Those within the noise of measurements are left out.

    With --kernels nothing is searched: it lists the microkernels that take the Spec of FILE as it is, with their cost,
    and for others of its operation the rule that it breaks.
    """
    if plot is not None:
        _check_plot(goals, plot, ctx.params["file"])
    if only_kernels:
        if plot is not None:
            raise click.UsageError("--kernels and --plot exclude each other")
        _kernels(goals, as_json)
        return
    trees = []
    for goal in goals:
        made = make(goal, db)
        searched = made.searched > 0 and made.solved == 0 and db is not None
        count = (0 if searched else 1) if runner_ups is None else runner_ups
        # What is not proven has no step that others can be held against.
        count = count if made.low >= made.kernel.cost else 0
        others = _others(goal, made, db, count) if count else (lambda impl: None)
        tree, bound = program_tree(made.kernel.impl, goal.target, others), balance(made.kernel.impl, goal.target)
        if as_json:
            trees.append(_as_dict(goal, made, tree, bound))
        else:
            _print(goal, made, tree, bound, noise)
            if searched and runner_ups is None:
                click.echo("runner-ups take a search: --runner-ups 1 shows them", err=True)
            click.echo()
        if plot is not None:
            roofline.draw(made.kernel.impl, goal.target, f"{goal.name} for {goal.target.label}", plot)
    if as_json:
        print_json(trees)


def _check_plot(goals: Sequence[Goal], plot: str, file: str) -> None:
    """Raise MorelloError if there can be no plot: before the search, so that a mistake costs no time."""
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
        click.echo(f"{goal.name} for {goal.target.label}: {show_logical(goal.spec.logical)}")
        print_candidates(kernels)
        click.echo()


def _listed(goal: Goal, kernels: Sequence[Candidate]) -> dict[str, Any]:
    spec = show_logical(goal.spec.logical)
    return {"name": goal.name, "target": goal.target.name, "spec": spec, "kernels": [*map(attrs.asdict, kernels)]}


def _print(goal: Goal, made: Made, tree: Branch, bound: Balance, noise: float) -> None:
    click.echo(f"{goal.name} for {goal.target.label}: {show_logical(goal.spec.logical)}")
    tell_sizes(goal)
    proof = f"; {made.proof}" if made.low < made.kernel.cost else ""
    cost = f"cost {tree.cost:,}{in_time(tree.cost, goal.target)}"
    click.echo(f"{cost}; memory: {memory(tree.peak)}; {made.story}{proof}")
    click.echo(str(bound))
    shown = tree.without_noise(noise)
    print_table(*tree_table(shown))
    hidden = tree.runner_ups_below - shown.runner_ups_below
    if hidden:
        click.echo(f"{hidden:,} runner-ups within {noise:g} % of the program's cost are left out: --noise 0 shows them")


def _as_dict(goal: Goal, made: Made, tree: Branch, bound: Balance) -> dict[str, Any]:
    unit = goal.target.unit_seconds
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": show_logical(goal.spec.logical),
        "cost": tree.cost,
        "cost_unit": goal.target.info.cost_unit or None,
        "seconds": None if unit is None else tree.cost * unit,
        "bound": bound.bound,
        "parts": bound.shares,
        "low": made.low,
        "peak": tree.peak,
        "program": tree.as_dict(),
    }


def _others(goal: Goal, made: Made, db: SpecStore | None, count: int) -> Others:
    """Return the runner-ups of every node that search found."""
    nodes = [*_searched(goal.impl, made.kernel.impl)]
    before = goal.searches.of(db).solved
    with (
        SearchDisplay(f"runner-ups of {goal.name}", before, db.path if db else None) as display,
        goal.searches.using(db, display) as search,
    ):
        found: dict[Spec, tuple[RunnerUp, ...]] = {
            spec: _runner_ups(search.alternatives(spec, count)) for spec in dict.fromkeys(node.spec for node in nodes)
        }
    places = {id(node) for node in nodes}
    return lambda impl: found[impl.spec] if id(impl) in places else None


def _searched(scheduled: Impl, program: Impl) -> Iterator[Impl]:
    """Yield the nodes of a program that its schedule left to search."""
    open_ = isinstance(scheduled, Leaf)
    if open_:
        yield program
    for index, child in enumerate(_children(program)):
        yield from _searched(scheduled if open_ else _children(scheduled)[index], child)


def _children(impl: Impl) -> Sequence[Impl]:
    return () if isinstance(impl, Leaf) else impl.children


def _runner_ups(alternatives: Sequence[Alternative]) -> tuple[RunnerUp, ...]:
    chosen, *others = alternatives
    return tuple(_runner_up(one, chosen.cost) for one in others)


def _runner_up(alternative: Alternative, least: int) -> RunnerUp:
    # Bounds of search may lie below the optimum; no program does.
    cost = max(alternative.cost, least)
    return RunnerUp(alternative.step, cost, alternative.exact, cost - least, 100 * (cost - least) / least)
