"""materialize and rematerialize: random matrices in memory or registers, the same for all tiles."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.errors import MorelloError
from morello.host import missing_features
from morello.ir.ops.rand_matmul import random_values
from morello.kernels.target import Target
from morello.rewrites.materialize import Materialize, Rematerialize

TEXT = "RandMatmul[seed=5](1×8×8×16, (u32, {0}), (u32, {0}), (f32, {0}), (f32, {0}), serial)"


def goal(level: str = "GL") -> morello.Goal:
    return morello.goal(TEXT.format(level), target="x86_avx2")


def counters(rows: int, columns: int, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.arange(first, first + rows, dtype=np.uint32).reshape(1, rows, 1),
        np.arange(columns, dtype=np.uint32).reshape(1, 1, columns),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "steps"),
    [
        (16, "tile [1, 4, 8]; materialize to L1"),
        (8, "tile [1, 1, 8]; to_accum; subschedule [1] { split 1; rematerialize to RF }"),
        (1, "to_accum; subschedule [1] { split 1; rematerialize to VRF as row_major v8 }"),
    ],
)
def test_programs_are_right(columns: int, steps: str, prove) -> None:
    schedule = f"schedule one {{ {steps}{'' if steps.endswith('}') else '; synthesize'} }}"
    text = f"target x86_avx2\nspec one = {TEXT.format('L1').replace('×16', f'×{columns}')}\n{schedule}"
    one = morello.parse(text)["one"].synthesize(db=False)
    prove(one.impl, one.target)


@pytest.mark.slow
def test_a_part_has_the_counters_from_there_on(avx2: Target) -> None:
    if missing_features(avx2.info.cpu_features):
        pytest.skip("this machine cannot run it")
    kernel = morello.compile(goal().apply("materialize to L1"), db=False)
    rhs, whole = np.eye(8, 16, dtype=np.float32)[None], random_values(5, np.arange(40)[:, None], np.arange(8))
    for first in (0, 8, 32):
        out = np.zeros((1, 8, 16), np.float32)
        kernel(*counters(8, 8, first), rhs, out)
        assert (out[0, :, :8] == whole[first : first + 8]).all()


def test_numbers_are_evenly_distributed() -> None:
    values = random_values(0, np.arange(512)[:, None], np.arange(512))
    assert -1 <= values.min() < -0.999
    assert 0.999 < values.max() < 1
    assert abs(values.mean()) < 0.005
    assert np.var(values) == pytest.approx(1 / 3, abs=0.005)
    assert (values == values.astype(np.float32)).all()
    # Rows, columns and seeds have nothing to do with each other: of n products the mean is about n^-1/2.
    others = random_values(1, np.arange(512)[:, None], np.arange(512))
    for one in (np.roll(values, 1, 0), np.roll(values, 1, 1), np.roll(values, (1, 1), (0, 1)), values.T, others):
        assert abs((values * one)[one is not values.T or ~np.eye(512, dtype=bool)].mean()) < 0.005


def test_search_tries_both(avx2: Target) -> None:
    logical = goal().spec.logical
    assert {one.level for one in Materialize.steps(logical, avx2)} == {"L1", "L2", "L3", "GL"}
    assert {one.level for one in Rematerialize.steps(logical, avx2)} == {"RF", "VRF"}
    assert not [*Materialize.steps(morello.goal("Matmul(1×2×2×2, L1, L1, L1)", target="x86_avx2").spec.logical, avx2)]


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        ("materialize to RF", "`materialize to RF` is for memory, not for RF"),
        ("rematerialize to L1", "`rematerialize to L1` is for registers, not for L1"),
        ("materialize to L9", "unknown memory level 'L9'"),
    ],
)
def test_levels_that_it_is_not_for(step: str, rule: str) -> None:
    with pytest.raises(MorelloError, match=rule):
        goal().apply(step)


def test_other_operations() -> None:
    with pytest.raises(MorelloError, match="is for RandMatmul, not for Matmul"):
        morello.goal("Matmul(1×2×2×2, L1, L1, L1)", target="x86_avx2").apply("materialize to L1")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("RandMatmul(1×2×2×2, L1, L1, L1, L1)", "its counters are u32, not f32 and f32"),
        ("RandMatmul(1×2×2×2, (u32, L1), (u32, L1), (bf16, L1), L1)", "all but its counters are f32"),
        ("RandMatmul[seed=-1](1×2×2×2, (u32, L1), (u32, L1), L1, L1)", "seed=-1 is not an unsigned 32-bit number"),
    ],
)
def test_invalid_random_specs(text: str, rule: str) -> None:
    with pytest.raises(MorelloError, match=rule):
        morello.goal(text, target="x86_avx2")
