"""`morello bound --algorithms`: bytes that algorithms for convolutions move, as multiples of the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import click

from morello.api.goals import Goal
from morello.cli.common import print_json
from morello.cli.figures import figures, save
from morello.errors import MorelloError
from morello.report.tables import Column, print_table
from morello.report.words import size
from morello_bounds.cli import facts_of, print_head
from morello_bounds.convolutions import ALGORITHMS, Layer

#: Default sizes of fast memory in bytes, from registers to a last-level cache.
_MEMORIES = tuple(1 << at for at in range(12, 26, 2))
_LEAST = 64
#: Bytes of fast memory, the bound, and the bytes that each algorithm moves; None for one that does not apply.
Row: TypeAlias = tuple[int, int, dict[str, int | None]]


def compare_algorithms(goals: Sequence[Goal], memories: Sequence[int], plot: str | None, as_json: bool) -> None:
    """Print a table for each convolution. Raises MorelloError for other operations and for too little memory."""
    chosen = sorted({*memories}) or [*_MEMORIES]
    if chosen[0] < _LEAST:
        reason = f"{chosen[0]} bytes of fast memory are too few"
        raise MorelloError(reason, f"give {_LEAST} or more: --fast-memory 32KiB")
    if plot is not None and len(goals) != 1:
        raise MorelloError(f"a plot shows one Spec, and FILE has {len(goals)}", "choose one: --spec NAME")
    tables = [(goal, [_row(Layer.of(goal.spec), memory) for memory in chosen]) for goal in goals]
    if plot is not None:
        _draw(*tables[0], plot)
    if as_json:
        print_json(
            [
                {**facts_of(goal), "memories": [{"memory": one, "bound": bound, **moves} for one, bound, moves in rows]}
                for goal, rows in tables
            ]
        )
        return
    columns = [Column(name, number=True) for name in ("memory", "at least", *ALGORITHMS)]
    for goal, rows in tables:
        print_head(goal)
        cells = [
            [size(memory), f"{bound:,}", *("–" if one is None else f"{one / bound:,.2f}" for one in moves.values())]
            for memory, bound, moves in rows
        ]
        print_table(columns, cells)
        click.echo()


def _row(layer: Layer, memory: int) -> Row:
    return memory, layer.bound(memory), {name: layer.moves(name, memory) for name in ALGORITHMS}


def _draw(goal: Goal, rows: Sequence[Row], path: str) -> None:
    """Draw the ratios over the fast memory on logarithmic axes."""
    figure = figures().Figure(figsize=(7, 4.5), layout="constrained")
    plane = figure.add_subplot()
    for name in ALGORITHMS:
        points = [(memory, moved / bound) for memory, bound, moves in rows if (moved := moves[name]) is not None]
        if points:
            plane.plot(*zip(*points, strict=True), marker=".", label=name)
    plane.axhline(1, color="black", linewidth=1, label="bound")
    plane.set_xscale("log", base=2)
    plane.set_yscale("log")
    plane.set_xlabel("fast memory, bytes")
    plane.set_ylabel("bytes moved, as a multiple of the bound")
    plane.set_title(f"{goal.name}: {goal.plain.text(goal.spec.logical)}", fontsize=8, wrap=True)
    plane.legend()
    save(figure, path)
