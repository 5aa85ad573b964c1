"""Measure how soon mappers and search have a program, and its cost.

    python benchmarks/first_programs.py [--only TEXT] [--mapper NAME]... [--effort 100000]

Each search and each mapper runs in its own process. Seconds are CPU time from its start; costs are multiples of the
cheapest program of any. Search reports its first program and, for each mapper, its program at the time when the mapper
ends; a mapper reports its first program and the best of its first four proposals. All searches have the same budget.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import islice

import click
from morello_bounds.hooks import with_feedback
from morello_bounds.mappers import mappers_for
from morello_bounds.mappers.mapped import Completion
from rich.console import Console
from rich.table import Table

from harness.goals import goal_of
from morello.api.goals import Goal
from morello.errors import MorelloError, Undecided
from morello.ir.impl import cost_and_peak
from morello.search.budget import SearchBudget
from morello.search.progress import Progress

_FLOATS = "(f32, GL), (f32, GL), (f32, GL), serial)"
#: Specs of the harness, or as texts.
SPECS = {
    "256³": "256³",
    "100³": "100³",
    "1024³ u8·i8→i32": "u8·i8→i32 1024³",
    "197×768×768": "197×768×768",
    "16×16,14,3": f"Conv[padding=1](1×16×16×14×14×3×3, {_FLOATS}",
    "ResNet18-2 64,64,56,3": "ResNet18-2 64,64,56,3",
    "ResNet18-6 128,128,28,3": "ResNet18-6 128,128,28,3",
    "ResNet18-7 256,128,28,3 /2": f"Conv[padding=1, stride=2](1×256×128×14×14×3×3, {_FLOATS}",
    "ResNet18-9 256,256,14,3": "ResNet18-9 256,256,14,3",
    "ResNet18-11 512,256,1 /2": "ResNet18-11 512,256,14,1",
    "Yolo-18 1024,512,17,3": "Yolo-18 1024,512,17,3",
}
MAPPERS = ("lp",)
#: Proposals that a mapper makes at most.
PROPOSALS = 4
TARGET = "x86_avx2"
#: Moments: seconds, and the cost of the best program by then, 0 for none.
Moments = list[tuple[float, int]]


def searched(goal: Goal, effort: int) -> Moments:
    """Return the moments at which a search had a better program."""
    moments: Moments = []

    def hear(progress: Progress) -> None:
        if progress.high is not None and (not moments or progress.high < moments[-1][1]):
            moments.append((time.process_time(), progress.high))

    try:
        cost = int(
            cost_and_peak(goal.synthesize(db=False, progress=hear, budget=SearchBudget(expansions=effort)).impl).cost
        )
    except Undecided:
        return [(time.process_time(), 0)]
    return moments if moments and moments[-1][1] == cost else [*moments, (time.process_time(), cost)]


def mapped(goal: Goal, name: str) -> Moments:
    """Return the moments at which a mapper had a better program, and the one at which it was done."""
    mapping = Completion(goal, ())
    moments: Moments = []
    proposals = mappers_for(TARGET)[name].propose(goal.spec, goal.target, 0)
    for proposal in islice(with_feedback(proposals), PROPOSALS):
        try:
            cost = mapping.program(tuple(proposal)).cost
        except MorelloError:
            continue
        if not moments or cost < moments[-1][1]:
            moments.append((time.process_time(), cost))
    return [*moments, (time.process_time(), moments[-1][1] if moments else 0)]


def measured(spec: str, what: str, effort: int) -> Moments:
    """Return the moments of a search, or of a mapper, in a process of its own."""
    command = [sys.executable, __file__, "--one", spec, what, "--effort", str(effort)]
    base = {**os.environ, "MORELLO_PROFILE": "base"}
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=base).stdout
    return [(one[0], one[1]) for one in json.loads(output)]


@click.command(help=(__doc__ or "").split("\n")[0])
@click.option("--only", default="", help="Specs whose name contains this.")
@click.option("--mapper", "mappers", multiple=True, help="This mapper; repeatable.  [default: lp]")
@click.option("--effort", default=100_000, show_default=True, help="Specs that each search takes apart at most.")
@click.option("--one", nargs=2, hidden=True)
def main(only: str, mappers: tuple[str, ...], effort: int, one: tuple[str, str] | None) -> None:
    """Measure searches and mappers, and print a table."""
    if one:
        goal = goal_of(SPECS[one[0]], TARGET)
        print(json.dumps(searched(goal, effort) if one[1] == "search" else mapped(goal, one[1])))
        return
    table = Table("Spec", "search's first", box=None, pad_edge=False, header_style="bold")
    chosen = mappers or MAPPERS
    for name in chosen:
        table.add_column(f"{name}: first")
        table.add_column("best")
        table.add_column("search then")
    for spec in (spec for spec in SPECS if only in spec):
        search = measured(spec, "search", effort)
        found = {name: measured(spec, name, effort) for name in chosen}
        least = min((cost for moments in (search, *found.values()) for _, cost in moments if cost), default=1)
        row = [_words(search[0], least)]
        for moments in found.values():
            then = [cost for at, cost in search if at <= moments[-1][0]]
            row += [_words(moments[0], least) if len(moments) > 1 else "–", _words(moments[-1], least)]
            row += [f"{then[-1] / least:.2f}" if then and then[-1] else "none"]
        table.add_row(spec, *row)
        Console(stderr=True).print(spec, *row)
    Console(width=160).print(table)


def _words(moment: tuple[float, int], least: int) -> str:
    return f"{moment[0]:.1f} s {moment[1] / least:.2f}" if moment[1] else f"{moment[0]:.1f} s none"


if __name__ == "__main__":
    main()
