"""Completions that shells show for what commands are given; nothing here imports a plugin."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell, which knows files best."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leave it to the shell."""
    return [CompletionItem(incomplete, type="dir")]


def databases(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the name of the default database, if that may be meant, else leave it to the shell."""
    meant = incomplete and "default".startswith(incomplete)
    return (
        [CompletionItem("default", help="the one that commands use without --db")]
        if meant
        else [CompletionItem(incomplete, type="file")]
    )


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of plugins, which are those of their targets: to ask them would take too long."""
    import importlib.metadata

    names = {entry.name for entry in importlib.metadata.entry_points(group="morello")}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
