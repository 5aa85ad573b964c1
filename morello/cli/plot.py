"""Draw the rectangles of a table over two of its axes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.cli.figures import figures, save
from morello.db.answers import AnswerKind, Ints
from morello.db.boxes import to_limits, to_sizes
from morello.db.labels import read
from morello.db.tables import AnswerTable
from morello.errors import MorelloError
from morello.plugins.registry import installed

_COLORS = {AnswerKind.EXACT: "tab:blue", AnswerKind.LOWER: "tab:orange", AnswerKind.NONE: "tab:gray"}


def draw(tables: Sequence[AnswerTable], path: str, number: int | None, axes: str | None) -> None:
    """Draw one of the tables, by default the first. Raises MorelloError without matplotlib, table or axes."""
    made = figures()
    if not 1 <= (number or 1) <= len(tables):
        raise MorelloError(
            f"the database has no table {number or 1}", "`morello db stats --tables 20` lists its tables"
        )
    table = tables[(number or 1) - 1]
    logical = read(table.labels, installed().operations)
    names = [*logical.dims, *table.owner.level_names]
    x, y = _axes(axes, names, len(logical.shape))
    figure = made.Figure(figsize=(8, 6), layout="constrained")
    plane = figure.add_subplot()
    _rectangles(plane, table, x, y)
    for axis, setter in ((x, plane.set_xlabel), (y, plane.set_ylabel)):
        setter(names[axis] if axis < len(logical.shape) else f"{names[axis]} limit, bytes")
    title = table.labels.replace(": ", ":\n", 1)
    plane.set_title(f"table {number}: {len(table.boxes)} rectangles of\n{title}", fontsize=8, wrap=True)
    save(figure, path)


def _axes(asked: str | None, names: Sequence[str], rank: int) -> tuple[int, int]:
    """Return the numbers of two axes, by default those of the last two sizes."""
    chosen = asked.split(",") if asked is not None else [*names[max(0, rank - 2) : rank], *names[rank:]][:2]
    if len(chosen) != 2 or not set(chosen) <= set(names) or chosen[0] == chosen[1]:
        raise MorelloError(
            f"{asked!r} are no two axes of the table", f"give two of {', '.join(names)}, separated by a comma"
        )
    return names.index(chosen[0]), names.index(chosen[1])


def _rectangles(plane: Any, table: AnswerTable, x: int, y: int) -> None:
    """Draw each different rectangle once. Axes count the coordinates that occur, in order, so gaps are left out."""
    patches = importlib.import_module("matplotlib.patches")
    boxes = table.boxes
    sides = np.stack([boxes.low[:, x], boxes.high[:, x], boxes.low[:, y], boxes.high[:, y]], axis=1)
    ticks = [
        np.unique(np.concatenate([_span(ends) for ends in np.unique(pair, axis=0)]))
        for pair in (sides[:, :2], sides[:, 2:])
    ]
    flat = np.concatenate([sides, boxes.kind[:, None]], axis=1)
    for left, right, bottom, top, kind in np.unique(flat, axis=0).tolist():
        (x0, x1), (y0, y1) = (
            np.searchsorted(own, ends) for own, ends in zip(ticks, ((left, right), (bottom, top)), strict=True)
        )
        corner, width, height = (x0 - 0.45, y0 - 0.45), x1 - x0 + 0.9, y1 - y0 + 0.9
        color = _COLORS[AnswerKind(kind)]
        plane.add_patch(patches.Rectangle(corner, width, height, facecolor=(color, 0.15), edgecolor=color))
    plane.set_xlim(-0.7, len(ticks[0]) - 0.3)
    plane.set_ylim(-0.7, len(ticks[1]) - 0.3)
    plane.set_xticks(range(len(ticks[0])), _values(table, x, ticks[0]), rotation=45)
    plane.set_yticks(range(len(ticks[1])), _values(table, y, ticks[1]))
    kinds = [AnswerKind(kind) for kind in np.unique(boxes.kind).tolist()]
    plane.legend(handles=[patches.Patch(color=_COLORS[kind], label=kind.name.lower()) for kind in kinds])


def _span(ends: Ints) -> Ints:
    return np.arange(ends[0], ends[1] + 1)


def _values(table: AnswerTable, axis: int, coordinates: Ints) -> list[str]:
    """Return the sizes, or bytes, that coordinates [N] along an axis stand for."""
    grids = table.owner.grids
    rank = table.rank
    if axis < rank:
        return list(map(str, to_sizes(coordinates).tolist()))
    return list(map(str, to_limits(coordinates[:, None], grids[axis - rank : axis - rank + 1])[:, 0].tolist()))
