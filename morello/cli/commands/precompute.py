"""upkeep: Fill a database: solve the Specs of FILE, or a family of them."""

from __future__ import annotations

import attrs
import click

from morello import api
from morello.cli.common import (
    PATH,
    as_group,
    closed_at_end,
    complete_targets,
    cpu_option,
    memory_option,
    named,
    profile_option,
)


@attrs.frozen
class FamilyOptions:
    """Options that choose a family of Specs: its sizes, the Spec's name in a file, target, profile and CPU."""

    bound: str
    name: str | None
    target: str | None
    profile: str | None
    cpu: str | None


@click.command("precompute")
@click.argument("what", metavar="FILE|SPEC", type=PATH)
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
    shell_complete=complete_targets,
    help="Solve for this target; required if FILE does not name one.",
)
@profile_option
@cpu_option
@click.option(
    "--db",
    "path",
    metavar="PATH",
    type=PATH,
    help="Store answers in this file instead of the default database.",
)
@memory_option("End when the process takes so much memory, such as 4GiB; answers found so far are kept.")
@as_group(FamilyOptions, "options")
def command(what: str, options: FamilyOptions, path: str | None, memory: int) -> None:
    """Fill a database: solve the Specs of FILE, or a SPEC such as "Matmul(1x1x1x1, GL, GL, GL)", in many sizes.

    Solve all combinations of sizes that are powers of two up to the bound of their dimension, or the bound itself. The
    sizes in FILE and its schedules are ignored. Each of these Specs compiles without a search from then on.

    Stored answers are not searched for again: after Ctrl-C, the same command continues.
    """
    name = options.name
    if name is not None and api.is_spec(what):
        raise click.UsageError("--spec chooses a Spec of a FILE, and this is a Spec")
    found = api.parse_families(what, options.target, options.profile, options.cpu)
    if name is not None:
        found = {name: named(found, name, what)}
    specs = dict.fromkeys(spec for one in found.values() for spec in api.specs_up_to(options.bound, one))
    store = closed_at_end(api.open_database(path or "default", new=True))
    click.echo(api.precompute(next(iter(found.values())).target, specs, store, memory).summary())
