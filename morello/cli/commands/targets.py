"""machine: List the installed targets and their parts."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.cli import completion
from morello.cli.common import json_option, print_json
from morello.errors import MorelloError, PluginDisabled, PluginError
from morello.host import missing_features
from morello.kernels.machine import MemoryLevel
from morello.kernels.target import BASE, Target
from morello.plugins.discovery import Disabled, PluginInfo
from morello.plugins.registry import Registry, installed
from morello.report.tables import Column, print_table
from morello.report.words import size


@click.command("targets")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=completion.targets)
@json_option
@click.pass_context
def command(ctx: click.Context, name: str | None, as_json: bool) -> None:
    """List the installed targets; with NAME, its memory, rewrites, microkernels, profiles and plugins.

    Costs are those of the chosen profile: that of MORELLO_PROFILE, else of the user's configuration, else of the CPU.
    """
    with warnings.catch_warnings():
        # Listed below, or irrelevant for this target.
        warnings.simplefilter("ignore", PluginDisabled)
        registry = installed()
        if name is None:
            _list(ctx, registry, as_json)
            return
    described = _describe(registry.target(name), registry)
    if as_json:
        print_json(described)
    else:
        _print(registry.target(name), described)


def _list(ctx: click.Context, registry: Registry, as_json: bool) -> None:
    targets, faulty, errors = [], [], []
    for one in registry.names:
        try:
            targets.append(registry.target(one))
        except PluginError as error:
            owner = next(plugin for plugin in registry.plugins if plugin.name == registry.owner(one))
            faulty.append(Disabled(owner, one, error))
        except MorelloError as error:
            errors.append(error)  # such as an unknown profile
    disabled = [*registry.disabled, *faulty, *registry.idle()]
    if as_json:
        described = {
            "plugins": [attrs.asdict(one) for one in registry.plugins],
            "targets": [_describe(target, registry) for target in targets],
            "disabled": [_reason(one) for one in disabled],
        }
        print_json(described)
    else:
        if targets:
            _print_list(targets)
        if targets and disabled:
            click.echo()
        if disabled:
            _print_disabled(disabled)
    if not registry.names:
        click.echo("no targets are installed; plugins bring them: pip install 'morello[x86]'", err=True)
    for error in dict.fromkeys(map(str, errors)):
        click.echo(f"error: {error}", err=True)
    if errors or not targets:
        ctx.exit(1)


def _reason(disabled: Disabled) -> dict[str, Any]:
    error = disabled.error
    return {**attrs.asdict(disabled.plugin), "target": disabled.target, "reason": error.message, "hint": error.hint}


def _print_disabled(disabled: Sequence[Disabled]) -> None:
    columns = [Column("disabled"), Column("target", spare=1), Column("why", wraps=True), Column("remedy", wraps=True)]
    rows = [(one.plugin.name, one.target or "–", one.error.message, one.error.hint or "") for one in disabled]
    print_table(columns, rows)


def _print_list(targets: Sequence[Target]) -> None:
    columns = [Column("target"), Column("description", wraps=True, spare=2), Column("profile")]
    columns += [Column("levels", wraps=True, spare=1), Column("kernels", number=True), Column("runs")]
    rows = [
        (
            target.name,
            target.info.description,
            target.profile,
            ", ".join(f"{level.name} {size(level.capacity)}" for level in target.levels),
            f"{len(target.kernels)}",
            "no" if missing_features(target.info.cpu_features) else "yes",
        )
        for target in targets
    ]
    print_table(columns, rows)
    click.echo("\nDetails of one: `morello targets NAME`")


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
        "cost_unit": target.info.cost_unit or None,
        "units_per_cycle": target.info.units_per_cycle,
        "mhz": target.mhz,
        "weights": attrs.asdict(target.weights),
        "levels": [_level(level) for level in target.levels],
        "rewrites": list(target.rewrites_by_name),
        "microkernels": list(target.kernels_by_name),
        "left_out": {name: list(lacking) for name, lacking in target.unavailable.items()},
        "extended_by": [
            {**attrs.asdict(plugins[plugin]), "contributes": dict(counts)}
            for plugin, counts in sorted(contributed.items())
        ],
    }


def _profiles(target: str, registry: Registry) -> list[dict[str, Any]]:
    """Return the profiles of a target, with the reason of the chosen one."""
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
    click.echo(f"plugin {owner.name} ({owner}); {runs}")
    for plugin in described["extended_by"]:
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in plugin["contributes"].items())
        click.echo(f"extended by plugin {plugin['name']} ({plugin['distribution']} {plugin['version']}): {what}")
    if target.info.cost_unit:
        clock = f", at {target.mhz:,} MHz" if target.mhz else ""
        click.echo(f"costs are in {target.info.cost_unit}{clock}")
    weights = target.weights
    click.echo(f"parallel loops count with {weights.threads} threads, which cost {weights.sync:,} to start\n")
    _print_levels(target)
    click.echo()
    _print_profiles(described["profiles"])
    click.echo()
    _print_kernels(target)
    click.echo()
    print_table([Column(f"{len(target.rewrites)} rewrites", wraps=True)], [[", ".join(target.rewrites_by_name)]])


def _print_profiles(profiles: Sequence[dict[str, Any]]) -> None:
    columns = [Column("profile"), Column("chosen", wraps=True), Column("description", wraps=True)]
    rows = [(one["name"], one["reason"] if one["chosen"] else "", one["description"]) for one in profiles]
    print_table(columns, rows)


def _print_kernels(target: Target) -> None:
    """Print the names of kernels by operation, then those unavailable on the machine of the profile."""
    by_operation: dict[str, list[str]] = defaultdict(list)
    for kernel in target.kernels:
        by_operation[kernel.op_name].append(kernel.name)
    columns = [Column("operation"), Column("kernels", number=True), Column("names", wraps=True)]
    rows = [(op, f"{len(names)}", ", ".join(names)) for op, names in sorted(by_operation.items())]
    print_table(columns, rows)
    if target.unavailable:
        lacking = ", ".join(sorted({feature for features in target.unavailable.values() for feature in features}))
        click.echo()
        print_table([Column(f"left out for lack of {lacking}", wraps=True)], [[", ".join(target.unavailable)]])


def _print_levels(target: Target) -> None:
    columns = [Column("level"), Column("kind", spare=1), Column("capacity", number=True)]
    columns += [Column(heading, number=True, spare=2) for heading in ("unit", "divisions")]
    columns += [Column("hit cost", number=True), Column("miss cost", number=True)]
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
            size(level.alignment),
            ", ".join(map(size, level.vectors)) or "–",
            ", ".join(level.destinations) or "–",
        )
        for level in target.levels
    ]
    print_table(columns, rows)
