"""Give out what an engine has solved, table by table, in plain numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.search.arrays import Ints
from morello.search.solve.deepening import Rounds
from morello.search.solve.engine import Engine


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


def solved(rounds: Rounds, cells: Ints) -> Iterator[Solved]:
    """Return the answers to solved cells [N]; cells whose programs are not known to the end are left out."""
    known = rounds.cells
    rounds.choices.make(cells[known.low.values[cells] < np.inf], settle=False)
    peaks = rounds.choices.peaks(cells)
    full = bytes_of(rounds.engine, known.limit_codes.full[None])[0]
    keep = np.all((peaks >= 0) & (peaks <= full), axis=1) | (known.low.values[cells] == np.inf)
    cells, peaks = cells[keep], peaks[keep]
    for _, rows in by_table(known.table.values[cells]):
        yield _of_table(rounds, cells[rows], peaks[rows])


def by_table(tables: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield each table, and its places in an array of tables."""
    order = np.argsort(tables, kind="stable")
    ends = np.flatnonzero(np.diff(tables[order], prepend=-1, append=-1)).tolist()
    for start, end in pairwise(ends):
        yield int(tables[order[start]]), order[start:end]


def _of_table(rounds: Rounds, cells: Ints, peaks: Ints) -> Solved:
    engine, known = rounds.engine, rounds.cells
    space = engine.tables.spaces[int(engine.tables.space.values[known.table.values[cells[0]]])].space
    low = known.low.values[cells]
    priced = low < np.inf
    priorities, example, step = np.unique(
        rounds.choices.priorities(cells[priced]), return_index=True, return_inverse=True
    )
    steps = np.full(len(cells), -1, dtype=np.int64)
    steps[priced] = step
    examples = cells[priced][example].tolist()
    return Solved(
        engine.directory.logical(int(cells[0])),
        space.sizes[:, known.shape.values[cells]].T,
        bytes_of(engine, known.limits.values[cells]),
        np.where(priced, low, -1).astype(np.int64),
        np.where(priced[:, None], peaks, 0),
        tuple(str(engine.step(cell, priority)) for cell, priority in zip(examples, priorities.tolist(), strict=True)),
        steps,
    )


def bytes_of(engine: Engine, numbers: Ints) -> Ints:
    """Return limits in bytes, [n, levels], given their codes."""
    limit_codes = engine.bounds.limit_codes
    return np.stack([limit_codes.bytes(level, numbers[:, level]) for level in range(numbers.shape[1])], axis=-1)
