"""`morello map`: programs from the proposals of mappers, compared with the bounds and with the program of search."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.cli.common import Made, cc_option, facts_of, json_option, make, print_json, with_goals_of_files
from morello.cli.figures import figures, save
from morello.db.store import SpecStore
from morello.errors import MorelloError, PluginError, Undecided, suggestion
from morello.frontend.diagnostics import quoted
from morello.ir.impl import Leaf
from morello.kernels.target import Target
from morello.progress import Spinner
from morello.report.tables import Column, print_table
from morello.run.timing import duration
from morello.schedule import Position
from morello_bounds.certificate import Cut, certificate, cuts_of
from morello_bounds.cli import print_head, seed_option
from morello_bounds.hooks import Mapper
from morello_bounds.mappers import mappers_for
from morello_bounds.mappers.history import History
from morello_bounds.mappers.mapped import OBJECTIVES, TIME, Completion, MappedProgram, seconds_of
from morello_bounds.traffic import program_traffic

SEARCH = "search"


@attrs.frozen
class MapperResult:
    """The best program of a mapper or of search, or its `fault`.

    `found_in` is in CPU seconds, `bytes` has those moved across each cut, `seconds` is the time of a call if measured.
    """

    name: str
    found_in: float
    cost: int | None = None
    bytes: tuple[int, ...] = ()
    seconds: float | None = None
    goal: Goal | None = None
    #: The proposal; None for search.
    mapped: MappedProgram | None = None
    fault: MorelloError | None = None


@attrs.frozen
class MapperComparison:
    """The results of mappers for a Spec, the one of search, and the certified lower bound on cost, if there is one."""

    goal: Goal
    cuts: tuple[Cut, ...]
    mappers: tuple[MapperResult, ...]
    search: MapperResult
    made: Made | None
    bound: int | None

    @property
    def results(self) -> tuple[MapperResult, ...]:
        return (*self.mappers, self.search)

    @property
    def boundaries(self) -> list[str]:
        return [cut.between(self.goal.target) for cut in self.cuts]

    @property
    def low(self) -> int:
        """Return the lower bound on cost that search has proven."""
        return self.made.kernel.low if self.made else 1

    def of_bound(self, one: MapperResult) -> float | None:
        return _ratio(one.cost, self.bound)

    def relative_cost(self, one: MapperResult) -> float | None:
        """Return the cost of a program divided by that of search's program."""
        return _ratio(one.cost, self.search.cost)

    def relative_time(self, one: MapperResult) -> float | None:
        return _ratio(one.seconds, self.search.seconds)

    def cells(self, one: MapperResult, *columns: str) -> list[str]:
        """Return the cells of a result in these columns."""
        cells = {
            "cost": _text(one.cost, "{:,}"),
            "of search": _text(self.relative_cost(one)),
            "of bound": _text(self.of_bound(one)),
            "time": "–" if one.seconds is None else duration(one.seconds),
            "time of search": _text(self.relative_time(one)),
            "found in": f"{one.found_in:.2f} s",
        }
        return [cells[column] for column in columns]


@click.command("map")
@with_goals_of_files
@click.option("--mapper", "names", metavar="NAME", multiple=True, help="Only this mapper; repeatable.")
@click.option(
    "--objective",
    type=click.Choice([*OBJECTIVES]),
    default="cost",
    help="Choose the proposal with the least cost, bytes moved at all boundaries, or measured time.  [default: cost]",
)
@seed_option("Seed of random mappers.")
@click.option(
    "--history",
    metavar="FILE",
    help="Let `bo` learn from the trials of other Specs in FILE, and append its own; made if it does not exist.",
)
@click.option(
    "--compare", is_flag=True, help="Show how good, how fast and how soon each mapper's program is, each from scratch."
)
@click.option("--no-time", is_flag=True, help="With --compare: neither build programs nor measure them.")
@click.option("--plot", metavar="FILE", help="With --compare: draw costs and times over the CPU time until found.")
@cc_option
@click.option("--list", "listed", is_flag=True, help="Only list the mappers of the target.")
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    names: Sequence[str],
    objective: str,
    seed: int,
    history: str | None,
    compare: bool,
    no_time: bool,
    plot: str | None,
    cc: str | None,
    listed: bool,
    as_json: bool,
) -> None:
    """Make programs from the proposals of mappers, and compare them with search and with bounds.

    A mapper proposes tiles for each memory level without a search, as steps of a schedule; a small search completes
    them. Schedules in the files are ignored.

    \b
    cost        of the mapper's best proposal
    of search   cost divided by that of the program that search finds
    of bound    cost divided by the certified lower bound: see `morello bound`
    time        of a call, in CPU time, where it is measured
    A ⇄ B       bytes moved between these levels, and their ratio to the least of any program
    found in    CPU seconds until the program was found (--compare)

    With --compare, the second `of search` is of times, and several Specs get a table of geometric means and maxima.
    """
    if not compare and (no_time or plot is not None):
        raise click.UsageError(f"{'--no-time' if no_time else '--plot'} needs --compare")
    known = None if history is None else History(Path(history), objective)
    chosen = [_chosen(goal.target, names, known) for goal in goals]
    if listed:
        _list(goals, chosen, as_json)
        return
    timed = not no_time if compare else objective == TIME
    if timed:
        find_compiler(cc)  # before the search, so that an error appears early
    if plot is not None:
        figures()
    run = _Run(objective, seed, cc, compare, timed)
    reports: list[dict[str, Any]] = []
    found: list[MapperComparison] = []
    for goal, mappers in zip(goals, chosen, strict=True):
        unscheduled = attrs.evolve(goal, position=Position(Leaf(goal.spec)), before_search=None)
        one = _compared(unscheduled, run, db, mappers)
        found.append(one)
        if as_json:
            how = {} if compare else {"objective": objective}
            facts = {**facts_of(goal), **how, "seed": seed}
            reports.append({**facts, **(_comparison_as_dict(one) if compare else _programs_as_dict(one))})
        else:
            print_head(goal)
            (_print_comparison if compare else _print_programs)(one)
            click.echo()
    if plot is not None:
        _draw(found, plot)
    if as_json:
        print_json(reports)
    elif compare and len(found) > 1:
        _print_means(found)


def _chosen(target: Target, names: Sequence[str], history: History | None) -> list[Mapper]:
    """Return the mappers of these names, all by default. Raises MorelloError for one that the target does not have."""
    known = mappers_for(target.name, history)
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"its mappers are {', '.join(known)}")
            raise MorelloError(f"{target.name} has no mapper {quoted(name)}", hint)
    return [known[name] for name in dict.fromkeys(names or known)]


def _list(goals: Sequence[Goal], chosen: Sequence[Sequence[Mapper]], as_json: bool) -> None:
    """Print the mappers of each target."""
    pairs = zip(goals, chosen, strict=True)
    rows = dict.fromkeys((goal.target.name, one.name, one.description) for goal, mappers in pairs for one in mappers)
    if as_json:
        print_json([dict(zip(("target", "name", "does"), row, strict=True)) for row in rows])
    else:
        print_table([Column("target"), Column("mapper"), Column("proposes", wraps=True)], [*rows])


@attrs.frozen
class _Run:
    """The settings of a run: `fresh` mappers share no searches; programs are `timed` or not."""

    objective: str
    seed: int
    compiler: str | None
    fresh: bool
    timed: bool


def _compared(goal: Goal, run: _Run, db: SpecStore | None, mappers: Sequence[Mapper]) -> MapperComparison:
    """Run mappers and search. Raises MorelloError if no mapper has a program, unless they run from scratch."""
    cuts = cuts_of(goal.spec, goal.target)
    completion = Completion(goal, cuts, compiler=run.compiler)
    results: list[MapperResult] = []
    for mapper in mappers:
        completion = Completion(goal, cuts, compiler=run.compiler) if run.fresh else completion
        results.append(_mapped(goal, run, completion, mapper))
    if not run.fresh and all(one.fault for one in results) and (fault := results[0].fault):
        raise MorelloError(f"{goal.name}, {results[0].name}: {fault.message}", fault.hint) from fault
    made, search = _searched(goal, cuts, db)
    if run.timed:
        with Spinner(f"timing {goal.name}"):
            *results, search = [
                one
                if one.goal is None or one.seconds is not None
                else attrs.evolve(one, seconds=seconds_of(one.goal, run.compiler))
                for one in (*results, search)
            ]
    try:
        bound = certificate(goal.spec, goal.target).cost
    except MorelloError:
        bound = None
    return MapperComparison(goal, cuts, tuple(results), search, made, bound)


def _mapped(goal: Goal, run: _Run, completion: Completion, mapper: Mapper) -> MapperResult:
    """Return the best program of a mapper, or its fault. Raises PluginError for a mapper that is broken."""
    start = time.process_time()
    with Spinner(f"mapping {goal.name} by {mapper.name}"):
        try:
            best = completion.best(mapper, run.seed, run.objective)
        except PluginError:
            raise
        except MorelloError as error:
            return MapperResult(mapper.name, time.process_time() - start, fault=error)
    took = time.process_time() - start
    return MapperResult(mapper.name, took, best.cost, best.moved, best.seconds, best.goal, best)


def _searched(goal: Goal, cuts: Sequence[Cut], db: SpecStore | None) -> tuple[Made | None, MapperResult]:
    """Return the kernel that search finds for a goal, and the same as a result."""
    start = time.process_time()
    try:
        made = make(goal, db)
    except Undecided as error:
        return None, MapperResult(SEARCH, time.process_time() - start, fault=error)
    kernel, took = made.kernel, time.process_time() - start
    across = tuple(program_traffic(kernel.impl, goal.target, cut.level) for cut in cuts)
    return made, MapperResult(SEARCH, took, kernel.cost, across, goal=kernel.goal)


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None


def _text(one: float | None, pattern: str = "{:.2f}") -> str:
    return "–" if one is None else pattern.format(one)


def _numbers(*names: str) -> list[Column]:
    return [Column("mapper"), *(Column(name, number=True) for name in names)]


def _print_programs(compared: MapperComparison) -> None:
    """Print a table of programs, then the proposal of each mapper."""
    timed = ["time"] if any(one.seconds for one in compared.results) else []
    names = ["cost", "of search", "of bound", *timed]
    columns = _numbers(*names)
    columns += [Column(name, number=True, spare=one + 1) for one, name in enumerate(compared.boundaries)]
    rows: list[list[str]] = []
    for one in sorted(compared.results, key=lambda one: (one.name == SEARCH, one.fault is not None)):
        if one.name == SEARCH and one.fault:
            continue
        crossings = [
            f"{count:,} {_text(_ratio(count, cut.traffic.bytes)):>4}"
            for count, cut in zip(one.bytes, compared.cuts, strict=False)
        ]
        rows.append([one.name, *compared.cells(one, *names), *(crossings or ["–"] * len(compared.cuts))])
    bound = [
        _text(compared.bound, "{:,}"),
        _text(_ratio(compared.bound, compared.search.cost)),
        "",
        *("" for _ in timed),
    ]
    least = [f"{cut.traffic.bytes:,}     " for cut in compared.cuts]
    print_table(columns, [*rows, ["bound", *bound, *least]])
    click.echo(f"search: {compared.made.proof}" if compared.made else "search: no program yet; --effort N goes on")
    for one in compared.mappers:
        if one.mapped is not None:
            click.echo(f"\n{one.name}:")
            click.echo("".join(f"    {line}\n" for line in (*one.mapped.text.splitlines(), "synthesize")), nl=False)
            for statement, reason in one.mapped.refused:
                click.echo(f"  skipped `{statement}`: {reason}")
    for one in compared.mappers:
        if one.fault is not None:
            click.echo(f"\n{one.name}: {one.fault.message}")


def _print_comparison(compared: MapperComparison) -> None:
    """Print a table of costs, times and CPU seconds until found."""
    names = ("cost", "of bound", "of search", "time", "time of search", "found in")
    columns = _numbers(*(name.removeprefix("time ") for name in names))
    print_table(columns, [[one.name, *compared.cells(one, *names)] for one in compared.results])
    for one in compared.results:
        if one.fault is not None:
            click.echo(f"{one.name}: {one.fault.message}")
    if compared.search.cost is not None and compared.made is not None:
        share = 100 * compared.low / compared.search.cost
        proof = "optimal" if compared.made.proven else f"every program has at least {share:.0f} % of its cost (proven)"
        click.echo(f"search: {proof}")


def _print_means(found: Sequence[MapperComparison]) -> None:
    """Print for each mapper the geometric means and the maxima of its ratios over all Specs."""
    rows: list[list[str]] = []
    for name in _names(found):
        pairs = [(compared, one) for compared in found for one in compared.results if one.name == name]
        costs = [value for compared, one in pairs if (value := compared.relative_cost(one)) is not None]
        times = [value for compared, one in pairs if (value := compared.relative_time(one)) is not None]
        cells = [cell for values in (costs, times) for cell in (_text(_mean(values)), _text(max(values, default=None)))]
        rows.append([name, str(len(costs)), *cells, f"{sum(one.found_in for _, one in pairs):.1f} s"])
    click.echo(f"all {len(found)} Specs, as multiples of search")
    print_table(_numbers("Specs", "cost", "most", "time", "most", "found in"), rows)


def _mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _names(found: Sequence[MapperComparison]) -> list[str]:
    return [*dict.fromkeys(one.name for compared in found for one in compared.mappers), SEARCH]


def _draw(found: Sequence[MapperComparison], path: str) -> None:
    """Draw a point for each Spec and mapper: relative cost and relative time over the CPU seconds until found."""
    figure = figures().Figure(figsize=(9, 4.5), layout="constrained")
    planes = figure.subplots(1, 2, sharex=True)
    values: list[tuple[str, Callable[[MapperComparison, MapperResult], float | None]]] = [
        ("cost, as a multiple of search's", MapperComparison.relative_cost),
        ("time of a call, as a multiple of search's", MapperComparison.relative_time),
    ]
    for plane, (label, value) in zip(planes, values, strict=True):
        for number, name in enumerate(_names(found)):
            pairs = [(one.found_in, value(each, one)) for each in found for one in each.results if one.name == name]
            if points := [(at, over) for at, over in pairs if over is not None]:
                marker = "o^sDvPX*<>hd"[number % 12]
                plane.scatter(*zip(*points, strict=True), s=22, marker=marker, label=name, alpha=0.75)
        plane.axhline(1, color="black", linewidth=0.8)
        plane.set(xscale="log", yscale="log", xlabel="found in, seconds of CPU", ylabel=label)
    planes[0].legend(fontsize=8)
    save(figure, path)


def _programs_as_dict(compared: MapperComparison) -> dict[str, Any]:
    names, made = compared.boundaries, compared.made
    least = {name: cut.traffic.bytes for name, cut in zip(names, compared.cuts, strict=True)}

    def figures_of(one: MapperResult) -> dict[str, Any]:
        time_ = {} if one.seconds is None else {"seconds": one.seconds}
        return {"cost": one.cost, **time_, "bytes": dict(zip(names, one.bytes, strict=True))}

    return {
        "mappers": [
            {
                "name": one.name,
                "schedule": one.mapped.text.splitlines(),
                "refused": [{"statement": statement, "why": reason} for statement, reason in one.mapped.refused],
                **figures_of(one),
            }
            for one in compared.mappers
            if one.mapped is not None
        ],
        "without": {one.name: one.fault.message for one in compared.mappers if one.fault is not None},
        "search": made and {**figures_of(compared.search), "low": made.kernel.low, "proven": made.proven},
        "bound": {
            "cost": compared.bound,
            "bytes": least,
        },
    }


def _comparison_as_dict(compared: MapperComparison) -> dict[str, Any]:
    return {
        "bound": compared.bound,
        "proven": compared.made is not None and compared.made.proven,
        "low": compared.low,
        "programs": [
            {
                "mapper": one.name,
                "cost": one.cost,
                "of_bound": compared.of_bound(one),
                "of_search": compared.relative_cost(one),
                "seconds": one.seconds,
                "seconds_of_search": compared.relative_time(one),
                "found_in": one.found_in,
                "fault": one.fault.message if one.fault else None,
            }
            for one in compared.results
        ],
    }
