"""`morello map`: programs from the proposals of mappers, compared with the bounds and with the program of search."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.cli.common import SearchOptions, cc_option, json_option, print_json, runner_option, with_goals_of_files
from morello.cli.figures import figures, save
from morello.cli.kernels import make, proof_of
from morello.errors import MorelloError, UnknownName, suggestion
from morello.frontend.diagnostics import quoted
from morello.ir.impl import Leaf
from morello.report.tables import Column, print_table
from morello.run.runner import timing_runner
from morello.run.timing import duration
from morello.schedule import Position
from morello_bounds.cli import facts_of, print_head, seed_option
from morello_bounds.hooks import Mapper
from morello_bounds.mappers import mappers_for
from morello_bounds.mappers.bayesian import History, bayesian
from morello_bounds.mappers.compare import SEARCH, MapOptions, MapperComparison, MapperResult, compare, ratio
from morello_bounds.mappers.mapped import OBJECTIVES, TIME, MappedProgram
from morello_bounds.mappers.ttile import TTileOptions, of_scheme, ttile


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
@click.option(
    "--scheme", metavar="TEXT", help="Make the program of a scheme of TTile, such as '[R_k, ..., U_{2,k}, V_k]'."
)
@click.option("--cold", is_flag=True, help="Measure programs with operands in memory: the median of 20 calls.")
@click.option(
    "--ttile",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="Let `ttile` keep its kernels, their heat map and a table of its programs in DIR, which is made if need be.",
)
@click.option(
    "--select",
    type=click.Choice(["model", "random"]),
    default="model",
    help="Let `ttile` try the schemes that move least, or random ones with --seed.  [default: model]",
)
@cc_option
@runner_option
@click.option("--list", "listed", is_flag=True, help="Only list the mappers of the target.")
@json_option
def command(goals: Sequence[Goal], search: SearchOptions, as_json: bool, **options: Any) -> None:
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
    compares, plot, objective = options["compare"], options["plot"], options["objective"]
    if not compares and (options["no_time"] or plot is not None):
        raise click.UsageError(f"{'--no-time' if options['no_time'] else '--plot'} needs --compare")
    own = [ttile(_ttile_options(objective, options["folder"], options["select"] == "random", search))]
    if options["history"] is not None:
        own.append(bayesian(History(Path(options["history"]), objective)))
    names = options["names"]
    if options["scheme"] is not None:
        own.append(of_scheme(options["scheme"]))
        names = (*names, own[-1].name)
    chosen = [_chosen(goal, names, own) for goal in goals]
    if options["listed"]:
        _list(goals, chosen, as_json)
        return
    timed = not options["no_time"] if compares else objective == TIME
    if options["cold"] and not timed:
        raise click.UsageError("--cold needs programs that are measured: --objective time")
    if timed:
        for target in {goal.target for goal in goals}:  # before the search, so that an error appears early
            timing_runner(target.info, search.runner)
            find_compiler(search.cc, target.info)
    if plot is not None:
        figures()
    run = MapOptions(objective, options["seed"], search.cc, search.runner, compares, timed, options["cold"])
    found: list[MapperComparison] = []
    for goal, mappers in zip(goals, chosen, strict=True):
        unscheduled = attrs.evolve(goal, position=Position(Leaf(goal.spec)), before_search=None)
        found.append(compare(unscheduled, mappers, lambda goal: make(goal, search).kernel, run))
        if not as_json:
            print_head(goal)
            (_print_comparison if compares else _print_programs)(found[-1])
            click.echo()
    if plot is not None:
        _draw(found, plot)
    if as_json:
        how = {"objective": objective, "seed": run.seed}
        print_json([{**facts_of(goal), **how, **one.as_json()} for goal, one in zip(goals, found, strict=True)])
    elif compares and len(found) > 1:
        _print_means(found)


def _ttile_options(objective: str, folder: str | None, drawn: bool, search: SearchOptions) -> TTileOptions:
    """Return the options of `ttile`: kernels are measured if programs are; a folder is made."""
    place = None if folder is None else Path(folder)
    if place is not None:
        try:
            place.mkdir(exist_ok=True)
        except OSError as error:
            raise MorelloError(f"cannot make {place}: {error.strerror or error}", "choose another folder") from error
    if objective != TIME:
        return TTileOptions(folder=place, drawn=drawn)
    return TTileOptions(
        lambda goal: MappedProgram.of(goal, ()).timed(search.cc, search.runner).seconds or 0.0, place, drawn=drawn
    )


def _chosen(goal: Goal, names: Sequence[str], own: Sequence[Mapper]) -> list[Mapper]:
    """Return the mappers of these names, all by default. Raises UnknownName for one that the target does not have."""
    known = mappers_for(goal.target.name, own)
    for name in names:
        if name not in known:
            hint = suggestion(name, known, f"its mappers are {', '.join(known)}")
            raise UnknownName(f"{goal.target.name} has no mapper {quoted(name)}", hint)
    return [known[name] for name in dict.fromkeys(names or known)]


def _list(goals: Sequence[Goal], chosen: Sequence[Sequence[Mapper]], as_json: bool) -> None:
    """Print the mappers of each target."""
    pairs = zip(goals, chosen, strict=True)
    rows = dict.fromkeys((goal.target.name, one.name, one.description) for goal, mappers in pairs for one in mappers)
    if as_json:
        print_json([dict(zip(("target", "name", "does"), row, strict=True)) for row in rows])
    else:
        print_table([Column("target"), Column("mapper"), Column("proposes", wraps=True)], [*rows])


def _text(one: float | None, pattern: str = "{:.2f}") -> str:
    return "–" if one is None else pattern.format(one)


def _numbers(*names: str) -> list[Column]:
    return [Column("mapper"), *(Column(name, number=True) for name in names)]


def _cells(compared: MapperComparison, one: MapperResult, *columns: str) -> list[str]:
    """Return the cells of a result in these columns."""
    cells = {
        "cost": _text(one.cost, "{:,}"),
        "of search": _text(compared.of_search(one)),
        "of bound": _text(compared.of_bound(one)),
        "time": "–" if one.seconds is None else duration(one.seconds),
        "time of search": _text(compared.time_of_search(one)),
        "found in": f"{one.found_in:.2f} s",
    }
    return [one.name, *(cells[column] for column in columns)]


def _print_programs(compared: MapperComparison) -> None:
    """Print a table of programs, then the proposal of each mapper."""
    timed = ["time"] if any(one.seconds for one in compared.results) else []
    names = ["cost", "of search", "of bound", *timed]
    columns = _numbers(*names)
    columns += [Column(name, number=True, spare=at + 1) for at, name in enumerate(compared.least)]
    rows: list[list[str]] = []
    for one in sorted(compared.results, key=lambda one: (one.name == SEARCH, one.fault is not None)):
        moved = zip(one.program.moved, compared.least.values(), strict=True) if one.program else ()
        crossings = [f"{count:,} {_text(ratio(count, bound)):>4}" for count, bound in moved]
        if one.program or one.name != SEARCH:
            rows.append([*_cells(compared, one, *names), *(crossings or ["–"] * len(compared.least))])
    bound = ["bound", _text(compared.bound, "{:,}"), _text(ratio(compared.bound, compared.search.cost)), ""]
    least = (f"{one:,}     " for one in compared.least.values())
    print_table(columns, [*rows, [*bound, *("" for _ in timed), *least]])
    click.echo(f"search: {proof_of(compared.kernel) if compared.kernel else 'no program yet; --effort N goes on'}")
    for one in compared.mappers:
        if one.program is not None:
            click.echo(f"\n{one.name}:")
            click.echo("".join(f"    {line}\n" for line in (*one.program.text.splitlines(), "synthesize")), nl=False)
            for statement, reason in one.program.refused:
                click.echo(f"  skipped `{statement}`: {reason}")
    for one in compared.mappers:
        if one.fault is not None:
            click.echo(f"\n{one.name}: {one.fault.message}")


def _print_comparison(compared: MapperComparison) -> None:
    """Print a table of costs, times and CPU seconds until found."""
    names = ("cost", "of bound", "of search", "time", "time of search", "found in")
    columns = _numbers(*(name.removeprefix("time ") for name in names))
    print_table(columns, [_cells(compared, one, *names) for one in compared.results])
    for one in compared.results:
        if one.fault is not None:
            click.echo(f"{one.name}: {one.fault.message}")
    if compared.search.cost is not None:
        share = 100 * compared.low / compared.search.cost
        proof = "optimal" if compared.proven else f"every program has at least {share:.0f} % of its cost (proven)"
        click.echo(f"search: {proof}")


def _print_means(found: Sequence[MapperComparison]) -> None:
    """Print for each mapper the geometric means and the maxima of its ratios over all Specs."""
    rows: list[list[str]] = []
    for name in _names(found):
        pairs = [(compared, one) for compared in found for one in compared.results if one.name == name]
        costs = [value for compared, one in pairs if (value := compared.of_search(one)) is not None]
        times = [value for compared, one in pairs if (value := compared.time_of_search(one)) is not None]
        cells = [cell for values in (costs, times) for cell in _mean_and_most(values)]
        rows.append([name, str(len(costs)), *cells, f"{sum(one.found_in for _, one in pairs):.1f} s"])
    click.echo(f"all {len(found)} Specs, as multiples of search")
    print_table(_numbers("Specs", "cost", "most", "time", "most", "found in"), rows)


def _mean_and_most(values: Sequence[float]) -> tuple[str, str]:
    return (_text(statistics.geometric_mean(values)), _text(max(values))) if values else ("–", "–")


def _names(found: Sequence[MapperComparison]) -> list[str]:
    return [*dict.fromkeys(one.name for compared in found for one in compared.mappers), SEARCH]


def _draw(found: Sequence[MapperComparison], path: str) -> None:
    """Draw a point for each Spec and mapper: relative cost and relative time over the CPU seconds until found."""
    figure = figures().Figure(figsize=(9, 4.5), layout="constrained")
    planes = figure.subplots(1, 2, sharex=True)
    values: list[tuple[str, Callable[[MapperComparison, MapperResult], float | None]]] = [
        ("cost, as a multiple of search's", MapperComparison.of_search),
        ("time of a call, as a multiple of search's", MapperComparison.time_of_search),
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
