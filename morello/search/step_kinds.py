"""The kinds of step that search has tables for, and the classes of each.

A rewrite's base class decides its kind, so a new rewrite needs no edit in search. To add a kind: a file in each of
`tables`, `bounds` and `layout_bounds`, the C of its bounds (`bounds/steps.c`) and of its steps on nodes
(`solve/generate.c`, with arrays from `solve/marshal.py`), and its line here. Rewrites of no kind are applied to one
Spec at a time (`solve/generic_rewrites.py`), which is correct but slow.
"""

from __future__ import annotations

import attrs

from morello.rewrites.base import Rewrite
from morello.search.bounds.kernels import KernelBounds
from morello.search.bounds.loops import LoopBounds
from morello.search.bounds.moves import MoveBounds
from morello.search.bounds.pipelines import PipelineBounds
from morello.search.bounds.relaxed import StepBounds
from morello.search.layout_bounds.grid import GridFields
from morello.search.layout_bounds.moves import move_fields
from morello.search.layout_bounds.steps import kernel_fields, loop_fields
from morello.search.tables.kernels import KernelTables
from morello.search.tables.loops import LoopTables
from morello.search.tables.moves import MoveTables
from morello.search.tables.pipelines import PipelineTables
from morello.search.tables.step_tables import StepTables


@attrs.frozen
class StepKind:
    """One kind of step: the classes of its tables and of its bounds by class, and its fields in bounds by layout."""

    tables: type[StepTables]
    bounds: type[StepBounds]
    layouts: GridFields | None = None


KINDS = (
    StepKind(KernelTables, KernelBounds, kernel_fields),
    StepKind(LoopTables, LoopBounds, loop_fields),
    StepKind(PipelineTables, PipelineBounds),
    StepKind(MoveTables, MoveBounds, move_fields),
)


def is_known(rewrite: type[Rewrite]) -> bool:
    """Return whether search has tables for a rewrite."""
    return any(kind.tables.handles(rewrite) for kind in KINDS)
