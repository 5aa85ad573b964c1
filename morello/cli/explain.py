"""`morello explain`: where a program's cost and memory go."""

from __future__ import annotations

from collections.abc import Sequence

import click

from morello.cli.common import json_option, make, print_json, print_table, with_goals
from morello.cli.tree import memory, program_tree, tree_table
from morello.db.store import SpecStore
from morello.frontend.printer import show_logical
from morello.goal import Goal


@click.command("explain")
@with_goals
@json_option
def command(goals: Sequence[Goal], db: SpecStore | None, as_json: bool) -> None:
    """Show the programs of FILE with what each part costs and holds.

    \b
    cost        of one run of the node, with all that is below it
    runs        how often it runs in one call
    share       its own cost in all runs, of the program's cost; all shares add up to 100 %
    implements  the Spec: operation, sizes, and the memory level of each operand
    holds       memory that the node itself takes, per level
    peak        most memory in use at a time, with all that is below it
    """
    trees = []
    for goal in goals:
        made = make(goal, db)
        tree = program_tree(made.kernel.impl, goal.target)
        if as_json:
            head = {"name": goal.name, "target": goal.target.name, "spec": show_logical(goal.spec.logical)}
            trees.append({**head, "cost": tree.cost, "peak": tree.peak, "program": tree.as_dict()})
            continue
        click.echo(f"{goal.name} for {goal.target.name}: {show_logical(goal.spec.logical)}")
        click.echo(f"cost {tree.cost:,}; memory: {memory(tree.peak)}; {made.story}")
        print_table(tree_table(tree))
        click.echo()
    if as_json:
        print_json(trees)
