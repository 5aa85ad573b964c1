"""machine: List the installed targets and their parts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import click

from morello import api
from morello.cli.common import complete_targets, json_option, print_json
from morello.report.tables import Column, print_table
from morello.report.words import size


@click.command("targets")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_targets)
@json_option
@click.pass_context
def command(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """List the installed targets; with NAME, its memory, rewrites, microkernels, profiles and plugins.

    Costs are those of the chosen profile: that of MORELLO_PROFILE, else of the user's configuration, else of the CPU.
    """
    if name is None:
        _list(ctx, as_json)
        return
    described = api.describe_target(name)
    if as_json:
        print_json(described.as_dict())
    else:
        _print(described)


def _list(ctx: click.Context, as_json: bool) -> None:
    found = api.list_targets()
    if as_json:
        print_json(found.as_dict())
    else:
        if found.targets:
            _print_list(found.targets)
        if found.targets and found.disabled:
            click.echo()
        if found.disabled:
            _print_disabled(found)
    if not (found.targets or found.errors or any(one.target for one in found.disabled)):
        click.echo("no targets are installed; plugins bring them: pip install 'morello[x86]'", err=True)
    for error in dict.fromkeys(map(str, found.errors)):
        click.echo(f"error: {error}", err=True)
    if found.errors or not found.targets:
        ctx.exit(1)


def _print_disabled(found: api.TargetList) -> None:
    columns = [Column("disabled"), Column("target", spare=1), Column("why", wraps=True), Column("remedy", wraps=True)]
    rows = [(one.plugin.name, one.target or "–", one.error.message, one.error.hint or "") for one in found.disabled]
    print_table(columns, rows)


def _print_list(targets: Sequence[api.TargetDescription]) -> None:
    columns = [Column("target"), Column("description", wraps=True, spare=2), Column("profile")]
    columns += [Column("levels", wraps=True, spare=1), Column("kernels", number=True), Column("runs")]
    rows = [
        (
            one.target.name,
            one.target.info.description,
            one.target.profile,
            ", ".join(f"{level.name} {size(level.capacity)}" for level in one.target.levels),
            f"{len(one.target.kernels)}",
            "no" if one.missing else "yes",
        )
        for one in targets
    ]
    print_table(columns, rows)
    click.echo("\nDetails of one: `morello targets NAME`")


def _print(described: api.TargetDescription) -> None:
    target, owner, missing = described.target, described.plugin, described.missing
    runs = f"this machine lacks {', '.join(missing)}" if missing else "this machine can run it"
    click.echo(f"{target.full_name}: {target.info.description}")
    click.echo(f"plugin {owner.name} ({owner}); {runs}")
    if described.base:
        click.echo(f"derived from {described.base}")
    for plugin, counts in described.extended_by:
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items())
        click.echo(f"extended by plugin {plugin.name} ({plugin.distribution} {plugin.version}): {what}")
    if target.info.cost_unit:
        clock = f", at {target.mhz:,} MHz" if target.mhz else ""
        click.echo(f"costs are in {target.info.cost_unit}{clock}")
    weights = target.weights
    click.echo(f"parallel loops count with {weights.threads} threads, which cost {weights.sync:,} to start\n")
    _print_levels(described)
    click.echo()
    columns = [Column("profile"), Column("chosen", wraps=True), Column("description", wraps=True)]
    print_table(columns, [(one.name, one.reason or "", one.description) for one in described.profiles])
    click.echo()
    _print_kernels(described)
    click.echo()
    if target.optional_features:
        _print_features(described)
        click.echo()
    print_table([Column(f"{len(target.rewrites)} rewrites", wraps=True)], [[", ".join(target.rewrites_by_name)]])


def _print_kernels(described: api.TargetDescription) -> None:
    """Print the names of kernels by operation."""
    target, by_operation = described.target, defaultdict[str, list[str]](list)
    for kernel in target.kernels:
        by_operation[kernel.op_name].append(kernel.name)
    columns = [Column("operation"), Column("kernels", number=True), Column("names", wraps=True)]
    rows = [(op, f"{len(names)}", ", ".join(names)) for op, names in sorted(by_operation.items())]
    print_table(columns, rows)


def _print_features(described: api.TargetDescription) -> None:
    """Print the optional CPU features of a target, and the kernels that need them."""
    columns = [Column("CPU feature"), Column("used"), Column("this machine"), Column("kernels", wraps=True)]
    yes = {True: "yes", False: "no"}
    rows = [
        (name, yes[one["used"]], yes[one["on_this_machine"]], ", ".join(one["kernels"]))
        for name, one in described.optional_features.items()
    ]
    print_table(columns, rows)


def _print_levels(described: api.TargetDescription) -> None:
    columns = [Column("level"), Column("kind", spare=1), Column("capacity", number=True)]
    columns += [Column(heading, number=True, spare=2) for heading in ("unit", "divisions")]
    columns += [*(Column(f"{cost} cost", number=True) for cost in ("hit", "miss", "start"))]
    columns += [Column("alignment", number=True, spare=5), Column("vectors", spare=3), Column("moves to", spare=4)]
    rows = [
        (
            level.name,
            level.kind,
            size(level.capacity),
            size(level.unit),
            f"{level.grid.divisions:,}",
            str(level.hit_cost),
            str(level.miss_cost),
            str(level.start_cost),
            size(level.alignment),
            ", ".join(map(size, level.vectors)) or "–",
            ", ".join(level.destinations) or "–",
        )
        for level in described.target.levels
    ]
    print_table(columns, rows)
