"""`morello bound --algorithms`: bytes that algorithms for convolutions move, as multiples of the bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import click

from morello.api.goals import Goal
from morello.cli.common import print_json, print_sizes
from morello.cli.figures import figures, save
from morello.errors import MorelloError
from morello.report.tables import Column, print_table
from morello.report.words import size
from morello_bounds.convolutions import ALGORITHMS, Layer

#: Default sizes of fast memory in bytes, from registers to a last-level cache.
_MEMORIES = tuple(1 << at for at in range(12, 26, 2))
_LEAST = 64


@attrs.frozen
class AlgorithmTraffic:
    """The bytes that algorithms move with `memory` bytes of fast memory; None for one that does not apply."""

    memory: int
    bound: int
    moves: dict[str, int | None]

    @classmethod
    def of(cls, layer: Layer, memory: int) -> AlgorithmTraffic:
        """Return the traffic of all algorithms for a layer."""
        return cls(memory, layer.bound(memory), {name: layer.moves(name, memory) for name in ALGORITHMS})

    @property
    def ratios(self) -> dict[str, float | None]:
        """Return the bytes of each algorithm divided by the bound."""
        return {name: None if moved is None else moved / self.bound for name, moved in self.moves.items()}


def compare_algorithms(goals: Sequence[Goal], memories: Sequence[int], plot: str | None, as_json: bool) -> None:
    """Print a table for each convolution. Raises MorelloError for other operations and for too little memory."""
    chosen = sorted({*memories}) or [*_MEMORIES]
    if chosen[0] < _LEAST:
        reason = f"{chosen[0]} bytes of fast memory are too few"
        raise MorelloError(reason, f"give {_LEAST} or more: --fast-memory 32KiB")
    if plot is not None and len(goals) != 1:
        raise MorelloError(f"a plot shows one Spec, and FILE has {len(goals)}", "choose one: --spec NAME")
    tables = [(goal, [AlgorithmTraffic.of(Layer.of(goal.spec), memory) for memory in chosen]) for goal in goals]
    if plot is not None:
        _draw(*tables[0], plot)
    if as_json:
        print_json([_as_dict(goal, rows) for goal, rows in tables])
        return
    columns = [Column(name, number=True) for name in ("memory", "at least", *ALGORITHMS)]
    for goal, rows in tables:
        click.echo(f"{goal.name}: {goal.plain.text(goal.spec.logical)}")
        print_sizes(goal)
        print_table(columns, [_row(row) for row in rows])
        click.echo()


def _row(one: AlgorithmTraffic) -> list[str]:
    ratios = ("–" if ratio is None else f"{ratio:,.2f}" for ratio in one.ratios.values())
    return [size(one.memory), f"{one.bound:,}", *ratios]


def _as_dict(goal: Goal, rows: Sequence[AlgorithmTraffic]) -> dict[str, Any]:
    return {
        "name": goal.name,
        "spec": goal.plain.text(goal.spec.logical),
        "memories": [{"memory": one.memory, "bound": one.bound, **one.moves} for one in rows],
    }


def _draw(goal: Goal, rows: Sequence[AlgorithmTraffic], path: str) -> None:
    """Draw the ratios over the fast memory on logarithmic axes."""
    figure = figures().Figure(figsize=(7, 4.5), layout="constrained")
    plane = figure.add_subplot()
    for name in ALGORITHMS:
        points = [(one.memory, ratio) for one in rows if (ratio := one.ratios[name]) is not None]
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
