"""`morello bound`: bytes and cost that every program needs, tilings near these bounds, and the gap of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.cli.common import SearchOptions, Size, json_option, measured_option, print_json, with_goals, with_steps
from morello.cli.kernels import make, proof_of
from morello.errors import MorelloError
from morello.report.tables import Column, print_table
from morello.report.words import cost_words, size
from morello.untrusted import parse_json, read_file
from morello_bounds.cli import facts_of, print_head, seed_option
from morello_bounds.cli.algorithms import compare_algorithms
from morello_bounds.report import Boundary, BoundReport, bound, verify_json
from morello_bounds.sensitivity import MODELS, MovesModel, sobol_indices
from morello_bounds.tiles import Tiling, largest_tile

_COLUMNS = [
    Column("between"),
    Column("memory", number=True, spare=4),
    Column("at least", number=True),
    Column("lines", number=True, spare=5),
    Column("because", wraps=True, spare=3),
    Column("tile", wraps=True, spare=2),
    Column("tile moves", number=True, spare=1),
    Column("program", number=True),
    Column("ratio", number=True),
]
_SENSITIVITY_COLUMNS = [
    Column("input"),
    Column("kind", spare=2),
    Column("alone", number=True),
    Column("±", number=True, spare=1),
    Column("in all", number=True),
    Column("±", number=True, spare=1),
]
#: The modes of the command, and the parameters and options that belong to them.
_OPTIONS = [
    ("algorithms", "fast_memory", "--fast-memory"),
    ("algorithms", "plot", "--plot"),
    ("sensitivity", "model", "--of"),
    ("sensitivity", "samples", "--samples"),
    ("sensitivity", "seed", "--seed"),
]


@click.command("bound")
@with_goals
@with_steps
@click.option("--level", metavar="NAME", help="Only the boundary behind this level, such as L1.")
@click.option("--explain", is_flag=True, help="Show the proofs: inequalities, segments, prices; and other tiles.")
@click.option("--check", "checked", is_flag=True, help="Verify all proofs in exact arithmetic.")
@click.option("--proofs", metavar="JSON", help="Only verify the proofs in this file of --json, without a search.")
@click.option("--algorithms", is_flag=True, help="Compare algorithms for convolutions with the bound instead.")
@click.option(
    "--fast-memory",
    metavar="BYTES",
    type=Size(),
    multiple=True,
    help="With --algorithms: fast memory, such as 32KiB; repeatable.  [default: 4KiB, 16KiB, ..., 16MiB]",
)
@click.option("--plot", metavar="FILE", help="With --algorithms: draw the table of the only Spec, such as conv.svg.")
@click.option(
    "--sensitivity", is_flag=True, help="Show which inputs determine the cost of moves instead, by Sobol's indices."
)
@click.option(
    "--of",
    "model",
    type=click.Choice([*MODELS]),
    default="bound",
    help="With --sensitivity: the least cost of moves, or their cost in tiles of random sizes and orders."
    "  [default: bound]",
)
@click.option(
    "--samples",
    metavar="N",
    type=click.IntRange(min=2),
    default=256,
    help="With --sensitivity: a power of two; about N results are computed for each input.  [default: 256]",
)
@seed_option("With --sensitivity: seed of the samples.")
@measured_option
@json_option
def command(goals: Sequence[Goal], search: SearchOptions, as_json: bool, **options: Any) -> None:
    """Show the bytes that every program of FILE moves, the cost it has at least, and the gap of the program found.

    \b
    between     the levels on either side; registers and all that is faster count as one level
    memory      bytes that programs may hold on the fast side
    at least    bytes that every program moves between them, in both directions
    lines       the same in lines of the slow side
    because     the inequality that proves it
    tile        whole sizes that fit and move little, in the order of the Spec; the loop after `|` advances first
    tile moves  bytes that this tile moves
    program     bytes that the program moves; reads of kernels on the slow side count once per call
    ratio       program / at least

    The last line is a lower bound on the cost of all programs that search can make, proven without a search. Bounds on
    bytes hold for all programs that compute each point once, in any order.

    --algorithms compares direct tiling, im2col, Winograd's F(2×2), Fourier transforms, and a loop that keeps nothing,
    as multiples of the bound. Winograd and Fourier transforms multiply less than the bound assumes: both may be lower.

    --sensitivity shows the share of the variance that each input explains `alone` and `in all`, that is together with
    others, each with its 95 % error.
    """
    _check_mode(**options)
    if options["algorithms"]:
        compare_algorithms(goals, options["fast_memory"], options["plot"], as_json)
    elif options["sensitivity"]:
        _print_sensitivity(goals, options["model"], options["samples"], options["seed"], as_json)
    elif options["proofs"] is not None:
        _verify_file(goals, options["proofs"], as_json)
    else:
        reports: list[dict[str, Any]] = []
        for goal in goals:
            report = bound(goal, lambda goal: make(goal, search).kernel, options["level"])
            if options["checked"]:
                report.verify()
            if as_json:
                reports.append({**facts_of(goal), **report.as_json(), "checked": options["checked"]})
                continue
            _print(report)
            if options["explain"]:
                _explain(report)
            if options["checked"]:
                click.echo("checked: all proofs hold in exact arithmetic")
            click.echo()
        if as_json:
            print_json(reports)


def _check_mode(algorithms: bool, sensitivity: bool, **_: Any) -> None:
    """Raise UsageError for two modes at once, and for options of a mode that is not chosen."""
    if algorithms and sensitivity:
        raise click.UsageError("--algorithms and --sensitivity exclude each other")
    chosen = {"algorithms": algorithms, "sensitivity": sensitivity}
    source = click.get_current_context().get_parameter_source
    for mode, name, option in _OPTIONS:
        if not chosen[mode] and source(name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} needs --{mode}")


def _verify_file(goals: Sequence[Goal], path: str, as_json: bool) -> None:
    """Verify the proofs of a file, which has one entry for each goal, by name. Raises MorelloError for a wrong one."""
    remedy = "write some: `morello bound FILE --json`"
    try:
        rows = parse_json(read_file(path, remedy))
        entries = {one["name"]: one for one in rows}
        if len(entries) < len(rows):
            raise ValueError("two have one name")
    except (ValueError, KeyError, TypeError) as error:
        raise MorelloError(f"{path} has no proofs: {error}", remedy) from error
    found: list[dict[str, Any]] = []
    for goal in goals:
        facts = facts_of(goal)
        if goal.name not in entries:
            raise MorelloError(f"{path} has no proofs for {goal.name}", "choose one of its Specs: --spec NAME")
        entry = {**entries[goal.name]}
        for key, own in facts.items():
            if (claimed := entry.pop(key, None)) != own:
                reason = f"the proofs in {path} are for {key} {repr(claimed)[:200]}, not {own!r}"
                raise MorelloError(reason, "write new ones: `morello bound FILE --json`")
        entry.pop("checked", None)
        try:
            report = verify_json(entry, goal)
        except MorelloError as error:
            raise MorelloError(f"{path}, {goal.name}: {error.message}", error.hint) from error
        count, cost = len(report.boundaries), report.certified and report.certified.cost
        found.append({**facts, "boundaries": count, "certified": cost, "checked": True})
        if not as_json:
            words = "" if cost is None else f", and the cost of at least {cost:,},"
            click.echo(f"{goal.name}: bounds at {count} boundaries{words} hold in exact arithmetic")
    if as_json:
        print_json(found)


def _print(report: BoundReport) -> None:
    goal, kernel, certified = report.goal, report.kernel, report.certified
    print_head(goal)
    print_table(_COLUMNS, [_row(one) for one in report.boundaries])
    for level, numbers in report.numbers.items():
        slow, fast = goal.target.levels[level], goal.target.levels[level - 1]
        both = f"moves and numbers together cost at least as much as moving {numbers.bytes:,} bytes"
        click.echo(
            f"numbers  {slow.name} ⇄ {fast.name}: generating one costs as much as moving "
            f"{float(numbers.generating):.3g} values; "
            f"{both if numbers.bytes else 'there are too few points for a bound on both'}"
        )
    if kernel is None:
        click.echo(f"program  none yet: {report.undecided}; --prove goes on")
    else:
        click.echo(f"program  costs {cost_words(kernel.cost, goal.target)}; {proof_of(kernel)}")
    if certified is None:
        click.echo(f"bound    no cost is certified: {report.reason}")
        return
    gap = ""
    if report.gap is not None:
        gap = (
            f": a gap of {100 * report.gap:,.1f} %" if report.gap >= 0 else ": the schedule has steps that search lacks"
        )
    click.echo(f"bound    costs at least {certified.cost:,}, proven without a search{gap}")


def _row(one: Boundary) -> list[str]:
    return [
        f"{one.slow} ⇄ {one.fast}",
        size(one.memory),
        f"{one.bytes:,}",
        f"{one.lines:,}",
        one.binding,
        _tile(one.tile) if one.tile else "–",
        f"{one.tile.bytes:,}" if one.tile else "–",
        "–" if one.program is None else f"{one.program:,}",
        "–" if one.ratio is None else f"{one.ratio:.2f}",
    ]


def _tile(tiling: Tiling) -> str:
    return "×".join(f"|{part}" if loop == tiling.inner else str(part) for loop, part in enumerate(tiling.sizes))


def _explain(report: BoundReport) -> None:
    """Print the proofs of a report."""
    for one in report.boundaries:
        nest, proof = one.cut.traffic.nest, one.segments
        click.echo(f"{one.slow} ⇄ {one.fast}: operands hold {one.compulsory:,} bytes")
        if proof is not None:
            click.echo(
                f"  {proof.term}; a segment that loads {proof.loaded:,} bytes has at most {proof.largest():,.0f} points"
                f" of {proof.nest.points:,}: at least {float(proof.share):,.2f} segments, {proof.bytes:,} bytes"
            )
        tiles = [largest_tile(nest, one.memory, alpha) for alpha in (0.0, 0.5, 1.0)] if one.tile else []
        for sizes, tile in {"×".join(f"{length:.3g}" for length in tile.sizes): tile for tile in tiles}.items():
            click.echo(f"  largest tile whose operands fit one at a time: {sizes}, {tile.points:,.0f} points")
        if one.kernels_read_beyond:
            click.echo("  kernels of the program have operands on the slow side, which they may read more than once")
    certified = report.certified
    if certified is None:
        return
    required = certified.required
    for count, family, price in zip(required.points, required.families, certified.work, strict=True):
        click.echo(f"{count:,} points of {', '.join(family)}: at least {float(price):.4g} each")
    for cut, touch, again in zip(certified.cuts, certified.touch, certified.again, strict=True):
        name = cut.between(report.goal.target)
        click.echo(f"{name}: {float(touch):.4g} per byte moved once, {float(again):.4g} per byte moved again")


def _print_sensitivity(goals: Sequence[Goal], model: str, samples: int, seed: int, as_json: bool) -> None:
    """Print a table of Sobol's indices for each goal, the largest total index first."""
    found = [
        (goal, sobol_indices(*MODELS[model](MovesModel.of(goal.spec, goal.target)), samples, seed)) for goal in goals
    ]
    if as_json:
        how = {"of": model, "samples": samples, "seed": seed}
        print_json([{**facts_of(goal), **how, "inputs": [*map(attrs.asdict, rows)]} for goal, rows in found])
        return
    for goal, rows in found:
        print_head(goal)
        cells = [
            [one.name, one.kind, *map(_percent, (one.alone, one.alone_error, one.in_all, one.in_all_error))]
            for one in sorted(rows, key=lambda one: -one.in_all)
        ]
        print_table(_SENSITIVITY_COLUMNS, cells)
        click.echo()


def _percent(share: float) -> str:
    # Estimates of an index of 0 may be slightly negative.
    return f"{100 * max(0.0, share):.0f} %"
