"""`morello tune`: measured search over schedules."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from morello.api.goals import Goal
from morello.atomic_write import check_writable, write_files
from morello.cli.common import (
    PATH,
    FiniteRange,
    SearchOptions,
    cc_option,
    json_option,
    print_json,
    runner_option,
    threads_option,
    with_goals,
)
from morello.cli.kernels import named_after, print_sizes, searched_at_once, searches_option
from morello.errors import MorelloError
from morello.progress import Display, line, short
from morello.report.tables import Column, print_table
from morello.run.timing import duration
from morello_tune.beam import MOST, BeamState
from morello_tune.evaluate import Evaluator
from morello_tune.interface import MeasuredProgram
from morello_tune.menu import menu_for
from morello_tune.proposers import proposers_for
from morello_tune.proposers.offline import KBEST, TOP
from morello_tune.tuner import Tuner, TuningOptions, TuningResult

_UNITS = {"": None, "s": 1, "m": 60, "h": 3600}


class BudgetType(click.ParamType):
    """Samples, as `100`, or time, as `90s`, `10m` or `2h`."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh]?)", value)
        unit = _UNITS[found[2]] if found else None
        if not found or (unit is None and "." in found[1]) or not float(found[1]):
            rule = f"{value!r} is neither a number of samples, such as 100, nor a time, such as 90s"
            return self.fail(rule, param, ctx)
        return (int(found[1]), None) if unit is None else (None, float(found[1]) * unit)


class TuneDisplay(Display):
    """Shows the best program so far, and the number of samples by verdict, in a narrow line."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name
        self._facts: list[str] = []

    def __call__(self, state: BeamState, evaluator: Evaluator) -> None:
        verdicts = [one.verdict for one in reversed(state.samples)]
        lost = [f"{short(verdicts.count(one))} {one}" for one in dict.fromkeys(verdicts) if one != "accepted"]
        speed = rate(state.best, evaluator.goal, evaluator.metric)
        counts = f"{short(len(verdicts))} samples", f"{short(verdicts.count('accepted'))} kept"
        self._facts = [speed, *counts, *lost]

    def describe(self) -> str:
        return line("tuning", self._name, self.seconds, self._facts)

    def interrupted(self, error: KeyboardInterrupt) -> str:
        return f"interrupted the tuning of {self._name}, before anything was measured"


def rate(one: MeasuredProgram, goal: Goal, metric: str = "") -> str:
    """Return the speed of a program in a few letters: GFLOP/s and percent of the peak, or time."""
    flops, feedback = goal.spec.logical.flops, one.candidate.feedback
    if metric:
        return f"{metric} {one.value:,.6g}"
    if not flops:
        return duration(one.value)
    percent = f", {feedback.percent:.0f} %" if feedback and feedback.percent is not None else ""
    return f"{flops / one.value / 1e9:.3g} GFLOP/s{percent}"


def _number(name: str, least: int, default: int, text: str, most: int | None = MOST) -> Any:
    return click.option(
        name, metavar="N", type=click.IntRange(least, most), default=default, show_default=True, help=text
    )


def _path(*names: str, metavar: str, text: str) -> Any:
    return click.option(*names, metavar=metavar, type=PATH, help=text)


@click.command("tune")
@with_goals
@click.option("--proposer", metavar="NAME", default="offline", help="What plans edits: see --list.  [default: offline]")
@_number("--beam", 1, 6, "Programs kept.")
@_number("--plans", 1, 6, "Plans for each.")
@_number("--implementations", 1, 2, "Edits for each plan.")
@_number("--iterations", 0, 10, "Iterations.")
@click.option(
    "--dropout",
    metavar="P",
    type=FiniteRange(0, 1),
    default=0.7,
    show_default=True,
    help="Probability with which an item is left out of a plan's menu.",
)
@click.option(
    "--budget",
    metavar="N|TIME",
    type=BudgetType(),
    default=(None, None),
    help="End after N samples, or TIME: 90s, 10m, 2h.",
)
@click.option("--top", metavar="K", type=click.IntRange(1), help=f"Programs of the proposer kbest.  [default: {TOP}]")
@_number("--seed", 0, 0, "Seed of plans and data.", most=None)
@_path(
    "--reuse",
    metavar="DB",
    text="A database with tuned Specs: items that paid for similar Specs are tried first.",
)
@_path(
    "--trace",
    metavar="FILE",
    text="Append every result to this file, a line of JSON each. Results in it of the same Spec, on the same kind of "
    "machine, are not timed again.",
)
@_path("-o", "--output", metavar="BEST.spec", text="Write a Spec file with the best schedule, and a file with its C.")
@threads_option
@cc_option
@runner_option
@searches_option
@click.option("--list", "listed", is_flag=True, help="List proposers and the menu of the target, and do nothing else.")
@json_option
def command(
    goals: Sequence[Goal],
    search: SearchOptions,
    budget: tuple[int | None, float | None],
    top: int | None,
    reuse: str | None,
    output: str | None,
    listed: bool,
    jobs: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make the programs of FILE faster by edits of their schedules that are measured on this machine.

    It begins with the program that `morello run` finds, or the one that FILE schedules. A proposer plans edits by the
    menu of the target; search completes them, they are built, verified and timed against the program they come from.
    Those that are faster by more than noise are improved on in turn. The fastest is kept in the database as measured:
    all commands but `map` use it on such a machine, without --no-measured. Ctrl-C keeps the best.
    """
    if listed:
        listing = [row for goal in goals for row in _list(goal.target.name, as_json)]
        if as_json:
            print_json(listing)
        return
    if len(goals) > 1 and (output or given["trace"]):
        names = ", ".join(goal.name for goal in goals)
        raise MorelloError(f"there are {len(goals)} Specs: {names}", "choose one with --spec NAME")
    if reuse and not Path(reuse).exists():
        raise MorelloError(f"no database {reuse}", "give --reuse the database of an earlier `morello tune`")
    source = output and f"{os.path.splitext(output)[0]}.c"
    if output and source == output:
        raise MorelloError(f"-o {output} would be overwritten by its C", "name a .spec file")
    for path in filter(None, (output, source)):
        check_writable(path, click.get_current_context().params["file"])
    options = TuningOptions(
        samples=budget[0],
        seconds=budget[1],
        reuse=reuse or False,
        budget=search.budget,
        cc=search.cc,
        runner=search.runner,
        proposer_options={"top": top},
        **given,
    )
    rows: list[dict[str, Any]] = []
    for number, goal in enumerate(searched_at_once(goals, search, jobs)):
        with named_after(goal), TuneDisplay(goal.name) as display:
            done = Tuner(goal, options, search.db, display).run()
        if output and source:
            write_files({output: done.spec_file.encode(), source: done.kernel.source.encode()})
        if as_json:
            rows.append(as_dict(done))
        else:
            click.echo("\n" * bool(number), nl=False)
            _print(done, search)
    if as_json:
        print_json(rows)


def _print(done: TuningResult, search: SearchOptions) -> None:
    goal, start, best = done.goal, done.start, done.best
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    print_sizes(goal)
    if runner := done.kernel.runner:
        click.echo(f"runner   {runner}")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in done.verdicts.items())
    interrupted = ", interrupted" if done.interrupted else ""
    rows = [f"start    {_value(start, done)}"]
    if done.improved:
        final, word = done.final, "good" if done.metric else "fast"
        interval = "" if done.metric else f" ({final.low:.4g} to {final.high:.4g}, timed in turns)"
        rows.append(f"best     {_value(best, done)}: {final.gain:.4g} times as {word}{interval}")
    else:
        rows.append(f"best     the start: nothing is better by more than {'it' if done.metric else 'noise'}")
    rows.append(f"samples  {len(done.samples)} in {done.seconds:.0f} s{interrupted}{verdicts and ': '}{verdicts}")
    if not done.metric:
        rows.append(f"noise    {done.noise:.2%} between times of a program and itself")
    if any(one.proposal.item == KBEST.name for one in done.samples) and done.disagreement:
        pairs, wrong, worst = done.disagreement
        rows.append(
            f"model    clock and model order {wrong} of {pairs} pairs differently; the program that the model prefers "
            f"takes up to {worst:.3g} times as long"
        )
    rows += [f"{name:<8} {fact}" for name, fact in done.facts.items()]
    rows.append(f"cost     {start.built.cost:,} at the start, {best.built.cost:,} of the best, under the model")
    if done.improved and search.db:
        rows.append(f"kept     as measured in {search.db.name}, which proves nothing of other programs")
    click.echo("\n".join(rows) + "\n")
    if done.items:
        columns = [Column(name, number=True) for name in ("samples", "measured", "kept", "gain", "best")]
        cells = [
            (
                *(one.item, str(one.samples), str(one.measured), str(one.accepted)),
                f"{one.gain:.3f}" if one.accepted else "–",
                f"{one.best:.3f}" if one.measured else "–",
            )
            for one in done.items
        ]
        print_table([Column("item"), *columns], cells)
        click.echo()
    click.echo("".join(f"    {row}\n" for row in done.schedule.splitlines()), nl=False)


def _value(one: MeasuredProgram, done: TuningResult) -> str:
    speed = rate(one, done.goal, done.metric)
    return speed if done.metric else f"{duration(one.value)} per call, {speed}"


def as_dict(done: TuningResult) -> dict[str, Any]:
    """Return the outcome for programs; values are seconds per call unless there is a metric."""
    names = ("start", "best"), ("gain", "noise", "improved", "seconds", "interrupted", "verdicts")
    return {
        "name": done.goal.name,
        "target": done.goal.target.full_name,
        "spec": done.goal.plain.text(done.goal.spec.logical),
        "metric": done.metric or None,
        **{name: getattr(done, name).value for name in names[0]},
        **{name: getattr(done, name) for name in names[1]},
        "interval": [done.final.low, done.final.high],
        "samples": len(done.samples),
        "items": [
            {"item": one.item, "samples": one.samples, "measured": one.measured, "kept": one.accepted, "gain": one.gain}
            for one in done.items
        ],
        "way": [list(step) for step in done.best.way],
        "disagreement": done.disagreement and dict(zip(("pairs", "wrong", "worst"), done.disagreement, strict=True)),
        "facts": dict(done.facts),
        "schedule": done.schedule.splitlines(),
    }


def _list(target: str, as_json: bool) -> list[dict[str, Any]]:
    """Return proposers and menu items of a target; print them as tables unless they are for JSON."""
    proposers = [(one.name, one.description) for one in proposers_for(target).values()]
    proposers.append(("ensemble:A,B", "several of these, in turns"))
    items = [(one.name, one.phase, one.text) for one in menu_for(target).values()]
    if not as_json:
        print_table([Column("proposer"), Column("plans", wraps=True)], proposers)
        click.echo()
        print_table([Column("item"), Column("phase"), Column("does", wraps=True)], items)
    names = ("target", "proposer", "does"), ("target", "item", "phase", "does")
    return [
        dict(zip(keys, (target, *row), strict=True))
        for keys, table in zip(names, (proposers, items), strict=True)
        for row in table
    ]
