"""Bounds that know layouts: they are below every cost, and close to it where tensors are laid out anew."""

from __future__ import annotations

import numpy as np
import pytest

from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed
from morello.search.solve.deepening import Rounds
from morello.search.solve.engine import Engine

GOALS = [
    ("x86_avx2", "Move(16×24, (f32, GL, row_major), (f32, GL, col_major), serial)"),
    ("x86_avx2", "Move(2×3×16, (bf16, GL, layout[0, 1, 2, 2oe16]), (f32, L1, col_major), serial)"),
    ("x86_avx2", "Move(4×6×8, (f32, GL, layout[1, 0, 2]), (f32, L1, layout[2, 0, 1]), serial)"),
    ("x86_avx2", "Matmul(1×6×8×24, (f32, GL), (f32, GL, col_major), (f32, GL), serial)"),
    ("x86_avx2", "Conv[stride=2](1×4×4×2×2×2×2, (f32, GL), (f32, GL, nhwc), (f32, GL), serial)"),
    ("x86_avx2", "Compose([Relu, Matmul], [(1×4×8, i32, GL), (1×8×8, i32, GL), (1×4×8, i32, GL)], serial)"),
    ("x86_avx512", "Conv(1×4×16×2×2×2×2, (f32, GL), (f32, GL), (f32, GL), serial)"),
]


def solved(name: str, text: str) -> tuple[Engine, int]:
    """An engine that has solved a Spec, and its cell."""
    target = installed().target(name)
    spec = parse_spec(text, target)
    engine = Engine([spec.logical], target)
    goals = engine.directory.cells_of([spec])
    Rounds(engine).solve(goals)
    return engine, int(goals[0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), GOALS)
def test_no_bound_is_above_the_cost(name: str, text: str) -> None:
    engine, _ = solved(name, text)
    layouts, cells, tables = engine.layouts, engine.cells, engine.tables
    assert layouts is not None
    known = np.flatnonzero(cells.solved[1:] & (cells.high.values[1:] < np.inf)) + 1
    assert len(known) > 20
    spaces = tables.space.values[cells.table.values[known]]
    for number in np.unique(spaces):
        mine = known[spaces == number]
        space = tables.spaces[number].space
        states = tables.states.values[cells.table.values[mine]][:, : len(space.operands)]
        low = layouts.low(space.key, states, cells.shape.values[mine])
        assert np.all(low <= cells.high.values[mine]), str(space.key)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "share"),
    [
        # A transpose of registers costs three times what copying them does.
        ("Move(32×32, (f32, L1, row_major), (f32, L1, col_major), serial)", 0.5),
        ("Conv(1×8×8×4×4×3×3, (f32, GL), (f32, GL), (f32, GL), serial)", 0.85),
    ],
)
def test_to_lay_out_anew_does_not_seem_free(text: str, share: float) -> None:
    engine, goal = solved("x86_avx2", text)
    cells, tables = engine.cells, engine.tables
    cost = cells.low.values[goal]
    table = cells.table.values[[goal]]
    number = int(tables.space.values[table][0])
    limits = cells.limits.values[[goal]].astype(np.int64)
    by_class = cells.bound(number, tables.classes.values[table], cells.shape.values[[goal]], limits)
    space = tables.spaces[number].space
    states = tables.states.values[table][:, : len(space.operands)]
    assert engine.layouts is not None
    by_layout = engine.layouts.low(space.key, states, cells.shape.values[[goal]])
    assert by_class[0] < by_layout[0]
    assert share * cost <= by_layout[0] <= cost
