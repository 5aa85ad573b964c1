"""`morello explain`: where a program's cost and memory go, and what other steps would have cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from morello.cli.common import Made, json_option, make, print_json, print_table, with_goals
from morello.db.store import SpecStore
from morello.frontend.printer import show_logical
from morello.goals import Goal
from morello.ir.impl import Impl, Leaf
from morello.ir.spec import Spec
from morello.progress import SearchDisplay
from morello.search.block_search import Alternative
from morello.tree import Branch, Others, RunnerUp, memory, program_tree, tree_table


@click.command("explain")
@with_goals
@click.option(
    "--runner-ups",
    metavar="N",
    type=click.IntRange(0, 1000),
    help="Show the N best other steps of each node, 0 for none.  [default: 1, and 0 for what was solved before]",
)
@json_option
def command(goals: Sequence[Goal], db: SpecStore | None, runner_ups: int | None, as_json: bool) -> None:
    """Show the programs of FILE with what each part costs and holds.

    \b
    cost        of one run of the node, with all that is below it
    runs        how often it runs in one call
    share       its own cost in all runs, of the program's cost; all shares add up to 100 %
    implements  the Spec: operation, sizes, and the memory level of each operand
    holds       memory that the node itself takes, per level
    peak        most memory in use at a time, with all that is below it

    Below a node stand runner-ups, each after `or`: another step, and what the best program that begins with it
    costs; after `≥`, what it costs at least. Of equal costs the step that the target lists first was chosen. Nodes
    that a schedule fixed have none. What was solved before has to be searched again for them, in part or in full:
    give --runner-ups for that.
    """
    trees = []
    for goal in goals:
        made = make(goal, db)
        searched = made.searched > 0 and made.solved == 0 and db is not None
        count = (0 if searched else 1) if runner_ups is None else runner_ups
        # What is not proven has no step that others can be held against.
        count = count if made.low >= made.kernel.cost else 0
        others = _others(goal, made, db, count) if count else (lambda impl: None)
        tree = program_tree(made.kernel.impl, goal.target, others)
        if as_json:
            trees.append(_as_dict(goal, made, tree))
            continue
        click.echo(f"{goal.name} for {goal.target.label}: {show_logical(goal.spec.logical)}")
        proof = f"; {made.proof}" if made.low < made.kernel.cost else ""
        click.echo(f"cost {tree.cost:,}; memory: {memory(tree.peak)}; {made.story}{proof}")
        print_table(tree_table(tree))
        if searched and runner_ups is None:
            click.echo("runner-ups take a search: --runner-ups 1 shows them", err=True)
        click.echo()
    if as_json:
        print_json(trees)


def _as_dict(goal: Goal, made: Made, tree: Branch) -> dict[str, Any]:
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": show_logical(goal.spec.logical),
        "cost": tree.cost,
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
