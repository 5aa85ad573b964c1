"""Extract the solved nodes of an engine, table by table."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import attrs
import numpy as np

from morello.ir.spec import LogicalSpec
from morello.search.arrays import Ints
from morello.search.solve.core import Chosen, Nodes
from morello.search.solve.solver import Solver


@attrs.frozen
class Solved:
    """Solved nodes of one table, a row each: sizes, limits in bytes, costs, peaks in bytes, and chosen steps.

    `costs` are -1 where the Spec has no program. `step` indexes `steps`, -1: none. `labels` is a Spec of the table.
    """

    labels: LogicalSpec
    shapes: Ints
    limits: Ints
    costs: Ints
    peaks: Ints
    steps: tuple[str, ...]
    step: Ints


def solved(solver: Solver, known: Nodes, nodes: Ints) -> tuple[Ints, Iterator[Solved]]:
    """Return the solved nodes, [n], whose programs are chosen completely, and their answers by table."""
    priced = nodes[known.low[nodes] < np.inf].tolist()
    solver.choose(priced, settle=False)
    chosen = {node: found for node in priced if (found := solver.core.chosen(node)).peak is not None}
    whole = nodes[[low == np.inf or node in chosen for node, low in zip(nodes.tolist(), known.low[nodes], strict=True)]]
    return whole, (_of_table(solver, known, chosen, rows) for rows in _by_table(known, whole))


def _by_table(known: Nodes, nodes: Ints) -> Iterator[Ints]:
    """Yield nodes, [n], one table at a time."""
    tables = known.table[nodes]
    order = np.argsort(tables, kind="stable")
    ends = np.flatnonzero(np.diff(tables[order], prepend=-1, append=-1)).tolist()
    for start, end in pairwise(ends):
        yield nodes[order[start:end]]


def _of_table(solver: Solver, known: Nodes, chosen: dict[int, Chosen], nodes: Ints) -> Solved:
    engine, table = solver.engine, int(known.table[nodes[0]])
    space = engine.directory.space_of(table)
    found = [chosen.get(node) for node in nodes.tolist()]
    # The step of a priority is the same for all nodes of a table.
    example = {one.priority: node for node, one in zip(nodes.tolist(), found, strict=True) if one}
    number = {priority: index for index, priority in enumerate(sorted(example))}
    peaks = np.array([one.peak or 0 if one else 0 for one in found], dtype=np.uint64)
    return Solved(
        engine.directory.labels(table),
        space.sizes[:, known.shape[nodes]].T,
        engine.limit_codes.bytes(known.limits[nodes]),
        np.array([known.low[node] if one else -1 for node, one in zip(nodes, found, strict=True)], dtype=np.int64),
        engine.limit_codes.bytes(peaks),
        tuple(str(engine.step(example[priority], priority)) for priority in number),
        np.array([number[one.priority] if one else -1 for one in found], dtype=np.int64),
    )
