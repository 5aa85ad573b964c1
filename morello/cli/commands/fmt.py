"""upkeep: Write Spec files in their usual form."""

from __future__ import annotations

from pathlib import Path

import click

from morello import api
from morello.atomic_write import write_files
from morello.cli.common import PATH
from morello.errors import MorelloError
from morello.untrusted import read_file


@click.command("fmt")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=PATH)
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change, and fail if any would.")
def command(files: tuple[str, ...], check: bool) -> None:
    """Write each FILE with the usual spaces and line breaks; `-` reads standard input and writes standard output.

    Comments stay. A declaration stands on one line, or is broken after commas if it has more than 120 columns. No
    FILE is written if one of them has a syntax error.
    """
    texts = {name: read_file(Path(name)) for name in files}
    usual = {name: api.format_text(text, name) for name, text in texts.items()}
    changed = {name: text for name, text in usual.items() if text != texts[name]}
    if check:
        if changed:
            raise MorelloError(f"not in the usual form: {', '.join(changed)}", f"morello fmt {' '.join(changed)}")
        return
    if "-" in usual:
        click.echo(usual["-"], nl=False)
    write_files({name: text.encode() for name, text in changed.items() if name != "-"})
