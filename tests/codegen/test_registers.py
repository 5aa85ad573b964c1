"""Variables: one for each value in a register; those that no line reads are marked as used."""

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


def test_a_stride_that_no_line_reads_is_marked(avx2: Target, prove) -> None:
    goal = morello.goal("Slice[rest=[2, 0]](1×5, (f32, GL, row_major, c1), GL, serial)", target="x86_avx2")
    assert "    (void)src_stride0;" in prove(goal.synthesize().impl, avx2).source
