"""Operands in registers: one variable each."""

from __future__ import annotations

import pytest

import morello
from morello.kernels.target import Target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "schedule"),
    [
        ("Conv[stride=2](1×1×1×2×1×1×1, (f32, RF), (f32, L1), (f32, L1), serial)", ""),
        ("ConvAccum[stride=2](1×1×1×2×1×1×1, (u8, L1), (u8, L1), (i32, L1), serial)", "move 0 to RF"),
    ],
)
def test_pixels_that_a_stride_skips_are_loaded_but_not_used(spec: str, schedule: str, avx2: Target, prove) -> None:
    goal = morello.goal(spec, target="x86_avx2")
    done = (goal.apply(schedule) if schedule else goal).synthesize()
    assert "    (void)image_1" in prove(done.impl, avx2).source
