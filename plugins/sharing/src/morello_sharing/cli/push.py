"""`morello db push`."""

from __future__ import annotations

import click

from morello import api
from morello.cli.commands.db import file_argument
from morello.cli.common import PATH, closed_at_end
from morello.progress import Spinner
from morello_sharing.exchange import push
from morello_sharing.keys import VARIABLE, private_key


@click.command("push")
@file_argument
@click.argument("address", metavar="ADDRESS")
@click.option("--key", metavar="PRIVATE.pem", type=PATH, help=f"The private key.  [default: the text in {VARIABLE}]")
def command(file: str, address: str, key: str | None) -> None:
    """Sign the answers of FILE and write them to ADDRESS: a folder, s3://BUCKET/FOLDER, or any other of fsspec.

    Sign the verified answers for installed targets. Those that the key has signed there before are kept.
    """
    private = private_key(key)
    store = closed_at_end(api.open_database(file))
    with Spinner(f"pushing {file}", "the push; readers see the answers pushed before"):
        found = push(store, address, private)
    for one in found:
        sent = f"{one.new:,} of {one.objects:,} objects are new: {one.bytes:,} bytes"
        click.echo(f"{one.target}: {one.rectangles:,} rectangles; {sent}")
    if not found:
        click.echo(f"nothing to push: {store.name} has no verified answers for installed targets")
