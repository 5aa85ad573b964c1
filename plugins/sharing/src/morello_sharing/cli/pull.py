"""`morello db pull`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from morello import api
from morello.cli.commands.db import file_argument
from morello.cli.common import PATH, closed_at_end
from morello.progress import Spinner
from morello_sharing.exchange import pull
from morello_sharing.keys import public_key


@click.command("pull")
@file_argument
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--key",
    "keys",
    metavar="PUBLIC.pem",
    type=PATH,
    multiple=True,
    required=True,
    help="Pull what this public key signed; may be repeated.",
)
@click.option("--trust", is_flag=True, help="Take the answers for verified: the keys are your own.")
def command(file: str, address: str, keys: Sequence[str], trust: bool) -> None:
    """Add to FILE signed answers from ADDRESS: a folder, https://HOST/FOLDER, s3://BUCKET/FOLDER, or any of fsspec.

    FILE is made if it does not exist. Without --trust the answers are unverified, as those of `morello db import`. If
    there are none yet, that is no error.
    """
    public = [public_key(key) for key in dict.fromkeys(keys)]
    store = closed_at_end(api.open_database(file, new=True))
    with Spinner(f"pulling {address}", "the pull; nothing was stored"):
        found = pull(store, address, public, trust=trust)
    for one in found:
        read = f"{one.rectangles:,} rectangles in {one.bytes:,} bytes" if one.bytes else "nothing new"
        click.echo(f"{one.target}: {read}, signed by {one.key}")
    if not found:
        click.echo(f"nothing to pull: {address} has no answers of these keys for installed targets")
