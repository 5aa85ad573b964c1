"""Draws the rectangles of a table over two of its axes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from morello.cli.figures import figures, save
from morello.db.block import AnswerKind, Ints
from morello.db.coordinates import to_limits, to_sizes
from morello.db.exchange import stored_tables
from morello.db.labels import read
from morello.db.records import Stored
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.plugins.registry import installed

_COLORS = {AnswerKind.EXACT: "tab:blue", AnswerKind.LOWER: "tab:orange", AnswerKind.NONE: "tab:gray"}


def draw(store: SpecStore, path: str, number: int | None, axes: str | None) -> None:
    """Write a picture of a table, by default the largest. Raises MorelloError without matplotlib, table or axes."""
    made = figures()
    stored = _chosen(store, number)
    logical = read(stored.header.labels, installed().operations)
    names = [*logical.dims, *stored.header.print.names]
    x, y = _axes(axes, names, len(logical.shape))
    figure = made.Figure(figsize=(8, 6), layout="constrained")
    plane = figure.add_subplot()
    _rectangles(plane, stored, x, y)
    for axis, setter in ((x, plane.set_xlabel), (y, plane.set_ylabel)):
        setter(names[axis] if axis < len(logical.shape) else f"{names[axis]} limit, bytes")
    title = stored.header.labels.replace(": ", ":\n", 1)
    plane.set_title(f"table {stored.header.id}: {len(stored.boxes)} rectangles of\n{title}", fontsize=8, wrap=True)
    save(figure, path)


def _chosen(store: SpecStore, number: int | None) -> Stored:
    best: Stored | None = None
    for _, stored, _ in stored_tables(store):
        if stored.header.id == number:
            return stored
        if number is None and (best is None or len(stored.boxes) > len(best.boxes)):
            best = stored
    if best is None:
        what = "is empty" if number is None else f"has no table {number}"
        raise MorelloError(f"{store.path} {what}", "`morello db stats --tables 20` lists tables with their numbers")
    return best


def _axes(asked: str | None, names: Sequence[str], rank: int) -> tuple[int, int]:
    """Return the numbers of two axes, by default those of the last two sizes."""
    chosen = asked.split(",") if asked is not None else [*names[max(0, rank - 2) : rank], *names[rank:]][:2]
    if len(chosen) != 2 or not set(chosen) <= set(names) or chosen[0] == chosen[1]:
        raise MorelloError(
            f"{asked!r} are no two axes of the table", f"give two of {', '.join(names)}, separated by a comma"
        )
    return names.index(chosen[0]), names.index(chosen[1])


def _rectangles(plane: Any, stored: Stored, x: int, y: int) -> None:
    """Draw each different rectangle once. Axes count the coordinates that occur, in order, so gaps are left out."""
    patches = importlib.import_module("matplotlib.patches")
    boxes = stored.boxes
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
    plane.set_xticks(range(len(ticks[0])), _values(stored, x, ticks[0]), rotation=45)
    plane.set_yticks(range(len(ticks[1])), _values(stored, y, ticks[1]))
    kinds = [AnswerKind(kind) for kind in np.unique(boxes.kind).tolist()]
    plane.legend(handles=[patches.Patch(color=_COLORS[kind], label=kind.name.lower()) for kind in kinds])


def _span(ends: Ints) -> Ints:
    return np.arange(ends[0], ends[1] + 1)


def _values(stored: Stored, axis: int, coordinates: Ints) -> list[str]:
    """Return the sizes, or bytes, that coordinates [N] along an axis stand for."""
    grids = stored.header.print.grids
    rank = stored.boxes.axes - len(grids)
    if axis < rank:
        return list(map(str, to_sizes(coordinates).tolist()))
    return list(map(str, to_limits(coordinates[:, None], grids[axis - rank : axis - rank + 1])[:, 0].tolist()))
