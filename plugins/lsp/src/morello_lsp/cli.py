"""The command `morello lsp`."""

from __future__ import annotations

import click

from morello_lsp.server import server


@click.command("lsp")
def command() -> None:
    """Serve an editor on standard input and output: errors, hover, completion, definitions and formatting."""
    server().start_io()
