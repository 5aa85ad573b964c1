"""`morello map`: programs by what mappers propose, and how far they are from bounds and from what search finds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from morello.cli.common import Made, cc_option, facts_of, json_option, make, print_json, tell_sizes, with_goals
from morello.db.store import SpecStore
from morello.errors import MorelloError, PluginError, Undecided, suggestion
from morello.frontend.diagnostics import quoted
from morello.goals import Goal
from morello.ir.impl import Leaf
from morello.kernels.target import Target
from morello.report.tables import Column, print_table
from morello.runtime.timing import duration
from morello.runtime.toolchain import find_compiler
from morello.schedule import Position
from morello_bounds import certificate as certificates
from morello_bounds.certificate import Certificate, Cut, cuts_of
from morello_bounds.hooks import Mapper
from morello_bounds.mappers import mapped, mappers_for
from morello_bounds.mappers.history import History
from morello_bounds.mappers.mapped import Mapped
from morello_bounds.moved import moved


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
    #: Seconds of a call of the program that search finds, where programs are measured.
    seconds: float | None = None

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
        return self.made.kernel.cost, [moved(impl, target, cut.level) for cut in self.cuts]


@click.command("map")
@with_goals
@click.option("--mapper", "names", metavar="NAME", multiple=True, help="Only this mapper; may be given several times.")
@click.option(
    "--objective",
    type=click.Choice([*mapped.OBJECTIVES]),
    default="cost",
    help="What the best of a mapper's proposals has least of: cost, bytes moved at all boundaries together, or time, "
    "for which all are built and measured.  [default: cost]",
)
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of random mappers.  [default: 0]"
)
@click.option(
    "--history",
    metavar="FILE",
    help="Let `bo` learn from the trials of other Specs in FILE, and add its own; made if it does not exist.",
)
@cc_option
@click.option("--list", "listed", is_flag=True, help="List the mappers of the target, and do nothing else.")
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    names: Sequence[str],
    objective: str,
    seed: int,
    history: str | None,
    cc: str | None,
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
    time        of a call, where the objective is time
    A ⇄ B       bytes that it moves between these levels, and how many times that is the least of any program
    """
    if objective == mapped.TIME:
        find_compiler(cc)  # before the search, so that a mistake costs no time
    told: list[dict[str, Any]] = []
    known = None if history is None else History(Path(history), objective)
    for goal in goals:
        chosen = chosen_mappers(goal.target, names, known)
        if listed:
            told += [{"target": goal.target.name, "name": one.name, "does": one.description} for one in chosen]
            continue
        compared = _compared(goal, db, chosen, seed, objective, cc)
        if as_json:
            told.append(_as_dict(compared, seed, objective))
        else:
            _print(compared)
    if listed and not as_json:
        rows = dict.fromkeys((one["target"], one["name"], one["does"]) for one in told)
        print_table([Column("target"), Column("mapper"), Column("proposes", wraps=True)], [*rows])
    if as_json:
        print_json(told)


def chosen_mappers(target: Target, names: Sequence[str], history: History | None = None) -> list[Mapper]:
    """Return the mappers of these names, all without. Raises MorelloError for one that the target does not have."""
    known = mappers_for(target.name, history)
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"its mappers are {', '.join(known)}")
            raise MorelloError(f"{target.name} has no mapper {quoted(name)}", hint)
    return [known[name] for name in dict.fromkeys(names or known)]


def unscheduled(goal: Goal) -> Goal:
    """Return a goal without the steps that were taken."""
    return attrs.evolve(goal, position=Position(Leaf(goal.spec)), before_search=None)


def _compared(
    goal: Goal, db: SpecStore | None, mappers: Sequence[Mapper], seed: int, objective: str, cc: str | None
) -> Compared:
    goal = unscheduled(goal)
    cuts = cuts_of(goal.spec, goal.target)
    mapping = mapped.Mapping(goal, cuts, compiler=cc)
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
    seconds = mapped.seconds_of(made.kernel.goal, cc) if made and objective == mapped.TIME else None
    return Compared(goal, cuts, tuple(programs), faults, made, certified(goal), seconds)


def certified(goal: Goal) -> Certificate | None:
    """Return what is proven of all programs without a search, if anything."""
    try:
        return certificates.certificate(goal.spec, goal.target)
    except MorelloError:
        return None


def _print(compared: Compared) -> None:
    goal, found = compared.goal, compared.found
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    tell_sizes(goal)
    numbers = [Column(name, number=True, spare=one + 1) for one, name in enumerate(compared.boundaries)]
    columns = [Column("mapper"), Column("cost", number=True), Column("of search", number=True)]
    columns += [Column("of bound", number=True)]
    columns += [Column("time", number=True)] if any(one.seconds for one in compared.programs) else []
    columns += numbers
    rows = [_row(compared, one.mapper, one.cost, one.moved, one.seconds) for one in compared.programs]
    rows += [[name, *["–"] * (len(columns) - 1)] for name in compared.faults]
    rows += [_row(compared, "search", *found, compared.seconds)] if found else []
    rows.append(_bound_row(compared))
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


def _row(compared: Compared, name: str, cost: int, moved: Sequence[int], seconds: float | None) -> list[str]:
    found, certificate = compared.found, compared.certified
    return [
        name,
        f"{cost:,}",
        ratio(cost, found and found[0]),
        ratio(cost, certificate and certificate.cost),
        *([] if seconds is None else [duration(seconds)]),
        *(f"{count:,} {ratio(count, cut.traffic.bytes):>4}" for count, cut in zip(moved, compared.cuts, strict=True)),
    ]


def _bound_row(compared: Compared) -> list[str]:
    found, certificate = compared.found, compared.certified
    return [
        "bound",
        f"{certificate.cost:,}" if certificate else "–",
        ratio(certificate and certificate.cost, found and found[0]),
        "",
        *([""] if any(one.seconds for one in compared.programs) else []),
        *(f"{cut.traffic.bytes:,}     " for cut in compared.cuts),
    ]


def ratio(one: float | None, other: float | None) -> str:
    """Return how many times another number one is, in words."""
    return f"{one / other:.2f}" if one is not None and other else "–"


def _as_dict(compared: Compared, seed: int, objective: str) -> dict[str, Any]:
    goal, found, certificate = compared.goal, compared.found, compared.certified
    names = compared.boundaries
    return {
        **facts_of(goal),
        "objective": objective,
        "seed": seed,
        "mappers": [
            {
                "name": one.mapper,
                "schedule": one.text.splitlines(),
                "refused": [{"statement": statement, "why": why} for statement, why in one.refused],
                "cost": one.cost,
                **({} if one.seconds is None else {"seconds": one.seconds}),
                "bytes": dict(zip(names, one.moved, strict=True)),
            }
            for one in compared.programs
        ],
        "without": {name: error.message for name, error in compared.faults.items()},
        "search": found
        and {
            "cost": found[0],
            **({} if compared.seconds is None else {"seconds": compared.seconds}),
            "bytes": dict(zip(names, found[1], strict=True)),
            **_proof(compared),
        },
        "bound": {
            "cost": certificate and certificate.cost,
            "bytes": {name: cut.traffic.bytes for name, cut in zip(names, compared.cuts, strict=True)},
        },
    }


def _proof(compared: Compared) -> dict[str, Any]:
    assert compared.made is not None
    return {"low": compared.made.kernel.low, "proven": compared.made.proven}
