"""`morello map`: programs by what mappers propose, and how far they are from bounds and from what search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import click

from morello.bounds.certificate import Certificate, Cut, certificate, cuts_of
from morello.cli.common import Made, json_option, make, print_json, tell_sizes, with_goals
from morello.db.store import SpecStore
from morello.errors import MorelloError, PluginError, Undecided, suggestion
from morello.frontend.diagnostics import quoted
from morello.goals import Goal
from morello.ir.impl import Leaf
from morello.kernels.target import Target
from morello.mappers import mapped, mappers_for
from morello.mappers.mapped import Mapped
from morello.plugins.mapper import Mapper
from morello.plugins.registry import installed
from morello.report.tables import Column, print_table
from morello.schedule import Position


@attrs.frozen
class Compared:
    """Programs by mappers for a Spec, and what they are compared with: that of search, and the bounds."""

    goal: Goal
    cuts: tuple[Cut, ...]
    programs: tuple[Mapped, ...]
    #: Reasons of other mappers that have no program, by name.
    faults: Mapping[str, MorelloError]
    #: None where search does not come to a program.
    made: Made | None
    certified: Certificate | None

    @property
    def boundaries(self) -> list[str]:
        """Return the names of the cuts."""
        return [cut.between(self.goal.target) for cut in self.cuts]

    @property
    def found(self) -> tuple[int, list[int]] | None:
        """Return cost of the program that search finds, and the bytes that it moves across each cut."""
        if self.made is None:
            return None
        impl, target = self.made.kernel.impl, self.goal.target
        return self.made.kernel.cost, [mapped.moved(impl, target, cut.level) for cut in self.cuts]


@click.command("map")
@with_goals
@click.option("--mapper", "names", metavar="NAME", multiple=True, help="Only this mapper; may be given several times.")
@click.option(
    "--objective",
    type=click.Choice([*mapped.OBJECTIVES]),
    default="cost",
    help="What the best of a mapper's proposals has least of: cost, or bytes moved at all boundaries together."
    "  [default: cost]",
)
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of random mappers.  [default: 0]"
)
@click.option("--list", "listed", is_flag=True, help="List the mappers of the target, and do nothing else.")
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    names: Sequence[str],
    objective: str,
    seed: int,
    listed: bool,
    as_json: bool,
) -> None:
    """Make programs for the Specs of FILE by what mappers propose, and compare them with search and with bounds.

    A mapper proposes tiles for each level of memory without a search, as steps of a schedule; a small search completes
    them. Schedules in FILE are left aside.

    \b
    cost        of the best of the mapper's proposals
    of search   how many times that is what the program costs that search finds
    of bound    and what any program costs at least, where that is proven: see `morello bound`
    A ⇄ B       bytes that it moves between these levels, and how many times that is the least of any program
    """
    told: list[dict[str, Any]] = []
    for goal in goals:
        chosen = _chosen(goal.target, names)
        if listed:
            told += [{"target": goal.target.name, "name": one.name, "does": one.description} for one in chosen]
            continue
        compared = _compared(goal, db, chosen, seed, objective)
        if as_json:
            told.append(_as_dict(compared, seed, objective))
        else:
            _print(compared)
    if listed and not as_json:
        rows = dict.fromkeys((one["target"], one["name"], one["does"]) for one in told)
        print_table([Column("target"), Column("mapper"), Column("proposes", wraps=True)], [*rows])
    if as_json:
        print_json(told)


def _chosen(target: Target, names: Sequence[str]) -> list[Mapper]:
    """Return the mappers of these names, all without. Raises MorelloError for one that the target does not have."""
    known = mappers_for(target.name, installed())
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"its mappers are {', '.join(known)}")
            raise MorelloError(f"{target.name} has no mapper {quoted(name)}", hint)
    return [known[name] for name in dict.fromkeys(names or known)]


def _compared(goal: Goal, db: SpecStore | None, mappers: Sequence[Mapper], seed: int, objective: str) -> Compared:
    goal = attrs.evolve(goal, position=Position(Leaf(goal.spec)), before_search=None)
    cuts = cuts_of(goal.spec, goal.target)
    mapping = mapped.Mapping(goal, cuts)
    programs: list[Mapped] = []
    faults: dict[str, MorelloError] = {}
    for mapper in mappers:
        try:
            programs.append(mapping.best(mapper, seed, objective))
        except PluginError:
            raise
        except MorelloError as error:
            faults[mapper.name] = error
    if not programs:
        name, error = next(iter(faults.items()))
        raise MorelloError(f"{goal.name}, {name}: {error.message}", error.hint) from error
    try:
        made = make(goal, db)
    except Undecided:
        made = None
    return Compared(goal, cuts, tuple(programs), faults, made, _certified(goal))


def _certified(goal: Goal) -> Certificate | None:
    try:
        return certificate(goal.spec, goal.target)
    except MorelloError:
        return None


def _print(compared: Compared) -> None:
    goal, found, certified = compared.goal, compared.found, compared.certified
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    tell_sizes(goal)
    numbers = [Column(name, number=True, spare=one + 1) for one, name in enumerate(compared.boundaries)]
    columns = [Column("mapper"), Column("cost", number=True), Column("of search", number=True)]
    columns += [Column("of bound", number=True), *numbers]
    rows = [_row(compared, one.mapper, one.cost, one.moved) for one in compared.programs]
    rows += [[name, *["–"] * (len(columns) - 1)] for name in compared.faults]
    rows += [_row(compared, "search", *found)] if found else []
    rows.append(
        [
            "bound",
            f"{certified.cost:,}" if certified else "–",
            _ratio(certified and certified.cost, found and found[0]),
            "",
            *(f"{cut.traffic.bytes:,}     " for cut in compared.cuts),
        ]
    )
    print_table(columns, rows)
    click.echo(f"search: {compared.made.proof}" if compared.made else "search: no program yet; --effort N goes on")
    for one in compared.programs:
        click.echo(f"\n{one.mapper}:")
        click.echo("".join(f"    {line}\n" for line in (*one.text.splitlines(), "synthesize")), nl=False)
        for statement, why in one.refused:
            click.echo(f"  passed over `{statement}`: {why}")
    for name, error in compared.faults.items():
        click.echo(f"\n{name}: {error.message}")
    click.echo()


def _row(compared: Compared, name: str, cost: int, moved: Sequence[int]) -> list[str]:
    found, certified = compared.found, compared.certified
    return [
        name,
        f"{cost:,}",
        _ratio(cost, found and found[0]),
        _ratio(cost, certified and certified.cost),
        *(f"{count:,} {_ratio(count, cut.traffic.bytes):>4}" for count, cut in zip(moved, compared.cuts, strict=True)),
    ]


def _ratio(one: int | None, other: int | None) -> str:
    return f"{one / other:.2f}" if one is not None and other else "–"


def _as_dict(compared: Compared, seed: int, objective: str) -> dict[str, Any]:
    goal, found, certified = compared.goal, compared.found, compared.certified
    names = compared.boundaries
    return {
        "name": goal.name,
        "target": goal.target.name,
        "profile": goal.target.profile,
        "spec": goal.plain.text(goal.spec.logical),
        "objective": objective,
        "seed": seed,
        "mappers": [
            {
                "name": one.mapper,
                "schedule": one.text.splitlines(),
                "refused": [{"statement": statement, "why": why} for statement, why in one.refused],
                "cost": one.cost,
                "bytes": dict(zip(names, one.moved, strict=True)),
            }
            for one in compared.programs
        ],
        "without": {name: error.message for name, error in compared.faults.items()},
        "search": found and {"cost": found[0], "bytes": dict(zip(names, found[1], strict=True)), **_proof(compared)},
        "bound": {
            "cost": certified and certified.cost,
            "bytes": {name: cut.traffic.bytes for name, cut in zip(names, compared.cuts, strict=True)},
        },
    }


def _proof(compared: Compared) -> dict[str, Any]:
    assert compared.made is not None
    return {"low": compared.made.kernel.low, "proven": compared.made.proven}
