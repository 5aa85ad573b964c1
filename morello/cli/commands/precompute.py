"""upkeep: Fill a database: solve the Specs of FILE, or a family of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs
import click

from morello import api
from morello.cli.common import (
    PATH,
    as_group,
    closed_at_end,
    complete_targets,
    cpu_option,
    jobs_option,
    memory_option,
    named,
    profile_option,
)
from morello.errors import MorelloError


@attrs.frozen
class FamilyOptions:
    """Options that choose families of Specs: sizes, the Spec's name in a file, target, profile and CPU."""

    bounds: tuple[str, ...]
    sizes: str | None
    name: str | None
    target: str | None
    profile: str | None
    cpu: str | None

    def shapes(self, what: str) -> dict[api.Family, api.Shapes]:
        """Return the shapes of each family. Raises MorelloError."""
        if self.name is not None and api.is_spec(what):
            raise click.UsageError("--spec chooses a Spec of a FILE, and this is a Spec")
        found = api.parse_families(what, self.target, self.profile, self.cpu)
        if self.name is not None:
            found = {self.name: named(found, self.name, what)}
        sizes = None if self.sizes is None else api.parse_sizes(self.sizes)
        return {one: api.shapes_up_to(self.bounds, one, sizes) for one in found.values()}


@attrs.frozen
class WorkerOptions:
    """Options that choose where searches run: the number of processes, their memory, and a cluster."""

    jobs: int | None
    memory: int
    scheduler: str | None


@click.command("precompute")
@click.argument("what", metavar="FILE|SPEC", type=PATH)
@click.option(
    "--up-to",
    "bounds",
    metavar="SIZES",
    required=True,
    multiple=True,
    help="The largest sizes, such as 1x512x512x512: one a dimension. Give it again for Specs of other dimensions.",
)
@click.option(
    "--sizes",
    metavar="RANGES",
    help="The sizes up to these, such as `1,8-256/8`: 1, and 8 to 256 in steps of 8.  [default: powers of two]",
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
@jobs_option("Search in up to N processes at once, or in N workers of the cluster.")
@memory_option("Give up Specs that need so much memory, such as 4GiB, which the processes of --jobs share.")
@click.option(
    "--scheduler",
    metavar="NAME|ADDRESS",
    help="Search on a cluster of morello-cluster: at the address of Dask's scheduler, such as tcp://HOST:8786, or one "
    "started for this command by the name local, slurm or kubernetes.",
)
@as_group(FamilyOptions, "families")
@as_group(WorkerOptions, "workers")
@click.pass_context
def command(ctx: click.Context, what: str, families: FamilyOptions, path: str | None, workers: WorkerOptions) -> None:
    """Fill a database: solve the Specs of FILE, or a SPEC such as "Matmul(1x1x1x1, GL, GL, GL)", in many sizes.

    Solve all combinations of sizes that are powers of two up to the bound of their dimension, or the bound itself. The
    sizes in FILE and its schedules are ignored. Each of these Specs compiles without a search from then on.

    Stored answers are not searched for again: after Ctrl-C, the same command continues.
    """
    shapes = families.shapes(what)
    store = closed_at_end(api.open_database(path or "default", new=True))
    done = _precomputed(shapes, store, workers)
    click.echo(done.summary())
    for spec, error in done.failed:
        reason = str(error) if isinstance(error, MorelloError) else f"the workers died: {error}"
        click.echo(f"error: {spec.logical.short()}, and smaller Specs of its group: {reason}", err=True)
    if done.failed:
        ctx.exit(1)


def _precomputed(
    shapes: Mapping[api.Family, api.Shapes], store: api.SpecStore, options: WorkerOptions
) -> api.Precomputation:
    jobs, scheduler = options.jobs or 1, options.scheduler
    start = partial(api.cluster(scheduler), options.jobs) if scheduler else partial(api.Processes, jobs)
    if scheduler is None and jobs == 1:
        return api.precompute(shapes, store, options.memory)
    if scheduler not in (None, "local") and not api.is_address(store.address):
        raise MorelloError(
            f"workers of --scheduler {scheduler} cannot open the file {store.name}",
            "give the address of a server, such as --db postgresql://HOST/NAME",
        )
    memory = options.memory // jobs if scheduler in (None, "local") else None
    with start() as workers:
        return api.precompute(shapes, store, memory, workers)
