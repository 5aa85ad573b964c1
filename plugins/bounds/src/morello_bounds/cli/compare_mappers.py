"""`morello compare-mappers`: how good programs by mappers are, how fast they run, and how soon they are found."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.cli.common import cc_option, facts_of, json_option, make, print_json, tell_sizes, with_goals_of_files
from morello.cli.figures import figures, save
from morello.db.store import SpecStore
from morello.errors import MorelloError, PluginError, Undecided
from morello.goals import Goal
from morello.progress import Doing
from morello.report.tables import Column, print_table
from morello.runtime.timing import duration
from morello.runtime.toolchain import find_compiler
from morello_bounds.certificate import cuts_of
from morello_bounds.cli.map import certified, chosen_mappers, ratio, unscheduled
from morello_bounds.hooks import Mapper
from morello_bounds.mappers.mapped import Mapping, seconds_of

SEARCH = "search"


@attrs.frozen
class Entry:
    """The program of a mapper, or of search: what it costs, the seconds of a call, and of CPU until it was found.

    Where there is no program, `fault` says why.
    """

    name: str
    took: float
    cost: int | None = None
    seconds: float | None = None
    fault: str = ""


@attrs.frozen
class Compared:
    """The programs for a Spec; that of search is the last one. `low` is proven of all programs of its space."""

    goal: Goal
    entries: tuple[Entry, ...]
    bound: int | None
    low: int

    @property
    def search(self) -> Entry:
        """Return what search comes to."""
        return self.entries[-1]

    @property
    def proven(self) -> bool:
        """Return True if the program of search is the optimum."""
        return self.search.cost is not None and self.low >= self.search.cost

    def costs(self, one: Entry) -> float | None:
        """Return how many times the cost of search's program one costs."""
        return _over(one.cost, self.search.cost)

    def runs(self, one: Entry) -> float | None:
        """Return how many times as long as search's program one runs."""
        return _over(one.seconds, self.search.seconds)


@click.command("compare-mappers")
@with_goals_of_files
@click.option("--mapper", "names", metavar="NAME", multiple=True, help="Only this mapper; may be given several times.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(min=0), default=0, help="Seed of random mappers.  [default: 0]"
)
@click.option("--no-time", is_flag=True, help="Neither build programs nor measure them.")
@click.option("--plot", metavar="FILE", help="Draw costs and times over the time to solution, such as mappers.svg.")
@cc_option
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    names: Sequence[str],
    seed: int,
    no_time: bool,
    plot: str | None,
    cc: str | None,
    as_json: bool,
) -> None:
    """Compare programs by mappers for all Specs of the files, each from scratch, and that of search.

    Each mapper's program is that of least cost of its proposals, as for `morello map`. Schedules are left aside.

    \b
    cost        of the program
    of bound    how many times that is what any program costs at least, as is proven without a search
    of search   how many times it is the cost of search's program: the optimum, where the last line says so
    time        the least of a call, of CPU time
    of search   how many times it is that of search's program
    found in    seconds of CPU until the program was there

    With several Specs a last table has for each mapper the geometric means of both ratios, the largest ones, and the
    seconds for all Specs.
    """
    if not no_time:
        find_compiler(cc)  # before the search, so that a mistake costs no time
    if plot is not None:
        figures()
    mappers = [chosen_mappers(goal.target, names) for goal in goals]
    found = [_compared(goal, db, ours, seed, cc, not no_time) for goal, ours in zip(goals, mappers, strict=True)]
    if plot is not None:
        _draw(found, plot)
    if as_json:
        print_json([_as_dict(one, seed) for one in found])
        return
    for one in found:
        _print(one)
    if len(found) > 1:
        _summarize(found)


def _compared(
    goal: Goal, db: SpecStore | None, mappers: Sequence[Mapper], seed: int, cc: str | None, timed: bool
) -> Compared:
    goal = unscheduled(goal)
    cuts = cuts_of(goal.spec, goal.target)
    programs: dict[str, Goal] = {}
    entries: list[Entry] = []
    for mapper in mappers:
        with Doing(f"mapping {goal.name} by {mapper.name}"):
            start = time.process_time()
            try:
                best = Mapping(goal, cuts).best(mapper, seed)
            except PluginError:
                raise
            except MorelloError as error:
                entries.append(Entry(mapper.name, time.process_time() - start, fault=error.message))
            else:
                entries.append(Entry(mapper.name, time.process_time() - start, best.cost))
                programs[mapper.name] = best.goal
    start = time.process_time()
    try:
        kernel = make(goal, db).kernel
    except Undecided as error:
        entries.append(Entry(SEARCH, time.process_time() - start, fault=error.message))
        low = 1
    else:
        entries.append(Entry(SEARCH, time.process_time() - start, kernel.cost))
        programs[SEARCH], low = kernel.goal, kernel.low
    if timed:
        with Doing(f"timing {goal.name}"):
            seconds = {name: seconds_of(program, cc) for name, program in programs.items()}
        entries = [attrs.evolve(one, seconds=seconds.get(one.name)) for one in entries]
    bound = certified(goal)
    return Compared(goal, tuple(entries), bound and bound.cost, low)


def _over(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _print(compared: Compared) -> None:
    goal = compared.goal
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    tell_sizes(goal)
    names = ("cost", "of bound", "of search", "time", "of search", "found in")
    rows = [
        [
            one.name,
            "–" if one.cost is None else f"{one.cost:,}",
            ratio(one.cost, compared.bound),
            ratio(one.cost, compared.search.cost),
            "–" if one.seconds is None else duration(one.seconds),
            ratio(one.seconds, compared.search.seconds),
            f"{one.took:.2f} s",
        ]
        for one in compared.entries
    ]
    print_table([Column("mapper"), *(Column(name, number=True) for name in names)], rows)
    for one in compared.entries:
        if one.fault:
            click.echo(f"{one.name}: {one.fault}")
    if compared.search.cost is not None:
        share = 100 * compared.low / compared.search.cost
        click.echo("search: optimal" if compared.proven else f"search: at least {share:.0f} % of it is needed (proven)")
    click.echo()


def _summarize(found: Sequence[Compared]) -> None:
    columns = [Column("mapper"), Column("Specs", number=True)]
    columns += [Column(name, number=True) for name in ("cost", "most", "time", "most", "found in")]
    rows = [_means(found, name) for name in _names(found)]
    click.echo(f"all {len(found)} Specs, as multiples of search")
    print_table(columns, rows)


def _names(found: Sequence[Compared]) -> list[str]:
    mappers = dict.fromkeys(entry.name for one in found for entry in one.entries[:-1])
    return [*mappers, SEARCH]


def _means(found: Sequence[Compared], name: str) -> list[str]:
    pairs = [(one, entry) for one in found for entry in one.entries if entry.name == name]
    costs = [value for one, entry in pairs if (value := one.costs(entry)) is not None]
    times = [value for one, entry in pairs if (value := one.runs(entry)) is not None]
    took = sum(entry.took for _, entry in pairs)
    return [name, str(len(costs)), *_mean_and_most(costs), *_mean_and_most(times), f"{took:.1f} s"]


def _mean_and_most(values: Sequence[float]) -> list[str]:
    if not values:
        return ["–", "–"]
    return [f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}", f"{max(values):.2f}"]


def _draw(found: Sequence[Compared], path: str) -> None:
    """Draw a point for each Spec and mapper: cost and time, beside those of search, over the seconds until found."""
    figure = figures().Figure(figsize=(9, 4.5), layout="constrained")
    planes = figure.subplots(1, 2, sharex=True)
    for plane, value, label in (
        (planes[0], Compared.costs, "cost, as a multiple of search's"),
        (planes[1], Compared.runs, "time of a call, as a multiple of search's"),
    ):
        for number, name in enumerate(_names(found)):
            points = [
                (entry.took, over)
                for one in found
                for entry in one.entries
                if entry.name == name and (over := value(one, entry)) is not None
            ]
            if points:
                marker = "o^sDvPX*<>hd"[number % 12]
                plane.scatter(*zip(*points, strict=True), s=22, marker=marker, label=name, alpha=0.75)
        plane.axhline(1, color="black", linewidth=0.8)
        plane.set_xscale("log")
        plane.set_yscale("log")
        plane.set_xlabel("found in, seconds of CPU")
        plane.set_ylabel(label)
    planes[0].legend(fontsize=8)
    save(figure, path)


def _as_dict(compared: Compared, seed: int) -> dict[str, Any]:
    goal = compared.goal
    return {
        **facts_of(goal),
        "seed": seed,
        "bound": compared.bound,
        "proven": compared.proven,
        "low": compared.low,
        "programs": [
            {
                "mapper": one.name,
                "cost": one.cost,
                "of_bound": _over(one.cost, compared.bound),
                "of_search": compared.costs(one),
                "seconds": one.seconds,
                "seconds_of_search": compared.runs(one),
                "found_in": one.took,
                "fault": one.fault or None,
            }
            for one in compared.entries
        ],
    }
