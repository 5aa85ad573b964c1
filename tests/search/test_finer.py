"""Bounds that know layouts of all operations: search takes them where it would be long without."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from morello.frontend.parser import parse_spec
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.block_search import BlockSearch
from morello.search.solve import solver
from morello.search.solve.engine import Engine

SPECS = (
    "Matmul(1×8×32×8, GL, (f32, GL, col_major), GL, serial)",
    "Matmul(1×1×64×16, (bf16, GL), (bf16, GL, col_major), (f32, GL), serial)",
)


@pytest.mark.slow
@pytest.mark.parametrize("text", SPECS)
def test_finer_bounds_change_no_program(
    text: str, target_named: Callable[[str], Target], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = target_named("x86_avx2")
    spec = parse_spec(text, target)
    usual = BlockSearch(target)
    program = usual.synthesize(spec)
    monkeypatch.setattr(solver, "_COARSE_TURNS", 0)
    finer = BlockSearch(target)
    assert finer.synthesize(spec) == program
    assert [line for line in finer.details() if "bounds that know layouts" in line]
    assert not [line for line in usual.details() if "bounds that know layouts" in line]


@pytest.mark.slow
def test_finer_bounds_of_a_product_in_columns_are_higher(target_named: Callable[[str], Target]) -> None:
    target = target_named("x86_avx2")
    spec = parse_spec(SPECS[1], target)
    low = {fine: _low(spec, target, fine) for fine in (False, True)}
    cost = BlockSearch(target).solve(spec)
    assert cost is not None
    assert 1.2 * low[False] < low[True] <= cost.cost


def _low(spec: Spec, target: Target, fine: bool) -> float:
    """Return the bound on the cost of a Spec before search begins."""
    engine = Engine([spec.logical], target, fine=fine)
    (cell,) = engine.directory.cells_of([spec])
    return engine.core.costs(cell)[0]
