"""upkeep: Look after databases of solved Specs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from textwrap import shorten

import attrs
import click
from click.shell_completion import CompletionItem

from morello import api
from morello.atomic_write import write_file
from morello.cli.app import ExtensibleGroup
from morello.cli.common import PATH, as_group, closed_at_end, json_option, print_json
from morello.cli.figures import draw_plane, figures
from morello.errors import MorelloError
from morello.progress import Spinner
from morello.report.tables import Column, print_table


@click.group("db", cls=ExtensibleGroup)
def command() -> None:
    """Maintain databases of solved Specs.

    FILE is a database, by its path or address; `default` stands for the one that commands use without --db.
    """


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return `default` for a prefix of it, else the request to complete files."""
    if incomplete and "default".startswith(incomplete):
        return [CompletionItem("default", help="the one that commands use without --db")]
    return [CompletionItem(incomplete, type="file")]


file_argument = click.argument("file", metavar="FILE", shell_complete=_complete)
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
points_option = click.option(
    "--points",
    metavar="N",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Solve Specs with up to this many points in their iteration space.",
)


def _open(file: str, *, new: bool = False) -> api.SpecStore:
    return closed_at_end(api.open_database(file, new=new))


def _agreed(question: str) -> bool:
    """Ask the user. Raises MorelloError without a terminal."""
    if not sys.stdin.isatty():
        raise MorelloError("a confirmation needs a terminal", "give --yes to drop it, or --dry-run to only list it")
    return click.confirm(question)


@attrs.frozen
class PlotOptions:
    """Options of `stats`: a plot, and its table and axes."""

    plot: str | None
    number: int | None
    axes: str | None


@command.command("stats")
@file_argument
@json_option
@click.option("--tables", "listed", metavar="N", type=click.IntRange(0), default=0, help="List the N largest tables.")
@click.option("--plot", metavar="PNG", type=PATH, help="Draw the rectangles of a table over two axes.")
@click.option("--table", "number", metavar="N", type=int, help="The table to draw.  [default: the largest]")
@click.option("--axes", metavar="X,Y", help="The axes to draw, e.g. m,n or k,L1.  [default: the last two sizes]")
@as_group(PlotOptions, "drawn")
def stats(file: str, as_json: bool, listed: int, drawn: PlotOptions) -> None:
    """Count the contents of FILE.

    \b
    tables      kinds of Specs: those of one differ in sizes and limits only
    rectangles  ranges of sizes and limits with one answer per point of the iteration space
    unverified  rectangles that were imported, or found with the help of imported ones
    Specs       all combinations of sizes and limits in rectangles, each counted once
    exact       Specs whose optimum is known
    none        Specs that have no program
    lower       Specs with only a lower bound of the cost: these are not solved
    unproven    Specs with a stored program that need not be the cheapest
    """
    if drawn.plot is None and (drawn.number is not None or drawn.axes is not None):
        raise click.UsageError("--table and --axes are options of --plot: give --plot too")
    store = _open(file)
    if drawn.plot is not None:
        figures()
        draw_plane(api.table_plane(store, drawn.number, drawn.axes), drawn.number or 1, drawn.plot)
        return
    found = api.database_stats(store)
    data = found.as_dict()
    if as_json:
        print_json(data)
        return
    click.echo(f"{found.name}: {found.bytes:,} bytes")
    if found.measured:
        words = ", ".join(f"{count} for {target}" for target, count in found.measured.items())
        click.echo(f"measured programs: {words}; see `morello db measured`")
    if not (rows := data["fingerprints"]):
        click.echo("nothing is stored")
        return
    columns = [Column("fingerprint"), *(Column(row["fingerprint"][:12], number=True) for row in rows)]
    names = [shorten(row["target"], 60, placeholder=" …") for row in rows]
    targets = (name + ("" if row["current"] else " (not as installed)") for name, row in zip(names, rows, strict=True))
    lines = [("target", *targets)]
    for name in ("tables", "rectangles", "unverified", "specs", "exact", "none", "lower", "unproven", "bytes"):
        lines.append(("Specs" if name == "specs" else name, *(f"{row[name]:,}" for row in rows)))
    print_table(columns, lines)
    if listed:
        click.echo()
        columns = [Column("table", number=True), Column("rectangles", number=True), Column("Specs", wraps=True)]
        tables = enumerate(api.largest_tables(store)[:listed], 1)
        print_table(columns, [(str(i), f"{len(one.boxes):,}", one.labels) for i, one in tables])


@command.command("measured")
@file_argument
@click.option("--drop", is_flag=True, help="Drop them.")
@yes_option
@click.pass_context
def list_measured(ctx: click.Context, file: str, drop: bool, yes: bool) -> None:
    """List the programs in FILE that `morello tune` measured to be the fastest.

    They are used on machines of the same kind, with the same compiler and threads. They answer no Spec, since a time
    proves nothing about other programs.
    """
    store = _open(file)
    found = api.measured_programs(store)
    if not found:
        click.echo("no measured programs are stored")
        return
    columns = [Column("target"), Column("Spec", wraps=True), Column("machine", wraps=True), Column("gain", number=True)]
    print_table(columns, [(target, key, str(one.machine), f"{one.gain:.3f}") for target, key, one in found])
    if drop:
        if not yes and not _agreed(f"\ndrop these from {store.name}?"):
            click.echo("nothing was dropped")
            ctx.exit(1)
        click.echo(f"dropped {api.drop_measured(store):,} measured programs")


@attrs.frozen
class SampleOptions:
    """Options of `verify`: the number of answers to solve again, the seed that draws them, their largest Spec."""

    sample: int
    seed: int
    points: int


@command.command("verify")
@file_argument
@click.option("--sample", metavar="N", type=click.IntRange(0), default=20, show_default=True, help="Answers to check.")
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Seed of the random choice.")
@points_option
@click.option("--recompute", is_flag=True, help="Search again for all unverified answers.")
@click.option("--limit", metavar="N", type=click.IntRange(0), help="Prove at most N rectangles.  [default: all]")
@as_group(SampleOptions, "drawn")
@click.pass_context
def verify(ctx: click.Context, file: str, drawn: SampleOptions, recompute: bool, limit: int | None) -> None:
    """Check FILE for damage, then solve a random sample of its answers again and list those that differ.

    With --recompute, solve all unverified answers instead: right ones become verified, wrong ones are removed and
    listed.
    """
    if limit is not None and not recompute:
        raise click.UsageError("--limit is an option of --recompute: give --recompute too")
    opened = _open(file)
    store = opened.whole()
    if recompute and store is not opened:
        hint = f"`morello db import FILE {opened.name}`, then verify FILE"
        raise MorelloError(f"--recompute changes a file, and {opened.name} is none", hint)
    targets = api.targets_of(store)
    faults = [*api.damage(store, targets)]
    for fault in faults:
        click.echo(f"error: damaged: {fault}", err=True)
    if faults:
        click.echo("  hint: delete the file, and its answers are searched for again", err=True)
        ctx.exit(1)
    if not recompute:
        solved, wrong = api.differences(store, targets, **attrs.asdict(drawn))
        _list_wrong(ctx, wrong, "delete the file: a faulty program wrote it")
        click.echo(f"{store.name} is not damaged; {solved} of its answers were solved again, and are right")
        return
    with Spinner("proving unverified answers", "while proving; the answers proven so far are stored"):
        outcome = api.recompute(store, targets, limit=limit, points=drawn.points)
    words = f"{outcome.proven:,} unverified rectangles are right, {len(outcome.wrong):,} wrong and removed"
    if outcome.left:
        words += (
            f"\n{outcome.left:,} are left: of other targets, of more than {drawn.points:,} points, or beyond --limit"
        )
    click.echo(f"{store.name}: {words}", err=bool(outcome.wrong))
    _list_wrong(ctx, outcome.wrong, "do not trust the file they were imported from")


def _list_wrong(ctx: click.Context, wrong: Sequence[api.Difference], hint: str) -> None:
    for one in wrong:
        click.echo(f"error: {one}", err=True)
    if wrong:
        click.echo(f"  hint: {hint}", err=True)
        ctx.exit(1)


@command.command("export")
@file_argument
@click.option("-o", "out", metavar="OUT", type=PATH, help="Write this file instead of standard output.")
def export(file: str, out: str | None) -> None:
    """Print FILE as text: JSON, a line for each rectangle, after a line for each fingerprint and each table."""
    # It reads the database until it is closed.
    with closing(api.export_lines(_open(file).whole())) as lines:
        if out is None:
            for line in lines:
                click.echo(line)
        else:
            write_file(out, "".join(f"{line}\n" for line in lines).encode())


@command.command("import")
@file_argument
@click.argument("sources", metavar="[SOURCE]...", type=PATH, nargs=-1)
@click.option("--trust", is_flag=True, help="Take the answers for verified: you made SOURCE yourself.")
def import_text(file: str, sources: Sequence[str], trust: bool) -> None:
    """Add to FILE the answers of each SOURCE: a database, or text that `export` wrote.  [default: standard input]

    FILE is made if it does not exist. The answers are marked as unverified: such an answer is used if its program gives
    the stored cost, and `morello db verify --recompute` proves that none is cheaper. If answers contradict each other,
    they are listed and FILE stays as it is.
    """
    tables = [table for source in sources or ["-"] for table in api.read_source(source)]
    api.import_tables(_open(file, new=True), tables, trust=trust)


@command.command("prune")
@file_argument
@click.option("--lower", is_flag=True, help="Also drop lower bounds, and programs that are not proven.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@click.pass_context
def prune(ctx: click.Context, file: str, lower: bool, yes: bool, dry_run: bool) -> None:
    """Drop the answers in FILE that belong to no installed target as it is now, and compact FILE.

    List them and ask for confirmation.
    """
    store = _open(file)
    outdated, others = api.outdated(store)
    doomed: list[tuple[str, ...]] = []
    for one in outdated:
        name = f"{one.target} (not as installed)"
        doomed.append((one.fingerprint[:12], name, f"{one.rectangles:,}", f"{one.unproven:,}", f"{one.bytes:,}"))
    for one in others if lower else ():
        if one.lower or one.unproven:
            doomed.append(("bounds", one.target, f"{one.lower:,} Specs", f"{one.unproven:,}", ""))
    columns = [Column("drop"), Column("target", wraps=True), Column("rectangles", number=True)]
    if doomed:
        print_table([*columns, Column("unproven", number=True), Column("bytes", number=True)], doomed)
    if dry_run:
        click.echo("nothing was dropped" if doomed else "there is nothing to drop")
        return
    if doomed and not yes and not _agreed(f"\ndrop this from {store.name}?"):
        click.echo("nothing was dropped")
        ctx.exit(1)
    before = store.size()
    fingerprints, boxes = api.prune(store, api.targets_of(store, strict=True), lower=lower)
    sizes = f"{before:,} bytes became {store.size():,}"
    click.echo(f"dropped {fingerprints:,} fingerprints and {boxes:,} rectangles: {sizes}")
