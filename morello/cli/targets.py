"""`morello targets`: what was discovered, and from where."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import attrs
import click
from rich.table import Table

from morello.cli.common import json_option, print_json, print_table
from morello.errors import MorelloError
from morello.host import missing_features
from morello.kernels.machine import MemoryLevel
from morello.kernels.target import BASE, Target
from morello.plugins.registry import PluginInfo, Registry, installed
from morello.tree import size


@click.command("targets")
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the installed targets: their memory, rewrites and microkernels, and the plugins these come from.

    Costs are those of the profile that is marked with `*`; `--profile`, the variable MORELLO_PROFILE and the user's
    configuration choose another one, in this order, before the CPU does.
    """
    registry = installed()
    targets, faults = [], []
    for name in registry.names:
        try:
            targets.append(registry.target(name))
        except MorelloError as error:
            faults.append(error)
    described = [_describe(target, registry) for target in targets]
    if as_json:
        print_json({"plugins": [attrs.asdict(one) for one in registry.plugins], "targets": described})
    else:
        for target, description in zip(targets, described, strict=True):
            _print(target, description)
    if not registry.names:
        click.echo("no targets are installed; plugins such as morello-x86-avx2 bring them", err=True)
    for fault in dict.fromkeys(map(str, faults)):
        click.echo(f"error: {fault}", err=True)
    if faults or not targets:
        ctx.exit(1)


def _describe(target: Target, registry: Registry) -> dict[str, Any]:
    plugins = {one.name: one for one in registry.plugins}
    owner = registry.owner(target.name)
    contributed: dict[str, Counter[str]] = defaultdict(Counter)
    for label, plugin in target.origins.items():
        kind = label.split()[0]
        # Operations are for all targets: they extend none.
        if plugin != owner and kind != "operation":
            contributed[plugin][kind] += 1
    return {
        "name": target.name,
        "description": target.info.description,
        "plugin": attrs.asdict(plugins[owner]),
        "profiles": _profiles(target.name, registry),
        "cpu_features": list(target.info.cpu_features),
        "missing_on_this_machine": missing_features(target.info.cpu_features),
        "weights": attrs.asdict(target.weights),
        "levels": [_level(level) for level in target.levels],
        "rewrites": list(target.rewrites_by_name),
        "microkernels": list(target.kernels_by_name),
        "left_out": {name: list(lacking) for name, lacking in target.withheld.items()},
        "extended_by": [
            {**attrs.asdict(plugins[plugin]), "contributes": dict(counts)}
            for plugin, counts in sorted(contributed.items())
        ],
    }


def _profiles(target: str, registry: Registry) -> list[dict[str, Any]]:
    """Describe what there is to choose from; of the chosen one, why."""
    choice = registry.choice(target)
    names = [None, *registry.profiles(target).values()]
    if choice.profile not in names:
        names.append(choice.profile)
    return [
        {
            "name": one.name if one else BASE,
            "description": one.description if one else "what the plugins declare",
            "cpus": list(one.cpus) if one else [],
            "file": one.place if one else None,
            "chosen": one == choice.profile,
            "reason": choice.reason if one == choice.profile else None,
        }
        for one in names
    ]


def _level(level: MemoryLevel) -> dict[str, Any]:
    lists = {"vectors": list(level.vectors), "destinations": list(level.destinations)}
    return {**attrs.asdict(level), "divisions": level.grid.divisions, **lists}


def _print(target: Target, described: dict[str, Any]) -> None:
    owner = PluginInfo(**described["plugin"])
    missing = described["missing_on_this_machine"]
    runs = f"this machine lacks {', '.join(missing)}" if missing else "this machine can run it"
    click.echo(f"{target.name}: {target.info.description}")
    click.echo(f"  plugin {owner.name} ({owner}); {runs}")
    for plugin in described["extended_by"]:
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in plugin["contributes"].items())
        click.echo(f"  extended by plugin {plugin['name']} ({plugin['distribution']} {plugin['version']}): {what}")
    click.echo(f"  {len(target.rewrites)} rewrites: {', '.join(target.rewrites_by_name)}")
    click.echo(f"  {len(target.kernels)} microkernels: {', '.join(target.kernels_by_name)}")
    if target.withheld:
        lacking = ", ".join(sorted({feature for features in target.withheld.values() for feature in features}))
        click.echo(f"  {len(target.withheld)} left out for lack of {lacking}: {', '.join(target.withheld)}")
    for profile in described["profiles"]:
        mark, why = ("*", f"; chosen: {profile['reason']}") if profile["chosen"] else (" ", "")
        what = f": {profile['description']}" if profile["description"] else ""
        click.echo(f"  {mark} profile {profile['name']}{what}{why}")
    weights = target.weights
    click.echo(f"  parallel loops count with {weights.threads} threads, which cost {weights.sync:,} to start")
    print_table(_levels(target))
    click.echo()


def _levels(target: Target) -> Table:
    table = Table("  level", "kind", box=None, pad_edge=False, header_style="bold")
    for heading in ("capacity", "unit", "divisions", "hit cost", "miss cost", "alignment"):
        table.add_column(heading, justify="right")
    table.add_column("vectors")
    table.add_column("moves to")
    for level in target.levels:
        table.add_row(
            f"  {level.name}",
            level.kind,
            size(level.capacity),
            size(level.unit),
            f"{level.grid.divisions:,}",
            str(level.hit_cost),
            str(level.miss_cost),
            size(level.alignment),
            ", ".join(map(size, level.vectors)) or "–",
            ", ".join(level.destinations) or "–",
        )
    return table
