"""Give out what an engine has solved, table by table, in plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.search.arrays import Ints
from morello.search.solve.core import Cells, Chosen
from morello.search.solve.solver import Solver


@attrs.frozen
class Solved:
    """Cells of one table, an array row each: sizes, limits in bytes, cost, and for programs their peaks and steps.

    `costs` are -1 where nothing implements the Spec. `step` indexes `steps`, -1 where there is none. `labels` is some
    Spec of the table.
    """

    labels: LogicalSpec
    shapes: Ints
    limits: Ints
    costs: Ints
    peaks: Ints
    steps: tuple[str, ...]
    step: Ints


def solved(solver: Solver, known: Cells, cells: Ints) -> tuple[Ints, Iterator[Solved]]:
    """Return those of some solved cells [N] whose programs are known to the end, and the answers to them."""
    priced = cells[known.low[cells] < np.inf].tolist()
    solver.choose(priced, settle=False)
    chosen = {cell: found for cell in priced if (found := solver.core.chosen(cell)).peak is not None}
    whole = cells[[low == np.inf or cell in chosen for cell, low in zip(cells.tolist(), known.low[cells], strict=True)]]
    return whole, (_of_table(solver, known, chosen, rows) for rows in _by_table(known, whole))


def _by_table(known: Cells, cells: Ints) -> Iterator[Ints]:
    """Yield cells, those of one table at a time."""
    tables = known.table[cells]
    order = np.argsort(tables, kind="stable")
    ends = np.flatnonzero(np.diff(tables[order], prepend=-1, append=-1)).tolist()
    for start, end in pairwise(ends):
        yield cells[order[start:end]]


def _of_table(solver: Solver, known: Cells, chosen: dict[int, Chosen], cells: Ints) -> Solved:
    engine, table = solver.engine, int(known.table[cells[0]])
    space = engine.directory.space_of(table)
    found = [chosen.get(cell) for cell in cells.tolist()]
    # Any cell of the table will do to tell which step has a priority.
    example = {one.priority: cell for cell, one in zip(cells.tolist(), found, strict=True) if one}
    number = {priority: index for index, priority in enumerate(sorted(example))}
    peaks = np.array([one.peak or 0 if one else 0 for one in found], dtype=np.uint64)
    return Solved(
        engine.directory.labels(table),
        space.sizes[:, known.shape[cells]].T,
        engine.lanes.bytes(known.limits[cells]),
        np.array([known.low[cell] if one else -1 for cell, one in zip(cells, found, strict=True)], dtype=np.int64),
        engine.lanes.bytes(peaks),
        tuple(str(engine.step(example[priority], priority)) for priority in number),
        np.array([number[one.priority] if one else -1 for one in found], dtype=np.int64),
    )
