"""upkeep: Fill a database: solve the Specs of FILE, or a family of them."""

from __future__ import annotations

import click

from morello.api.precomputing import is_spec, parse_families, precompute, specs_up_to
from morello.cli import completion
from morello.cli.common import closed_at_end, memory_option, named, profile_option
from morello.db.default import default_path
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.paths import make_private


@click.command("precompute")
@click.argument("what", metavar="FILE|SPEC", shell_complete=completion.files)
@click.option(
    "--up-to",
    "bound",
    metavar="SIZES",
    required=True,
    help="The largest sizes, such as 1x512x512x512: one a dimension.",
)
@click.option("--spec", "name", metavar="NAME", help="Only the Spec of this name.")
@click.option(
    "--target",
    metavar="NAME",
    shell_complete=completion.targets,
    help="Solve for this target; required if FILE does not name one.",
)
@profile_option
@click.option(
    "--db",
    "path",
    metavar="PATH",
    shell_complete=completion.files,
    help="Store answers in this file instead of the default database.",
)
@memory_option("End when the process takes so much memory, such as 4GiB; answers found so far are kept.")
def command(
    what: str, bound: str, name: str | None, target: str | None, profile: str | None, path: str | None, memory: int
) -> None:
    """Fill a database: solve the Specs of FILE, or a SPEC such as "Matmul(1x1x1x1, GL, GL, GL)", in many sizes.

    Solve all combinations of sizes that are powers of two up to the bound of their dimension, or the bound itself. The
    sizes in FILE and its schedules are ignored. Each of these Specs compiles without a search from then on.

    Stored answers are not searched for again: after Ctrl-C, the same command continues.
    """
    if name is not None and is_spec(what):
        raise click.UsageError("--spec chooses a Spec of a FILE, and this is a Spec")
    found = parse_families(what, target, profile)
    if name is not None:
        found = {name: named(found, name, what)}
    specs = dict.fromkeys(spec for one in found.values() for spec in specs_up_to(bound, one))
    store = closed_at_end(_store(path))
    click.echo(precompute(next(iter(found.values())).target, specs, store, memory).summary())


def _store(given: str | None) -> SpecStore:
    if given is not None:
        return SpecStore(given)
    path = default_path()
    if path is None:
        raise MorelloError("the default database is switched off", "give one with --db PATH")
    make_private(path.parent)
    return SpecStore(path)
