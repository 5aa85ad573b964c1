"""upkeep: Show or limit the cache of built programs."""

from __future__ import annotations

from pathlib import Path

import click

from morello import api
from morello.cli.common import json_option, print_json
from morello.report.tables import Column, print_table


@click.group("cache", invoke_without_command=True)
@json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Show the cache of built libraries: its folder, contents and size; `clear` and `limit` reduce it.

    Databases of solved Specs are separate: see `morello db`.
    """
    if ctx.invoked_subcommand is not None:
        if as_json:
            raise click.UsageError(f"--json is for `morello cache`, not for {ctx.invoked_subcommand}")
        return
    found = api.cache_contents()
    if as_json:
        kinds = {kind: {"entries": count, "bytes": size} for kind, (count, size) in found.kinds.items()}
        print_json({"folder": str(found.folder), "bytes": found.bytes, "limit": found.limit, "kinds": kinds})
        return
    _print_size(found)
    columns = [Column("kind"), Column("entries", number=True), Column("bytes", number=True)]
    print_table(columns, [(kind, f"{count:,}", f"{size:,}") for kind, (count, size) in found.kinds.items()])
    database = api.default_place()
    if database is not None and Path(database).exists():
        click.echo(f"\nThe database {database} is separate: `morello db stats default`")


@command.command("clear")
def clear() -> None:
    """Remove all entries; they are built again when needed. Databases stay."""
    count, size = api.clear_cache()
    click.echo(f"{api.cache_contents().folder}: {count:,} entries of {size:,} bytes removed")


@command.command("limit")
@click.argument("size", metavar="[SIZE]", required=False)
def limit(size: str | None) -> None:
    """Limit the cache to SIZE, such as 500MB or 2GiB; without SIZE, show the limit.

    The least recently used entries are removed first. MORELLO_CACHE_LIMIT overrides SIZE.
    """
    wanted = None if size is None else api.parse_size(size)
    if size is not None and wanted is None:
        raise click.BadParameter(f"{size!r} is not a size, such as 500MB or 2GiB", param_hint="SIZE")
    if wanted is not None:
        api.limit_cache(wanted)
    found = api.cache_contents()
    _print_size(found)
    if wanted not in (None, found.limit):
        click.echo("warning: MORELLO_CACHE_LIMIT is set, and overrides SIZE", err=True)


def _print_size(found: api.CacheContents) -> None:
    click.echo(f"{found.folder}: {found.bytes:,} bytes of at most {found.limit:,}")
