"""`morello db`: looks after databases of solved Specs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from morello.cli import completion
from morello.cli.common import closed_at_end, json_option, print_json
from morello.cli.output import write_file
from morello.cli.plot import draw
from morello.db import exchange, measured, proof, upkeep
from morello.db.block import AnswerKind, Entry
from morello.db.default import default_path
from morello.db.fingerprint import fingerprint
from morello.db.store import SpecStore
from morello.errors import MorelloError, PluginError
from morello.ir.impl import Node, cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.progress import Spinner
from morello.report.tables import Column, print_table
from morello.search.session import SearchSession

#: Specs with larger iteration spaces take too long to solve again.
_POINTS = 512


@click.group("db")
def command() -> None:
    """Look after databases of solved Specs.

    FILE is a database; `default` stands for the one that commands use without --db.
    """


file_argument = click.argument("file", metavar="FILE", shell_complete=completion.databases)


trust_option = click.option("--trust", is_flag=True, help="Take it for FILE's own: you made it yourself.")


def _open(file: str, *, new: bool = False) -> SpecStore:
    """Return the database of this name. Raises MorelloError if there is none, unless it may be `new`."""
    path = Path(file)
    if file == "default":
        found = default_path()
        if found is None:
            raise MorelloError("the default database is switched off", "unset MORELLO_DB, or give a path")
        path = found
    if not new and not path.exists():
        raise MorelloError(f"there is no database {path}", "give the path of one that exists")
    return closed_at_end(SpecStore(path))


def _targets(*, all_of_them: bool = False) -> list[Target]:
    """Return all targets with all profiles; those that are faulty are left out, or raise PluginError."""
    registry, found = installed(), []
    for name in registry.names:
        try:
            found += registry.variants(name)
        except PluginError as error:
            if all_of_them:
                raise
            click.echo(f"warning: going on without target {name}: {error}", err=True)
    return found


@command.command("stats")
@file_argument
@json_option
@click.option("--tables", "listed", metavar="N", type=click.IntRange(0), default=0, help="List the N largest tables.")
@click.option(
    "--plot",
    metavar="PNG",
    shell_complete=completion.files,
    help="Draw the rectangles of a table, over two of its axes.",
)
@click.option("--table", "number", metavar="N", type=int, help="The table to draw.  [default: the largest]")
@click.option("--axes", metavar="X,Y", help="The axes to draw, e.g. m,n or k,L1.  [default: the last two sizes]")
def stats(file: str, as_json: bool, listed: int, plot: str | None, number: int | None, axes: str | None) -> None:
    """Count what is in FILE.

    \b
    tables      kinds of Specs: those of one differ in sizes and limits only
    rectangles  ranges of sizes and limits with one answer per point of the iteration space
    foreign     rectangles that are another's word, as `merge` and `import` mark them
    Specs       all combinations of sizes and limits that they cover, each counted once
    exact       Specs whose optimum is known
    none        Specs that have no program
    lower       Specs of which only a lower bound of the cost is known: these are not solved
    unproven    Specs whose best program so far is kept, which need not be the cheapest
    """
    if plot is None and (number is not None or axes is not None):
        raise click.UsageError("--table and --axes say what --plot draws: give --plot too")
    store = _open(file)
    if plot is not None:
        draw(store, plot, number, axes)
        return
    found = upkeep.summaries(store)
    size = _bytes_on_disk(store.path)
    total = sum(one.weight for one in found)
    current = {*map(fingerprint, _targets())} if found else set()
    rows = [_counted(one, round(size * one.weight / max(1, total)), one.print.hash in current) for one in found]
    if as_json:
        counts = measured.counts(store.file)
        print_json({"file": str(store.path), "bytes": size, "fingerprints": rows, "measured": counts})
        return
    click.echo(f"{store.path}: {size:,} bytes")
    if counts := measured.counts(store.file):
        told = ", ".join(f"{count} for {target}" for target, count in sorted(counts.items()))
        click.echo(f"measured programs: {told}; see `morello db measured`")
    if not rows:
        click.echo("nothing is stored")
        return
    _print_overview(rows)
    if listed:
        click.echo()
        _print_largest(store, listed)


def _bytes_on_disk(path: Path) -> int:
    """Of the file, and of the log that belongs to it."""
    return sum(one.stat().st_size for one in (path, path.with_name(f"{path.name}-wal")) if one.exists())


def _counted(summary: upkeep.Summary, size: int, current: bool) -> dict[str, object]:
    return {
        "fingerprint": summary.print.hash,
        "target": summary.print.target,
        "current": current,
        "tables": summary.tables,
        "rectangles": summary.boxes,
        "foreign": summary.foreign,
        "specs": summary.specs,
        "exact": summary.exact,
        "none": summary.none,
        "lower": summary.lower,
        "unproven": summary.unproven,
        "specs_per_rectangle": summary.specs / max(1, summary.boxes),
        "bytes": size,
        "bytes_per_spec": size / max(1, summary.specs),
    }


def _print_overview(rows: Sequence[dict[str, object]]) -> None:
    """Print one column per fingerprint."""
    columns = [Column("fingerprint"), *(Column(str(row["fingerprint"])[:12], number=True) for row in rows)]
    names = ("tables", "rectangles", "foreign", "specs", "exact", "none", "lower", "unproven", "bytes")
    lines = [("target", *(f"{row['target']}{'' if row['current'] else ' (not as installed)'}" for row in rows))]
    lines += [("Specs" if name == "specs" else name, *(f"{row[name]:,}" for row in rows)) for name in names]
    lines.append(("Specs per rectangle", *(f"{row['specs_per_rectangle']:,.1f}" for row in rows)))
    lines.append(("bytes per Spec", *(f"{row['bytes_per_spec']:.3g}" for row in rows)))
    print_table(columns, lines)


def _print_largest(store: SpecStore, count: int) -> None:
    tables = [(len(stored.boxes), stored.header) for _, stored, _ in exchange.stored_tables(store)]
    columns = [Column("table", number=True), Column("rectangles", number=True), Column("Specs", wraps=True)]
    largest = sorted(tables, key=lambda one: (-one[0], one[1].id))[:count]
    print_table(columns, [(str(header.id), f"{boxes:,}", header.labels) for boxes, header in largest])


@command.command("measured")
@file_argument
@click.option("--drop", is_flag=True, help="Drop them.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def list_measured(ctx: click.Context, file: str, drop: bool, yes: bool) -> None:
    """List the programs in FILE that `morello tune` measured to be the fastest.

    They are used on machines of the same kind, with the same compiler and threads. A time proves nothing of other
    programs, so they answer no Spec.
    """
    store = _open(file)
    counts = measured.counts(store.file)
    found = [(target, *one) for target in sorted(counts) for one in measured.specs(store.file, target)]
    columns = [Column("target"), Column("Spec", wraps=True), Column("machine", wraps=True), Column("gain", number=True)]
    rows = [(target, key, str(one.machine), f"{one.gain:.3f}") for target, key, one in found]
    if rows:
        print_table(columns, rows)
    else:
        click.echo("no measured programs are stored")
    if drop and rows:
        if not yes and not _agreed(f"\ndrop these from {store.path}?"):
            click.echo("nothing was dropped")
            ctx.exit(1)
        click.echo(f"dropped {measured.drop(store.file):,} measured programs")


@command.command("verify")
@file_argument
@click.option("--sample", metavar="N", type=click.IntRange(0), default=20, show_default=True, help="Entries to solve.")
@click.option("--seed", metavar="N", type=int, default=0, show_default=True, help="Seed of the random choice.")
@click.option(
    "--points",
    metavar="N",
    type=click.IntRange(1),
    default=_POINTS,
    show_default=True,
    help="Solve Specs with up to this many points in their iteration space.",
)
@click.option("--recompute", is_flag=True, help="Prove what is another's word: search for all of it again.")
@click.option("--limit", metavar="N", type=click.IntRange(0), help="Prove at most N rectangles.  [default: all]")
@click.pass_context
def verify(
    ctx: click.Context, file: str, sample: int, seed: int, points: int, recompute: bool, limit: int | None
) -> None:
    """Check FILE for damage, then solve a random sample of its entries again and report any that differ.

    With --recompute, solve all that is another's word instead: what is right is FILE's own from then on, what is wrong
    is removed and reported.
    """
    if limit is not None and not recompute:
        raise click.UsageError("--limit says how much --recompute proves: give --recompute too")
    store = _open(file)
    faults = [*upkeep.damage(store, _targets())]
    for fault in faults:
        click.echo(f"error: damaged: {fault}", err=True)
    if faults:
        click.echo("  hint: delete the file, and what was in it is searched again", err=True)
        ctx.exit(1)
    if recompute:
        _recompute(ctx, store, limit, points)
        return
    solved, wrong = upkeep.differences(store, _targets(), _solve, sample=sample, seed=seed, points=points)
    _report(wrong)
    if wrong:
        hint = "delete the file: it was written by a faulty program"
        click.echo(f"  hint: {hint}", err=True)
        ctx.exit(1)
    click.echo(f"{store.path} is whole; {solved} of its entries were solved again, with the same answers")


def _recompute(ctx: click.Context, store: SpecStore, limit: int | None, points: int) -> None:
    with Spinner("proving answers from elsewhere", "while proving; what was proven before is stored"):
        outcome = proof.recompute(store, _targets(), _solve, limit=limit, points=points)
    _report(outcome.wrong)
    told = f"{outcome.proven:,} foreign rectangles are right, {len(outcome.wrong):,} wrong and removed"
    left = f"\n{outcome.left:,} are left: of other targets, of more than {points:,} points, or beyond --limit"
    click.echo(f"{store.path}: {told}{left if outcome.left else ''}", err=bool(outcome.wrong))
    if outcome.wrong:
        click.echo("  hint: do not trust where they came from; what they answered is searched when asked", err=True)
        ctx.exit(1)


def _report(wrong: Sequence[upkeep.Difference]) -> None:
    for one in wrong:
        what = f"{one.spec.logical} within {list(one.spec.limits)} on {one.target.name}"
        click.echo(f"error: {what}: stored is {_told(one.stored)}, solved {_told(one.solved)}", err=True)


def _told(entry: Entry) -> str:
    if entry.kind == AnswerKind.NONE:
        return "that there is no program"
    if entry.kind == AnswerKind.LOWER:
        return f"a cost of at least {entry.cost:,}"
    return f"cost {entry.cost:,} with peak {list(entry.peak)} by `{entry.step}`"


def _solve(target: Target, specs: Sequence[Spec]) -> list[Entry]:
    """Return the answers that search finds to Specs."""
    nothing = tuple(0 for _ in target.levels)
    entries = []
    for impl in SearchSession(target).programs(specs):
        if isinstance(impl, Node):
            found = cost_and_peak(impl)
            entries.append(Entry(found.cost, AnswerKind.EXACT, tuple(found.peak), str(impl.expansion.step)))
        else:
            entries.append(Entry(0, AnswerKind.NONE, nothing, None))
    return entries


@command.command("merge")
@file_argument
@click.argument("others", metavar="OTHERS...", shell_complete=completion.databases, nargs=-1, required=True)
@trust_option
def merge(file: str, others: Sequence[str], trust: bool) -> None:
    """Add to FILE what is in OTHERS; FILE is made if it does not exist.

    What comes from elsewhere is marked as another's word: it is used where it has a program that is as good as it
    says, and `morello db verify --recompute` proves that none is better.

    If answers contradict each other, they are reported and FILE stays as it is.
    """
    found = [_open(other) for other in others]
    exchange.merge(_open(file, new=True), found, trust=trust)


@command.command("export")
@file_argument
@click.option(
    "-o", "out", metavar="OUT", shell_complete=completion.files, help="Write this file instead of standard output."
)
def export(file: str, out: str | None) -> None:
    """Print FILE as text: JSON, a line for each rectangle, after a line for each fingerprint and each table."""
    lines = exchange.exported(_open(file))
    if out is None:
        for line in lines:
            click.echo(line)
    else:
        write_file(out, "".join(f"{line}\n" for line in lines).encode())


@command.command("import")
@file_argument
@click.argument("text", metavar="[TEXT]", shell_complete=completion.files, default="-")
@trust_option
def import_text(file: str, text: str, trust: bool) -> None:
    """Add to FILE what `export` wrote to TEXT, or standard input; FILE is made if it does not exist.

    It is marked as another's word, as `merge` does.
    """
    with _lines(text) as lines:
        sheets = exchange.imported(lines, "standard input" if text == "-" else text)
        found = [*exchange.batches(sheets if trust else exchange.doubted(sheets))]
    store = _open(file, new=True)
    store.file.check()
    store.add_boxes(found)


@contextlib.contextmanager
def _lines(text: str) -> Iterator[Iterator[str]]:
    if text == "-":
        yield iter(sys.stdin)
        return
    try:
        with open(text, encoding="utf-8") as stream:
            yield stream
    except UnicodeDecodeError as error:
        raise MorelloError(f"{text} is no text in UTF-8", "give a file that `morello db export` wrote") from error


@command.command("prune")
@file_argument
@click.option("--lower", is_flag=True, help="Also drop lower bounds, and programs that are not proven.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Only show what would be dropped.")
@click.pass_context
def prune(ctx: click.Context, file: str, lower: bool, yes: bool, dry_run: bool) -> None:
    """Drop from FILE what belongs to no installed target as it is now, and make FILE as small as it can be.

    It shows what would go, and asks.
    """
    store, targets = _open(file), _targets(all_of_them=True)
    if left_out := dict.fromkeys(one.plugin.name for one in installed().disabled):
        raise MorelloError(
            f"plugins are disabled, so it is not known what belongs to their targets: {', '.join(left_out)}",
            "`morello targets` says why: mend them, or uninstall them",
        )
    doomed, before = upkeep.prunable(store, targets, lower=lower), _bytes_on_disk(store.path)
    if doomed:
        _print_doomed(doomed, before)
    if dry_run:
        click.echo("nothing was dropped" if doomed else "there is nothing to drop")
        return
    if doomed and not yes and not _agreed(f"\ndrop this from {store.path}?"):
        click.echo("nothing was dropped")
        ctx.exit(1)
    prints, boxes = upkeep.prune(store, targets, lower=lower)
    after = _bytes_on_disk(store.path)
    click.echo(f"dropped {prints:,} fingerprints and {boxes:,} rectangles: {before:,} bytes became {after:,}")


def _print_doomed(doomed: Sequence[upkeep.Pruning], size: int) -> None:
    columns = [Column("drop"), Column("target", wraps=True), Column("rectangles", number=True)]
    columns += [Column("unproven", number=True), Column("bytes, about", number=True)]
    rows = [
        (
            one.print.hash[:12] if one.whole else "bounds",
            f"{one.print.target}{' (not as installed)' if one.whole else ''}",
            f"{one.rectangles:,}",
            f"{one.unproven:,}",
            f"{round(size * one.share):,}",
        )
        for one in doomed
    ]
    print_table(columns, rows)


def _agreed(question: str) -> bool:
    """Ask the user. Raises MorelloError where there is nobody to ask."""
    if not sys.stdin.isatty():
        raise MorelloError("there is nobody to ask", "give --yes to drop it, or --dry-run to only look")
    return click.confirm(question)
