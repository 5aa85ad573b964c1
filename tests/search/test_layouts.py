"""Bounds that know layouts: they are below every cost, and close to it where tensors are laid out anew."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from morello.frontend.parser import parse_spec
from morello.plugins.registry import installed
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Solver
from morello.search.tables.shapes import Space

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
    Solver(engine).solve(goals)
    return engine, goals[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), GOALS)
def test_no_bound_is_above_the_cost(name: str, text: str) -> None:
    engine, _ = solved(name, text)
    # Search leaves most of what it meets open: solve more, as far as that is soon done.
    for cell in range(1, min(200, len(engine.core))):
        engine.core.begin(cell, np.inf)
        any(engine.core.run() for _ in range(20))
    layouts, known = engine.layouts, engine.core.cells()
    assert layouts is not None
    priced = np.flatnonzero(known.solved & (known.high < np.inf))[1:].tolist()
    assert len(priced) > 20
    for cell in priced:
        space, states = states_of(engine, int(known.table[cell]))
        (low,) = layouts.low(space.key, states, known.shape[[cell]])
        assert low <= known.high[cell], str(engine.directory.logical(cell))


def states_of(engine: Engine, table: int) -> tuple[Space, npt.NDArray[np.int64]]:
    """The space of a table, and its operands' states, [1, operands]."""
    space, (_, states) = engine.directory.space_of(table), engine.core.states(table)
    return space, np.array([states[: len(space.operands)]], dtype=np.int64)


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
    known = engine.core.cells(goal, 1)
    space, states = states_of(engine, int(known.table[0]))
    bounds = engine.bounds.by_key[space.key]
    columns = bounds.columns_of(tuple(engine.bounds.states.cls[states[0]].tolist()))
    by_class = bounds.values[known.shape[0], columns.under(engine.lanes.unpack(known.limits)[0])]
    assert engine.layouts is not None
    (by_layout,) = engine.layouts.low(space.key, states, known.shape)
    assert by_class < by_layout
    assert share * known.low[0] <= by_layout <= known.low[0] == known.high[0]
