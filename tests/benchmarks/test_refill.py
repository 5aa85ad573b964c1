"""benchmarks/refill.py: what old answers say under new costs holds without exception."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import refill
from morello.db.answers import AnswerKind
from morello.db.store import SpecStore
from morello.kernels.target import Target

FAMILIES = (
    ("Matmul(1×1×1×1, (f32, GL), (f32, GL), (f32, GL), serial)", 2),
    ("Move(1×1, (f32, GL), (f32, GL, col_major), serial)", 1),
    ("Softmax[dim=1](1×1, (f32, GL), (f32, GL), serial)", 2),
)


@pytest.fixture(scope="module")
def solved(avx2: Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpecStore]:
    store = SpecStore(tmp_path_factory.mktemp("refill") / "specs.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refill, "FAMILIES", FAMILIES)
        refill.solve(store, avx2, 8)
    yield store
    store.close()


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    percent=st.sampled_from((0, 5, 30)),
    dearer=st.booleans(),
    kernel=st.sampled_from(("VectorMove", "RegisterTile", "TransposeMatrix", "VectorMax")),
)
def test_claims_hold(avx2: Target, solved: SpecStore, seed: int, percent: int, dearer: bool, kernel: str) -> None:
    changed = refill.with_kernels(refill.calibrated(avx2, percent, seed), {kernel: 100 + (percent if dearer else 0)})
    # It compares each claim with a search.
    found = refill.shares(solved, avx2, changed)
    assert found.proven <= min(found.within)
    if not percent:
        assert found.proven == found.answers


@pytest.mark.slow
def test_dearer_costs_prove_and_cheaper_ones_bound(avx2: Target, solved: SpecStore) -> None:
    dearer = refill.shares(solved, avx2, refill.with_kernels(avx2, {"VectorMove": 130}))
    cheaper = refill.shares(solved, avx2, refill.with_kernels(avx2, {"VectorMove": 80}))
    assert 0 < dearer.proven < dearer.answers
    assert cheaper.proven < dearer.proven


@pytest.mark.slow
def test_a_new_kernel_leaves_answers_that_cannot_reach_it(avx2: Target, solved: SpecStore) -> None:
    """Moves and softmax contain no product, so a kernel for products changes nothing there."""
    without = refill.lacking(avx2, "RegisterTile")
    kinds = {one.spec.op.name: one.kind for one in refill.carried(solved, avx2, without)}
    assert kinds["Move"] == kinds["Softmax"] == AnswerKind.EXACT
    assert kinds["Matmul"] == AnswerKind.LOWER


@pytest.mark.slow
def test_a_wrong_claim_is_found(avx2: Target, solved: SpecStore) -> None:
    claims = [one for one in refill.carried(solved, avx2, avx2) if one.impl][:20]
    truth = refill.searched([one.spec for one in claims], refill.with_levels(avx2, {"GL": 50, "L1": 900}))
    assert any(refill.fault(one, truth[one.spec]) for one in claims)
    too_high = attrs.evolve(claims[0], kind=AnswerKind.LOWER, low=claims[0].high + 1)
    assert refill.fault(too_high, claims[0].impl)


@pytest.mark.slow
def test_searches_from_old_answers(avx2: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refill, "GOALS", ("Matmul(1×16×16×16, (f32, GL), (f32, GL), (f32, GL), serial)",))
    result = CliRunner(catch_exceptions=False).invoke(refill.main, ["searches", "--only", "GL +"])
    assert result.exit_code == 0
    assert "Matmul" in result.output
