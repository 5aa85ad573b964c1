"""Carry costs from parts to the cells that use them: a fixed point over arrays of edges.

There are two ways to it with the same result: a small compiled loop, built when the package is installed where there
is a C compiler, and numpy.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import attrs
import cffi
import numpy as np
import numpy.typing as npt

from morello.search.arrays import Floats, Ints
from morello.search.solve.expand import Edges

_DECLARATION = """
void morello_propagate(size_t groups, const int64_t *cell_ends, const int64_t *cells, const int64_t *edge_ends,
                       size_t edges, size_t parts, const int64_t *parent, const double *cost, const int64_t *child,
                       const double *times, const double *budget, double *low, double *high, double *new_low,
                       double *new_high);
"""


@attrs.frozen
class Taken:
    """Cells and the edges made of them, in groups; those of the first group are worked out first.

    `cell_ends` and `edge_ends` say where each group ends; `child` and `times` are [parts, edges].
    """

    cell_ends: Ints
    cells: Ints
    edge_ends: Ints
    parent: Ints
    cost: Floats
    child: Ints
    times: Floats

    @classmethod
    def of(cls, groups: Sequence[tuple[Ints, Sequence[Edges]]]) -> Taken:
        chunks = [edges for _, chunk in groups for edges in chunk]
        parts = max((len(edges.child) for edges in chunks), default=0)
        count = sum(len(edges.parent) for edges in chunks)
        child, times = np.zeros((parts, count), dtype=np.int64), np.zeros((parts, count))
        at = 0
        for edges in chunks:
            size = len(edges.parent)
            child[: len(edges.child), at : at + size] = edges.child
            times[: len(edges.child), at : at + size] = edges.times
            at += size
        return cls(
            np.cumsum([len(cells) for cells, _ in groups], dtype=np.int64),
            _joined([cells for cells, _ in groups], np.int64),
            np.cumsum([sum(len(edges.parent) for edges in chunk) for _, chunk in groups], dtype=np.int64),
            _joined([edges.parent for edges in chunks], np.int64),
            _joined([edges.cost for edges in chunks], np.float64),
            child,
            times,
        )

    def total(self, edges: slice, known: Floats) -> Floats:
        sums = self.cost[edges]
        for child, times in zip(self.child, self.times, strict=True):
            sums = sums + times[edges] * known[child[edges]]
        return sums


def propagate(taken: Taken, budget: Floats, low: Floats, high: Floats) -> None:
    """Raise `low` and reduce `high`, per cell, as far as the edges show.

    A cell costs as little as its cheapest edge, and more than its budget if no edge is within it. Cell 0 costs 0.
    """
    library = compiled()
    if library is None:
        _in_numpy(taken, budget, low, high)
    else:
        _compiled(library, taken, budget, low, high)


def _in_numpy(taken: Taken, budget: Floats, low: Floats, high: Floats) -> None:
    new_low, new_high = np.empty(len(low)), np.empty(len(high))
    changed = True
    while changed:
        changed = False
        first_cell = first_edge = 0
        for cell_end, edge_end in zip(taken.cell_ends.tolist(), taken.edge_ends.tolist(), strict=True):
            cells, edges = taken.cells[first_cell:cell_end], slice(first_edge, edge_end)
            first_cell, first_edge = cell_end, edge_end
            new_low[cells], new_high[cells] = budget[cells] + 1, high[cells]
            np.minimum.at(new_low, taken.parent[edges], taken.total(edges, low))
            np.minimum.at(new_high, taken.parent[edges], taken.total(edges, high))
            if np.any((new_low[cells] > low[cells]) | (new_high[cells] < high[cells])):
                changed = True
                low[cells] = np.maximum(low[cells], new_low[cells])
                high[cells] = np.minimum(high[cells], new_high[cells])


def _compiled(library: tuple[cffi.FFI, Any], taken: Taken, budget: Floats, low: Floats, high: Floats) -> None:
    ffi, functions = library
    scratch = np.empty(len(low)), np.empty(len(low))

    def ints(array: Ints) -> Any:
        return ffi.from_buffer("int64_t[]", np.ascontiguousarray(array, dtype=np.int64).data)

    def floats(array: Floats) -> Any:
        return ffi.from_buffer("double[]", np.ascontiguousarray(array).data)

    def results(array: Floats) -> Any:
        return ffi.from_buffer("double[]", array.data, require_writable=True)

    functions.morello_propagate(
        len(taken.cell_ends),
        ints(taken.cell_ends),
        ints(taken.cells),
        ints(taken.edge_ends),
        len(taken.parent),
        len(taken.child),
        ints(taken.parent),
        floats(taken.cost),
        ints(taken.child),
        floats(taken.times),
        floats(budget),
        *map(results, (low, high, *scratch)),
    )


@cache
def compiled() -> tuple[cffi.FFI, Any] | None:
    """Return the compiled loop; None where the package was installed without one, or MORELLO_NUMPY_ONLY is set."""
    found = importlib.util.find_spec("morello.search.solve._propagate")
    if found is None or not found.origin or os.environ.get("MORELLO_NUMPY_ONLY"):
        return None
    ffi = cffi.FFI()
    ffi.cdef(_DECLARATION)
    return ffi, ffi.dlopen(found.origin)


def _joined(arrays: Sequence[npt.NDArray[Any]], dtype: Any) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *arrays])
