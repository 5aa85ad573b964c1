"""`morello bound`: how little any program can move and cost, tiles that come close, and how close the program is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.cli.common import Made, facts_of, json_option, make, print_json, tell_sizes, with_goals
from morello.db.store import SpecStore
from morello.errors import MorelloError, Undecided
from morello.frontend.diagnostics import read_file
from morello.goals import Goal
from morello.kernels.target import Target
from morello.report.tables import Column, print_table
from morello.report.words import cost_words, size
from morello_bounds.certificate import Certificate, Cut, certificate, cuts_of, verify
from morello_bounds.moved import moved, reads_beyond
from morello_bounds.nest import is_single
from morello_bounds.proofs import checked as checked_proofs
from morello_bounds.proofs import of_prices, of_segments
from morello_bounds.randomized import Randomized, randomized
from morello_bounds.tiles import Tiling, best_tiling, largest_tile
from morello_bounds.traffic import check

_COLUMNS = [
    Column("between"),
    Column("memory", number=True, spare=4),
    Column("at least", number=True),
    Column("lines", number=True, spare=5),
    Column("because", wraps=True, spare=3),
    Column("tile", wraps=True, spare=2),
    Column("it moves", number=True, spare=1),
    Column("program", number=True),
    Column("ratio", number=True),
]


@attrs.frozen
class Boundary:
    """One boundary between levels: its cut, the tiles that come close, and the bytes that the program moves."""

    cut: Cut
    fast: str
    slow: str
    unit: int
    tiling: Tiling | None
    #: None without a program.
    program: int | None
    #: Whether kernels may read more than is counted for the program.
    more: bool

    @property
    def ratio(self) -> float | None:
        """Return how many times the bound the program moves; None for a bound of 0, or without a program."""
        if self.program is None or not self.cut.traffic.bytes:
            return None
        return self.program / self.cut.traffic.bytes


@click.command("bound")
@with_goals
@click.option("--level", metavar="NAME", help="Only the boundary behind this level, such as L1.")
@click.option("--explain", is_flag=True, help="Show the proofs: inequalities, segments, prices; and other tiles.")
@click.option("--check", "checked", is_flag=True, help="Verify all proofs anew, in exact arithmetic.")
@click.option(
    "--proofs",
    metavar="JSON",
    help="Only verify the proofs in this file, which --json printed: nothing of them is believed, nor searched for.",
)
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    level: str | None,
    explain: bool,
    checked: bool,
    proofs: str | None,
    as_json: bool,
) -> None:
    """Show what every program of FILE moves and costs at least, and how far the one found is from that.

    \b
    between   the levels on either side: registers count as one with all that is faster
    memory    that programs may hold on the fast side
    at least  the bytes that any program moves between them, in both directions
    lines     the same in lines of the slow side
    because   the inequality that says so
    tile      whole sizes that fit, in the order of the Spec, which move little: `|` is before the loop that goes first
    it moves  the bytes that they move
    program   the bytes that the program found moves; what kernels read on the slow side counts once a call
    ratio     of the program to the bound

    Then comes a cost that no program is below of all that search may make; it rests on prices, not on search: see the
    page on bounds. Bounds on bytes hold for all programs that work out each point once, in any order.
    """
    told: list[dict[str, Any]] = []
    if proofs is not None:
        _verify_file(goals, proofs, as_json)
        return
    for goal in goals:
        _check_level(goal.target, level)
        made = _made(goal, db)
        boundaries = [
            _boundary(goal, made, cut)
            for cut in cuts_of(goal.spec, goal.target)
            if level is None or goal.target.levels[cut.level - 1].name == level
        ]
        certified, why = _certified(goal)
        if checked:
            for one in boundaries:
                check(one.cut.traffic)
            if certified is not None:
                verify(certified)
        if as_json:
            told.append(_as_dict(goal, made, boundaries, certified, why, checked))
        else:
            _print(goal, made, boundaries, certified, why)
            if explain:
                _explain(goal.target, boundaries, certified)
            if checked:
                click.echo("checked: all of this holds in exact arithmetic")
            click.echo()
    if as_json:
        print_json(told)


def _verify_file(goals: Sequence[Goal], path: str, as_json: bool) -> None:
    """Verify the proofs of a file, which has one entry for each goal, by name. Raises MorelloError for a wrong one."""
    text = read_file(path)
    try:
        told = {str(one["name"]): one for one in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise MorelloError(f"{path} has no proofs: {error}", "print some: `morello bound FILE --json`") from error
    found: list[dict[str, Any]] = []
    for goal in goals:
        facts = facts_of(goal)
        if goal.name not in told:
            raise MorelloError(f"{path} has no proofs for {goal.name}", "choose the Specs that it has: --spec NAME")
        for key, own in facts.items():
            if told[goal.name].get(key) != own:
                raise MorelloError(
                    f"the proofs in {path} are for {key} {told[goal.name].get(key)}, not {own}", "make them anew"
                )
        try:
            result = checked_proofs(told[goal.name], goal.spec, goal.target)
        except MorelloError as error:
            raise MorelloError(f"{path}, {goal.name}: {error.message}", error.hint) from error
        found.append({**facts, "boundaries": len(result.cuts), "certified": result.cost, "checked": True})
        if not as_json:
            cost = "" if result.cost is None else f", and the cost of at least {result.cost:,},"
            click.echo(f"{goal.name}: bounds at {len(result.cuts)} boundaries{cost} hold in exact arithmetic")
    if as_json:
        print_json(found)


def _made(goal: Goal, db: SpecStore | None) -> Made | Undecided:
    """Return the program of a goal, or why there is none yet: bounds have no need of it."""
    try:
        return make(goal, db)
    except Undecided as error:
        return error


def _check_level(target: Target, level: str | None) -> None:
    """Raise MorelloError for a level that no boundary is behind."""
    if level is None:
        return
    behind = [fast.name for fast, slow in zip(target.levels, target.levels[1:], strict=False) if not slow.is_register]
    target.level(level)
    if level not in behind:
        raise MorelloError(f"there is no boundary behind {level}", f"there are some behind {', '.join(behind)}")


def _boundary(goal: Goal, made: Made | Undecided, cut: Cut) -> Boundary:
    target, nest = goal.target, cut.traffic.nest
    fast, slow = target.levels[cut.level - 1], target.levels[cut.level]
    tiled = is_single(goal.spec) and cut.traffic.resident <= nest.indirect
    tiling = best_tiling(nest, cut.traffic.memory) if tiled else None
    if isinstance(made, Undecided):
        return Boundary(cut, fast.name, slow.name, slow.unit, tiling, None, more=False)
    impl = made.kernel.impl
    program, more = moved(impl, target, cut.level), reads_beyond(impl, target, cut.level)
    return Boundary(cut, fast.name, slow.name, slow.unit, tiling, program, more)


def _certified(goal: Goal) -> tuple[Certificate | None, str]:
    try:
        return certificate(goal.spec, goal.target), ""
    except MorelloError as error:
        return None, error.message


def _print(
    goal: Goal,
    made: Made | Undecided,
    boundaries: Sequence[Boundary],
    certified: Certificate | None,
    why: str,
) -> None:
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    tell_sizes(goal)
    print_table(_COLUMNS, [_row(one) for one in boundaries])
    for one, numbers in _numbers(goal, boundaries):
        both = f"moves and numbers together cost at least as much as {numbers.bytes:,} bytes moved"
        click.echo(
            f"numbers  {one.slow} ⇄ {one.fast}: one costs as much as to move {float(numbers.generating):.3g} values; "
            f"{both if numbers.bytes else 'there are too few points for a bound on both'}"
        )
    if isinstance(made, Undecided):
        click.echo(f"program  none yet: {made.message}; --prove goes on")
    else:
        click.echo(f"program  costs {cost_words(made.kernel.cost, goal.target)}; {made.proof}")
    if certified is None:
        click.echo(f"no certificate of cost: {why}")
        return
    gap = "" if isinstance(made, Undecided) else f": {_gap(made.kernel.cost, certified.cost)}"
    click.echo(f"bound    costs at least {certified.cost:,}, by prices and without search{gap}")


def _gap(cost: int, least: int) -> str:
    """Return how far a program is from the certificate, in words."""
    return (
        "the schedule takes steps that search does not try"
        if cost < least
        else f"a gap of {100 * (cost / least - 1):,.1f} %"
    )


def _numbers(goal: Goal, boundaries: Sequence[Boundary]) -> list[tuple[Boundary, Randomized]]:
    """Return what is known of random numbers at boundaries, where there are any."""
    known = randomized(goal.spec, goal.target, [one.cut for one in boundaries])
    return [(one, known[one.cut.level]) for one in boundaries if one.cut.level in known]


def _row(one: Boundary) -> list[str]:
    bound, ratio = one.cut.traffic, one.ratio
    return [
        f"{one.slow} ⇄ {one.fast}",
        size(bound.memory),
        f"{bound.bytes:,}",
        f"{-(-bound.bytes // one.unit):,}",
        bound.binding,
        _tile(one.tiling) if one.tiling else "–",
        f"{one.tiling.bytes:,}" if one.tiling else "–",
        "–" if one.program is None else f"{one.program:,}",
        "–" if ratio is None else f"{ratio:.2f}",
    ]


def _tile(tiling: Tiling) -> str:
    return "×".join(f"|{part}" if loop == tiling.inner else str(part) for loop, part in enumerate(tiling.tile))


def _explain(target: Target, boundaries: Sequence[Boundary], certified: Certificate | None) -> None:
    for one in boundaries:
        bound, proof = one.cut.traffic, one.cut.traffic.segments
        click.echo(f"{one.slow} ⇄ {one.fast}: operands hold {bound.compulsory:,} bytes")
        if proof is not None:
            click.echo(
                f"  {proof.term}; a segment that loads {proof.loaded:,} bytes has at most {proof.largest():,.0f} points"
                f" of {proof.nest.points:,}: at least {float(proof.share):,.2f} segments, {proof.bytes:,} bytes"
            )
        tiles = [largest_tile(bound.nest, bound.memory, alpha) for alpha in (0.0, 0.5, 1.0)] if one.tiling else []
        for sizes, tile in {"×".join(f"{length:.3g}" for length in tile.sizes): tile for tile in tiles}.items():
            click.echo(f"  largest tile of which each operand fits alone: {sizes}, {tile.points:,.0f} points")
        if one.more:
            click.echo("  kernels of the program compute with operands beyond it, which they may read more than once")
    if certified is None:
        return
    for count, family, price in zip(certified.points, certified.families, certified.work, strict=True):
        click.echo(f"{count:,} points of {', '.join(family)}: at least {float(price):.4g} each")
    for cut, touch, again in zip(certified.cuts, certified.touch, certified.again, strict=True):
        name = cut.between(target)
        click.echo(f"{name}: {float(touch):.4g} a byte for what is touched, {float(again):.4g} for what comes again")


def _as_dict(
    goal: Goal,
    made: Made | Undecided,
    boundaries: Sequence[Boundary],
    certified: Certificate | None,
    why: str,
    checked: bool,
) -> dict[str, Any]:
    cost, low = (None, None) if isinstance(made, Undecided) else (made.kernel.cost, made.kernel.low)
    return {
        **facts_of(goal),
        "boundaries": [_boundary_dict(one) for one in boundaries],
        "numbers": [
            {
                "fast": one.fast,
                "slow": one.slow,
                "generating": float(numbers.generating),
                "memory": numbers.memory,
                "bytes": numbers.bytes,
            }
            for one, numbers in _numbers(goal, boundaries)
        ],
        "cost": cost,
        "low": low,
        "certified": None if certified is None else certified.cost,
        "why": why or None,
        "gap": None if certified is None or cost is None else cost / certified.cost - 1,
        "prices": None if certified is None else of_prices(certified, goal.target),
        "checked": checked,
    }


def _boundary_dict(one: Boundary) -> dict[str, Any]:
    bound, proof = one.cut.traffic, one.cut.traffic.segments
    return {
        "fast": one.fast,
        "slow": one.slow,
        "memory": bound.memory,
        "bytes": bound.bytes,
        "lines": -(-bound.bytes // one.unit),
        "compulsory": bound.compulsory,
        "binding": bound.binding,
        "segments": None if proof is None else of_segments(proof),
        "tile": None
        if one.tiling is None
        else {"sizes": one.tiling.tile, "inner": one.tiling.inner, "bytes": one.tiling.bytes},
        "program": one.program,
        "kernels_read_beyond": one.more,
        "ratio": one.ratio,
    }
