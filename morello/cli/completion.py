"""Shell completions of arguments. Nothing here imports a plugin."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the request to complete files."""
    return [CompletionItem(incomplete, type="file")]


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the request to complete folders."""
    return [CompletionItem(incomplete, type="dir")]


def databases(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return `default` for a prefix of it, else the request to complete files."""
    meant = incomplete and "default".startswith(incomplete)
    return (
        [CompletionItem("default", help="the one that commands use without --db")]
        if meant
        else [CompletionItem(incomplete, type="file")]
    )


def targets(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of plugins, which equal those of their targets; loading plugins is slow."""
    import importlib.metadata

    names = {entry.name for entry in importlib.metadata.entry_points(group="morello")}
    return [CompletionItem(name) for name in sorted(names) if name.startswith(incomplete)]
