"""Collapsed dimensions have the same offsets of values, in strips, in registers, in tiles and with gaps."""

from __future__ import annotations

import pytest

import morello
from morello.ir.impl import walk
from morello.ir.ops.matmul import Matmul

PROGRAMS = {
    "tiles of rows": ("1×2×4×6×7×1×1, L1, L1, L1, serial", ["tile [0, 0, 0, 3, 0, 0, 0]"]),
    "threads": ("1×2×4×6×5×1×1, L1, L1, L1", ["tile [0, 0, 0, 2, 0, 0, 0] parallel"]),
    "strips of channels": ("1×2×8×3×5×1×1, (f32, L1, nchw4c), L1, L1, serial", ["tile [0, 0, 4, 0, 0, 0, 0]"]),
    "strips of columns": (
        "1×2×3×3×8×1×1, L1, L1, (f32, L1, layout[0, 1, 3, 2, 3p4]), serial",
        ["tile [0, 0, 0, 0, 4, 0, 0]", "move 0 to L1 as row_major"],
    ),
    "channels last": ("1×3×4×3×5×1×1, (f32, L1, nhwc), L1, (f32, L1, nhwc), serial", []),
    "gaps between channels": ("1×2×3×3×5×1×1, (f32, L1, c2), L1, (f32, L1, c2), serial", []),
    "sums in registers": ("1×2×4×2×8×1×1, L1, L1, L1, serial", ["move 2 to VRF as row_major v8"]),
    "scalar registers": ("1×2×2×2×2×1×1, RF, L1, RF, serial", []),
    "tiles of scalar registers": ("1×2×1×2×2×1×2, RF, L1, RF, serial", ["tile [0, 0, 0, 0, 0, 0, 1]"]),
    "a copy": ("1×2×4×3×5×1×3, L1, L1, L1, serial", ["tile [0, 0, 0, 0, 0, 0, 1]", "move 0 to L1 as row_major"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", " filters"], ids=["rows", "columns"])
@pytest.mark.parametrize(("spec", "steps"), PROGRAMS.values(), ids=[*PROGRAMS])
def test_rows_of_pixels_as_one(spec: str, steps: list[str], flags: str, prove) -> None:
    goal = morello.goal(f"ConvAccum({spec})", target="x86_avx2")
    impl = goal.apply("\n".join([*steps, f"spatial_split{flags}"])).synthesize().impl
    assert any(one.spec.logical.op == Matmul(accumulate=True) for one in walk(impl))
    prove(impl, goal.target)
