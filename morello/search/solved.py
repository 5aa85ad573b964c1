"""What an engine has solved, table by table, in plain numbers."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
import numpy.typing as npt

from morello.ir.spec import LogicalSpec
from morello.search.engine import Engine
from morello.search.rounds import Rounds

Ints = npt.NDArray[np.int64]


@attrs.frozen
class Solved:
    """Cells of one table, an array row each: sizes, limits in bytes, cost, and for programs their peaks and steps.

    `costs` are exact where `exact`, else lower bounds; -1 where nothing implements the Spec. `step` indexes `steps`,
    -1 where there is none. `labels` is some Spec of the table.
    """

    labels: LogicalSpec
    shapes: Ints
    limits: Ints
    costs: Ints
    exact: npt.NDArray[np.bool_]
    peaks: Ints
    steps: tuple[str, ...]
    step: Ints


def solved(rounds: Rounds, cells: Ints, *, bounds: bool = False) -> Iterator[Solved]:
    """What is known of these cells; with `bounds`, lower bounds of cells that are not solved too.

    A solved cell whose program is not known to the end counts as a lower bound.
    """
    known = rounds.cells
    done = known.solved
    priced = cells[done[cells] & (known.low.values[cells] < np.inf)]
    rounds.choices.make(priced, settle=False)
    known = rounds.cells
    peaks = rounds.choices.peaks(cells)
    full = bytes_of(rounds.engine, known.axes.full[None])[0]
    exact = done[cells] & np.all((peaks >= 0) & (peaks <= full), axis=1)
    none = known.low.values[cells] == np.inf
    keep = exact | none | (bounds & ~exact)
    cells, exact, peaks = cells[keep], exact[keep], peaks[keep]
    tables = known.table.values[cells]
    order = np.argsort(tables, kind="stable")
    ends = np.flatnonzero(np.diff(tables[order], append=-1)) + 1
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True) if len(order) else ():
        rows = order[start:end]
        yield _of_table(rounds, cells[rows], exact[rows], peaks[rows])


def _of_table(rounds: Rounds, cells: Ints, exact: npt.NDArray[np.bool_], peaks: Ints) -> Solved:
    engine, known = rounds.engine, rounds.cells
    space = engine.tables.spaces[int(engine.tables.space.values[known.table.values[cells[0]]])].space
    low = known.low.values[cells]
    ranks = np.array(
        [rounds.choices.rank(cell) if fine else -1 for cell, fine in zip(cells.tolist(), exact, strict=True)]
    )
    distinct = {rank: index for index, rank in enumerate(np.unique(ranks[exact]).tolist())}
    example = {int(rank): int(cell) for rank, cell in zip(ranks, cells, strict=True)}
    return Solved(
        engine.logical(int(cells[0])),
        space.sizes[:, known.shape.values[cells]].T,
        bytes_of(engine, known.limits.values[cells]),
        np.where(low < np.inf, low, -1).astype(np.int64),
        exact,
        np.where(exact[:, None], peaks, 0),
        tuple(str(engine.step(example[rank], rank)) for rank in distinct),
        np.array([distinct.get(int(rank), -1) for rank in ranks], dtype=np.int64),
    )


def bytes_of(engine: Engine, numbers: Ints) -> Ints:
    """Limits in bytes from their numbers, [n, levels]."""
    axes = engine.bounds.axes
    return np.stack([axes.bytes(level, numbers[:, level]) for level in range(numbers.shape[1])], axis=-1)
