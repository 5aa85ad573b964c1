"""`morello compare-conv`: how much algorithms for convolutions move, beside what no direct one is below."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.cli.common import Size, json_option, print_json, tell_sizes, with_specs
from morello.cli.figures import figures, save
from morello.errors import MorelloError
from morello.goals import Goal
from morello.report.tables import Column, print_table
from morello.report.words import size
from morello_bounds.convolutions import ALGORITHMS, Layer

#: Bytes of fast memory that are looked at unless others are asked for: of registers to a last cache.
_MEMORIES = tuple(1 << at for at in range(12, 26, 2))
_LEAST = 64

_COLUMNS = [
    Column("memory", number=True),
    Column("at least", number=True),
    *(Column(name, number=True) for name in ALGORITHMS),
]


@attrs.frozen
class Compared:
    """The bytes that algorithms move with so much memory; None for one that does not apply."""

    memory: int
    bound: int
    moves: dict[str, int | None]

    def ratio(self, algorithm: str) -> float | None:
        """Return how many times the bound an algorithm moves."""
        moved = self.moves[algorithm]
        return None if moved is None else moved / self.bound


@click.command("compare-conv")
@with_specs
@click.option(
    "--memory",
    "memories",
    metavar="BYTES",
    type=Size(),
    multiple=True,
    help="Fast memory, such as 32KiB; may be given several times.  [default: 4KiB, 16KiB, ..., 16MiB]",
)
@click.option("--plot", metavar="FILE", help="Draw the table of the only Spec, such as conv.svg.")
@json_option
def command(goals: Sequence[Goal], memories: Sequence[int], plot: str | None, as_json: bool) -> None:
    """Compare what algorithms for the convolutions of FILE move between fast and slow memory.

    \b
    memory    bytes of fast memory
    at least  the bytes that any direct convolution moves: each point of its nest is worked out once
    direct    the nest itself, in the best tiles that are found
    im2col    a matrix of patches is written, then multiplied by the filters
    winograd  F(2×2): transforms of both, and a product for each value of a tile; for steps of 1
    fft       transforms of both as a whole, and a product for each frequency
    naive     nothing is kept: each point moves its pixel, its weight and its sum

    Columns of algorithms are multiples of the bound. Those of Winograd's and of Fourier transforms are models of
    Morello's own; these do fewer multiplications than the bound is for, so that they may be below it.
    """
    chosen = sorted({*memories}) or [*_MEMORIES]
    if chosen[0] < _LEAST:
        raise MorelloError(f"{chosen[0]} bytes of fast memory are too few", f"give {_LEAST} or more: --memory 32KiB")
    if plot is not None and len(goals) != 1:
        raise MorelloError(f"a plot is of one Spec, and there are {len(goals)}", "choose one: --spec NAME")
    tables = [(goal, [compared(Layer.of(goal.spec), memory) for memory in chosen]) for goal in goals]
    if plot is not None:
        _draw(*tables[0], plot)
    if as_json:
        print_json([_as_dict(goal, rows) for goal, rows in tables])
        return
    for goal, rows in tables:
        click.echo(f"{goal.name}: {goal.plain.text(goal.spec.logical)}")
        tell_sizes(goal)
        print_table(_COLUMNS, [_row(row) for row in rows])
        click.echo()


def compared(layer: Layer, memory: int) -> Compared:
    """Return what all algorithms for a layer move."""
    return Compared(memory, layer.bound(memory), {name: layer.moves(name, memory) for name in ALGORITHMS})


def _row(one: Compared) -> list[str]:
    ratios = [one.ratio(name) for name in ALGORITHMS]
    return [size(one.memory), f"{one.bound:,}", *("–" if ratio is None else f"{ratio:,.2f}" for ratio in ratios)]


def _as_dict(goal: Goal, rows: Sequence[Compared]) -> dict[str, Any]:
    return {
        "name": goal.name,
        "spec": goal.plain.text(goal.spec.logical),
        "memories": [{"memory": one.memory, "bound": one.bound, **one.moves} for one in rows],
    }


def _draw(goal: Goal, rows: Sequence[Compared], path: str) -> None:
    """Draw multiples of the bound over memory, both in powers."""
    figure = figures().Figure(figsize=(7, 4.5), layout="constrained")
    plane = figure.add_subplot()
    for name in ALGORITHMS:
        points = [(one.memory, ratio) for one in rows if (ratio := one.ratio(name)) is not None]
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
