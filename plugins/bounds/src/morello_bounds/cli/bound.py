"""`morello bound`: bytes and cost that every program needs, tilings near these bounds, and the gap of the program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.cli.common import Made, Size, facts_of, json_option, make, print_json, print_sizes, with_goals
from morello.db.store import SpecStore
from morello.errors import MorelloError, Undecided
from morello.frontend.diagnostics import read_file
from morello.kernels.machine import MemoryLevel
from morello.kernels.target import Target
from morello.report.tables import Column, print_table
from morello.report.words import cost_words, size
from morello_bounds.certificate import Certificate, Cut, certificate, cuts_of, verify
from morello_bounds.cli.algorithms import compare_algorithms
from morello_bounds.cli.sensitivity import MODELS, print_sensitivity
from morello_bounds.nest import is_single
from morello_bounds.proofs import prices_as_json, segments_as_json, verify_json
from morello_bounds.randomized import RandomProduct, random_products
from morello_bounds.tiles import Tiling, best_tiling, largest_tile
from morello_bounds.traffic import check, program_traffic, reads_beyond

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
#: The options that belong to a mode of the command.
_MODES = {
    "algorithms": {"fast_memory": "--fast-memory", "plot": "--plot"},
    "sensitivity": {"model": "--of", "samples": "--samples", "seed": "--seed"},
}


@attrs.frozen
class Boundary:
    """A boundary between levels: its bound, a tiling near it, and the bytes that the program moves, if there is one."""

    cut: Cut
    fast: MemoryLevel
    slow: MemoryLevel
    tiling: Tiling | None
    program: int | None = None
    #: Whether kernels of the program may read more than `program` counts.
    reads_beyond: bool = False

    @property
    def name(self) -> str:
        """Return the names of both levels."""
        return f"{self.slow.name} ⇄ {self.fast.name}"

    @property
    def lines(self) -> int:
        """Return the bound in lines of the slow level."""
        return -(-self.cut.traffic.bytes // self.slow.unit)

    @property
    def ratio(self) -> float | None:
        """Return the bytes of the program divided by the bound; None without a program or for a bound of 0."""
        if self.program is None or not self.cut.traffic.bytes:
            return None
        return self.program / self.cut.traffic.bytes


@attrs.frozen
class BoundReport:
    """All bounds of a goal, and its program or the reason why search has none."""

    goal: Goal
    made: Made | Undecided
    boundaries: list[Boundary]
    #: None where no cost can be certified, for this reason.
    certified: Certificate | None
    reason: str

    @classmethod
    def of(cls, goal: Goal, db: SpecStore | None, level: str | None) -> BoundReport:
        """Return the report of a goal; for one boundary only if a level is given."""
        try:
            made = make(goal, db)
        except Undecided as error:
            made = error
        cuts = cuts_of(goal.spec, goal.target)
        chosen = [cut for cut in cuts if level is None or goal.target.levels[cut.level - 1].name == level]
        boundaries = [_boundary(goal, made, cut) for cut in chosen]
        try:
            return cls(goal, made, boundaries, certificate(goal.spec, goal.target), "")
        except MorelloError as error:
            return cls(goal, made, boundaries, None, error.message)

    @property
    def cost(self) -> int | None:
        """Return the cost of the program, if there is one."""
        return None if isinstance(self.made, Undecided) else self.made.kernel.cost

    @property
    def gap(self) -> float | None:
        """Return by which share the program costs more than the certified bound."""
        return None if self.certified is None or self.cost is None else self.cost / self.certified.cost - 1

    @property
    def numbers(self) -> list[tuple[Boundary, RandomProduct]]:
        """Return the boundaries with a bound on moves and random numbers together."""
        known = random_products(self.goal.spec, self.goal.target, [one.cut for one in self.boundaries])
        return [(one, known[one.cut.level]) for one in self.boundaries if one.cut.level in known]

    def verify(self) -> None:
        """Verify all proofs in exact arithmetic. Raises MorelloError for one that does not hold."""
        for one in self.boundaries:
            check(one.cut.traffic)
        if self.certified is not None:
            verify(self.certified)


@click.command("bound")
@with_goals
@click.option("--level", metavar="NAME", help="Only the boundary behind this level, such as L1.")
@click.option("--explain", is_flag=True, help="Show the proofs: inequalities, segments, prices; and other tiles.")
@click.option("--check", "checked", is_flag=True, help="Verify all proofs in exact arithmetic.")
@click.option(
    "--proofs",
    metavar="JSON",
    help="Only verify the proofs in this file, written by --json, without a search.",
)
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
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    help="With --sensitivity: seed of the samples.  [default: 0]",
)
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    level: str | None,
    explain: bool,
    checked: bool,
    proofs: str | None,
    algorithms: bool,
    fast_memory: Sequence[int],
    plot: str | None,
    sensitivity: bool,
    model: str,
    samples: int,
    seed: int,
    as_json: bool,
) -> None:
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
    _check_mode(algorithms, sensitivity)
    if algorithms:
        compare_algorithms(goals, fast_memory, plot, as_json)
        return
    if sensitivity:
        print_sensitivity(goals, model, samples, seed, as_json)
        return
    if proofs is not None:
        _verify_file(goals, proofs, as_json)
        return
    reports: list[dict[str, Any]] = []
    for goal in goals:
        _check_level(goal.target, level)
        report = BoundReport.of(goal, db, level)
        if checked:
            report.verify()
        if as_json:
            reports.append(_as_dict(report, checked))
            continue
        _print(report)
        if explain:
            _explain(report)
        if checked:
            click.echo("checked: all proofs hold in exact arithmetic")
        click.echo()
    if as_json:
        print_json(reports)


def _check_mode(algorithms: bool, sensitivity: bool) -> None:
    """Raise UsageError for two modes at once, and for options of a mode that is not chosen."""
    if algorithms and sensitivity:
        raise click.UsageError("--algorithms and --sensitivity exclude each other")
    chosen = {"algorithms": algorithms, "sensitivity": sensitivity}
    source = click.get_current_context().get_parameter_source
    for mode, options in _MODES.items():
        for name, option in options.items():
            if not chosen[mode] and source(name) is click.core.ParameterSource.COMMANDLINE:
                raise click.UsageError(f"{option} needs --{mode}")


def _verify_file(goals: Sequence[Goal], path: str, as_json: bool) -> None:
    """Verify the proofs of a file, which has one entry for each goal, by name. Raises MorelloError for a wrong one."""
    text = read_file(path)
    try:
        entries = {str(one["name"]): one for one in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise MorelloError(f"{path} has no proofs: {error}", "write some: `morello bound FILE --json`") from error
    found: list[dict[str, Any]] = []
    for goal in goals:
        facts = facts_of(goal)
        if goal.name not in entries:
            raise MorelloError(f"{path} has no proofs for {goal.name}", "choose one of its Specs: --spec NAME")
        entry = entries[goal.name]
        for key, own in facts.items():
            if entry.get(key) != own:
                reason = f"the proofs in {path} are for {key} {entry.get(key)}, not {own}"
                raise MorelloError(reason, "write new ones: `morello bound FILE --json`")
        try:
            result = verify_json(entry, goal.spec, goal.target)
        except MorelloError as error:
            raise MorelloError(f"{path}, {goal.name}: {error.message}", error.hint) from error
        found.append({**facts, "boundaries": len(result.cuts), "certified": result.cost, "checked": True})
        if not as_json:
            cost = "" if result.cost is None else f", and the cost of at least {result.cost:,},"
            click.echo(f"{goal.name}: bounds at {len(result.cuts)} boundaries{cost} hold in exact arithmetic")
    if as_json:
        print_json(found)


def _check_level(target: Target, level: str | None) -> None:
    """Raise MorelloError for a level that no boundary is behind."""
    if level is None:
        return
    behind = [fast.name for fast, slow in zip(target.levels, target.levels[1:], strict=False) if not slow.is_register]
    target.level(level)
    if level not in behind:
        raise MorelloError(f"there is no boundary behind {level}", f"boundaries are behind {', '.join(behind)}")


def _boundary(goal: Goal, made: Made | Undecided, cut: Cut) -> Boundary:
    target, nest = goal.target, cut.traffic.nest
    tiled = is_single(goal.spec) and cut.traffic.resident <= nest.indirect
    tiling = best_tiling(nest, cut.traffic.memory) if tiled else None
    found = Boundary(cut, target.levels[cut.level - 1], target.levels[cut.level], tiling)
    if isinstance(made, Undecided):
        return found
    impl = made.kernel.impl
    return attrs.evolve(
        found, program=program_traffic(impl, target, cut.level), reads_beyond=reads_beyond(impl, target, cut.level)
    )


def _print(report: BoundReport) -> None:
    goal, made, certified = report.goal, report.made, report.certified
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    print_sizes(goal)
    print_table(_COLUMNS, [_row(one) for one in report.boundaries])
    for one, numbers in report.numbers:
        both = f"moves and numbers together cost at least as much as moving {numbers.bytes:,} bytes"
        click.echo(
            f"numbers  {one.name}: generating one costs as much as moving {float(numbers.generating):.3g} values; "
            f"{both if numbers.bytes else 'there are too few points for a bound on both'}"
        )
    if isinstance(made, Undecided):
        click.echo(f"program  none yet: {made.message}; --prove goes on")
    else:
        click.echo(f"program  costs {cost_words(made.kernel.cost, goal.target)}; {made.proof}")
    if certified is None:
        click.echo(f"bound    no cost is certified: {report.reason}")
        return
    click.echo(f"bound    costs at least {certified.cost:,}, proven without a search{_gap(report)}")


def _gap(report: BoundReport) -> str:
    """Return the gap between program and certificate in words."""
    if report.gap is None:
        return ""
    return f": a gap of {100 * report.gap:,.1f} %" if report.gap >= 0 else ": the schedule has steps that search lacks"


def _row(one: Boundary) -> list[str]:
    bound, ratio = one.cut.traffic, one.ratio
    return [
        one.name,
        size(bound.memory),
        f"{bound.bytes:,}",
        f"{one.lines:,}",
        bound.binding,
        _tile(one.tiling) if one.tiling else "–",
        f"{one.tiling.bytes:,}" if one.tiling else "–",
        "–" if one.program is None else f"{one.program:,}",
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def _tile(tiling: Tiling) -> str:
    return "×".join(f"|{part}" if loop == tiling.inner else str(part) for loop, part in enumerate(tiling.tile))


def _explain(report: BoundReport) -> None:
    """Print the proofs of a report."""
    for one in report.boundaries:
        bound, proof = one.cut.traffic, one.cut.traffic.segments
        click.echo(f"{one.name}: operands hold {bound.compulsory:,} bytes")
        if proof is not None:
            click.echo(
                f"  {proof.term}; a segment that loads {proof.loaded:,} bytes has at most {proof.largest():,.0f} points"
                f" of {proof.nest.points:,}: at least {float(proof.share):,.2f} segments, {proof.bytes:,} bytes"
            )
        tiles = [largest_tile(bound.nest, bound.memory, alpha) for alpha in (0.0, 0.5, 1.0)] if one.tiling else []
        for sizes, tile in {"×".join(f"{length:.3g}" for length in tile.sizes): tile for tile in tiles}.items():
            click.echo(f"  largest tile whose operands fit one at a time: {sizes}, {tile.points:,.0f} points")
        if one.reads_beyond:
            click.echo("  kernels of the program have operands on the slow side, which they may read more than once")
    certified = report.certified
    if certified is None:
        return
    for count, family, price in zip(certified.points, certified.families, certified.work, strict=True):
        click.echo(f"{count:,} points of {', '.join(family)}: at least {float(price):.4g} each")
    for cut, touch, again in zip(certified.cuts, certified.touch, certified.again, strict=True):
        name = cut.between(report.goal.target)
        click.echo(f"{name}: {float(touch):.4g} per byte moved once, {float(again):.4g} per byte moved again")


def _as_dict(report: BoundReport, checked: bool) -> dict[str, Any]:
    made, certified = report.made, report.certified
    return {
        **facts_of(report.goal),
        "boundaries": [_boundary_as_dict(one) for one in report.boundaries],
        "numbers": [
            {
                "fast": one.fast.name,
                "slow": one.slow.name,
                "generating": float(numbers.generating),
                "memory": numbers.memory,
                "bytes": numbers.bytes,
            }
            for one, numbers in report.numbers
        ],
        "cost": report.cost,
        "low": None if isinstance(made, Undecided) else made.kernel.low,
        "certified": None if certified is None else certified.cost,
        "why": report.reason or None,
        "gap": report.gap,
        "prices": None if certified is None else prices_as_json(certified, report.goal.target),
        "checked": checked,
    }


def _boundary_as_dict(one: Boundary) -> dict[str, Any]:
    bound, proof, tiling = one.cut.traffic, one.cut.traffic.segments, one.tiling
    return {
        "fast": one.fast.name,
        "slow": one.slow.name,
        "memory": bound.memory,
        "bytes": bound.bytes,
        "lines": one.lines,
        "compulsory": bound.compulsory,
        "binding": bound.binding,
        "segments": None if proof is None else segments_as_json(proof),
        "tile": tiling and {"sizes": tiling.tile, "inner": tiling.inner, "bytes": tiling.bytes},
        "program": one.program,
        "kernels_read_beyond": one.reads_beyond,
        "ratio": one.ratio,
    }
