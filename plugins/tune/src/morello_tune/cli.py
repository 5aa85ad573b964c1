"""`morello tune`: measured search over schedules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from morello.api.goals import Goal
from morello.cli import completion
from morello.cli.common import (
    budget_of,
    cc_option,
    json_option,
    named_after,
    print_json,
    tell_sizes,
    threads_option,
    with_goals,
)
from morello.cli.output import check_writable, write_file
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.progress import Display, line, short
from morello.report.tables import Column, print_table
from morello.run.timing import duration
from morello_tune.beam import BeamOptions, BeamState
from morello_tune.evaluate import Evaluator, MeasuredProgram
from morello_tune.menu import menu_for
from morello_tune.proposers import proposer as proposer_named
from morello_tune.proposers import proposers_for
from morello_tune.proposers.kbest import KBEST, TOP
from morello_tune.tuner import ItemStatistics, Tuner, TuningResult

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
            return self.fail(
                f"{value!r} is neither a number of samples, such as 100, nor a time, such as 90s", param, ctx
            )
        return (int(found[1]), None) if unit is None else (None, float(found[1]) * unit)


class TuneDisplay(Display):
    """Shows the best program so far, and what became of samples, in a narrow line."""

    def __init__(self, name: str):
        super().__init__()
        self._name = name
        self._shown: tuple[BeamState, Evaluator] | None = None

    def __call__(self, state: BeamState, evaluator: Evaluator) -> None:
        self._shown = state, evaluator

    def describe(self) -> str:
        return line("tuning", self._name, self.seconds, self._facts())

    def _facts(self) -> list[str]:
        if self._shown is None:
            return []
        state, evaluator = self._shown
        kept = sum(one.verdict == "accepted" for one in state.samples)
        rows = [rate(state.best, evaluator.goal, evaluator.judged_by), f"{short(len(state.samples))} samples"]
        return [*rows, f"{short(kept)} kept", *_lost(state)]

    def interrupted(self, error: KeyboardInterrupt) -> str:
        return f"interrupted the tuning of {self._name}, before anything was measured"


def _lost(state: BeamState) -> list[str]:
    """Return how many samples were not kept for each reason, the last one's first."""
    reasons = [one.verdict for one in reversed(state.samples) if one.verdict != "accepted"]
    return [f"{short(reasons.count(one))} {one}" for one in dict.fromkeys(reasons)]


def rate(one: MeasuredProgram, goal: Goal, metric: str = "") -> str:
    """Return how fast a program is, in a few letters: GFLOP/s and percent of the peak, or time."""
    flops, feedback = goal.spec.logical.flops, one.candidate.feedback
    if metric:
        return f"{metric} {one.value:,.6g}"
    if not flops:
        return duration(one.value)
    percent = f", {feedback.percent:.0f} %" if feedback and feedback.percent is not None else ""
    return f"{flops / one.value / 1e9:.3g} GFLOP/s{percent}"


@click.command("tune")
@with_goals
@click.option("--proposer", metavar="NAME", default="offline", help="What plans edits: see --list.  [default: offline]")
@click.option("--beam", metavar="N", type=click.IntRange(1), default=6, show_default=True, help="Programs kept.")
@click.option("--plans", metavar="N", type=click.IntRange(1), default=6, show_default=True, help="Plans for each.")
@click.option(
    "--implementations", metavar="N", type=click.IntRange(1), default=2, show_default=True, help="Edits for each plan."
)
@click.option("--iterations", metavar="N", type=click.IntRange(0), default=10, show_default=True, help="Iterations.")
@click.option(
    "--dropout",
    metavar="P",
    type=click.FloatRange(0, 1),
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
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Seed of plans and data.  [default: 0]",
)
@click.option(
    "--reuse",
    metavar="DB",
    shell_complete=completion.files,
    help="A database with Specs tuned before: what paid for those that are alike is tried first.",
)
@click.option(
    "--trace",
    metavar="FILE",
    shell_complete=completion.files,
    help="Append every result to this file, a line of JSON each. What it has of the same Spec, on the same kind of "
    "machine, is not timed again.",
)
@click.option(
    "-o",
    "--output",
    metavar="BEST.spec",
    shell_complete=completion.files,
    help="Write a Spec file with the best schedule, and its C beside it.",
)
@threads_option
@cc_option
@click.option("--list", "listed", is_flag=True, help="List proposers and the menu of the target, and do nothing else.")
@json_option
def command(
    goals: Sequence[Goal],
    db: SpecStore | None,
    proposer: str,
    budget: tuple[int | None, float | None],
    top: int | None,
    reuse: str | None,
    trace: str | None,
    output: str | None,
    cc: str | None,
    threads: int | None,
    listed: bool,
    as_json: bool,
    **sizes: Any,
) -> None:
    """Make the programs of FILE faster by edits of their schedules that are measured on this machine.

    It begins with the program that `morello run` finds, or the one that FILE schedules. A proposer plans edits by the
    menu of the target; search completes them, they are built, verified and timed against the program they come from.
    Those that are faster by more than noise are improved on in turn. The fastest is kept in the database as measured:
    `morello run` and `morello compile` use it on such a machine, without --no-measured. Ctrl-C keeps the best.
    """
    options = BeamOptions(samples=budget[0], seconds=budget[1], **sizes)
    if len(goals) > 1 and (output or trace) and not listed:
        names = ", ".join(goal.name for goal in goals)
        raise MorelloError(f"there are {len(goals)} Specs: {names}", "choose one with --spec NAME")
    file = click.get_current_context().params["file"]
    if output:
        for path in (output, str(Path(output).with_suffix(".c"))):
            check_writable(path, file)
    rows: list[dict[str, Any]] = []
    for number, goal in enumerate(goals):
        if listed:
            rows += _list(goal.target.name, as_json)
            continue
        tuner = Tuner(
            goal=goal,
            proposer=proposer_named(proposer, goal.target.name),
            options=options,
            db=db,
            reuse=_opened(reuse),
            trace=trace,
            compiler=cc,
            threads=threads,
            budget=budget_of(click.get_current_context()),
            extra={"top": top},
        )
        done = _tuned(tuner)
        if output:
            write_file(output, done.spec_file.encode())
            write_file(str(Path(output).with_suffix(".c")), done.kernel.source.encode())
        if as_json:
            rows.append(as_dict(done))
        else:
            click.echo("\n" * bool(number), nl=False)
            _print(done, db)
    if as_json:
        print_json(rows)


def _opened(path: str | None) -> SpecStore | None:
    if path is None:
        return None
    if not Path(path).exists():
        raise MorelloError(f"there is no database {path}", "give --reuse the database of a tune before")
    return SpecStore(path, report=lambda error: None)


def _tuned(tuner: Tuner) -> TuningResult:
    with named_after(tuner.goal), TuneDisplay(tuner.goal.name) as display:
        tuner.on_sample = display
        return tuner.run()


def _print(done: TuningResult, db: SpecStore | None) -> None:
    goal, start, best = done.goal, done.start, done.best
    click.echo(f"{goal.name} for {goal.target.label}: {goal.plain.text(goal.spec.logical)}")
    tell_sizes(goal)
    click.echo(f"start    {_value(start, done)}")
    if done.improved:
        final = done.final
        interval = "" if done.metric else f" ({final.low:.4g} to {final.high:.4g}, timed in turns)"
        click.echo(
            f"best     {_value(best, done)}: {final.gain:.4g} times as {'good' if done.metric else 'fast'}{interval}"
        )
    else:
        click.echo(f"best     the start: nothing is better by more than {'it' if done.metric else 'noise'}")
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in done.verdicts.items())
    ended = ", interrupted" if done.interrupted else ""
    click.echo(f"samples  {len(done.samples)} in {done.seconds:.0f} s{ended}{verdicts and ': '}{verdicts}")
    if not done.metric:
        click.echo(f"noise    {done.noise:.2%} between times of a program and itself")
    if any(one.proposal.item == KBEST.name for one in done.samples) and done.disagreement:
        pairs, wrong, worst = done.disagreement
        click.echo(
            f"model    in {wrong} of {pairs} pairs that both tell apart the clock has another order; what the model "
            f"prefers takes up to {worst:.3g} times as long"
        )
    for name, fact in done.facts.items():
        click.echo(f"{name:<8} {fact}")
    click.echo(f"cost     {start.built.cost:,} at the start, {best.built.cost:,} of the best, under the model")
    if done.improved and db:
        click.echo(f"kept     as measured in {db.path}, which proves nothing of other programs")
    _print_paid(done)
    click.echo("".join(f"    {row}\n" for row in done.schedule.splitlines()), nl=False)


def _print_paid(done: TuningResult) -> None:
    click.echo()
    columns = [Column("item"), *(Column(name, number=True) for name in ("samples", "measured", "kept", "gain", "best"))]
    rows = [(one.item, *map(str, (one.samples, one.measured, one.accepted)), *_gains(one)) for one in done.items]
    if rows:
        print_table(columns, rows)
        click.echo()


def _gains(one: ItemStatistics) -> tuple[str, str]:
    """Return what an item gained, where it was kept, and at best; dashes where it did not."""
    return f"{one.gain:.3f}" if one.accepted else "–", f"{one.best:.3f}" if one.measured else "–"


def _value(one: MeasuredProgram, done: TuningResult) -> str:
    if done.metric:
        return f"{one.value:,.6g} ({done.metric})"
    return f"{duration(one.value)} per call, {rate(one, done.goal)}"


def as_dict(done: TuningResult) -> dict[str, Any]:
    """Return the outcome for programs; values are seconds per call unless there is a metric."""
    return {
        "name": done.goal.name,
        "target": done.goal.target.name,
        "spec": done.goal.plain.text(done.goal.spec.logical),
        "metric": done.metric or None,
        "start": done.start.value,
        "best": done.best.value,
        "gain": done.gain,
        "interval": [done.final.low, done.final.high],
        "noise": done.noise,
        "improved": done.improved,
        "samples": len(done.samples),
        "seconds": done.seconds,
        "interrupted": done.interrupted,
        "verdicts": done.verdicts,
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
    """List proposers and menu items of a target."""
    proposers = [(one.name, one.description) for one in proposers_for(target).values()]
    proposers.append(("ensemble:A,B", "several of these, in turns"))
    items = [(one.name, one.phase, one.text) for one in menu_for(target).values()]
    if as_json:
        listed = [{"proposer": name, "does": does} for name, does in proposers]
        return [{"target": target, **one} for one in listed] + [
            {"target": target, "item": name, "phase": phase, "does": does} for name, phase, does in items
        ]
    print_table([Column("proposer"), Column("plans", wraps=True)], proposers)
    click.echo()
    print_table([Column("item"), Column("phase"), Column("does", wraps=True)], items)
    return []
