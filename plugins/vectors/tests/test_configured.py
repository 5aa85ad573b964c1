"""Kernels of Resize and LinearScan in the modes, types and layouts that `test_kernels` does not draw."""

from __future__ import annotations

import pytest

import morello

CASES = {
    # More columns than places are kept for.
    "Resize[image=[3, 5], mode=linear](1×2×4×71, GL, GL, serial)": "ResizeColumns",
    "Resize[image=[5, 3], mode=linear, grid=align_corners](1×12×3×4, (bf16, GL, nhwc), (f32, GL, nhwc), serial)": (
        "ResizeChannels"
    ),
    "Resize[image=[4, 4], grid=asymmetric](2×12×7×3, (u8, GL, nhwc), (u8, GL, nhwc), serial)": "ResizeChannels",
    "LinearScan[dim=0](3×70, (bf16, GL), (f32, GL), (f32, GL), serial)": "LinearScanColumns",
}


@pytest.mark.slow
@pytest.mark.parametrize("spec", CASES)
def test_kernels_compute_their_results(spec: str) -> None:
    morello.compile(morello.goal(spec, target="x86_avx2").select(CASES[spec])).check()
