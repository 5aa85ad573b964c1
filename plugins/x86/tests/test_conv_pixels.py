"""Convolutions of padded row-major images by pixels: borders, strides, dilations and odd sizes."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry

from .scheduled import check, in_turns

OPERANDS = "(f32, GL), (f32, L1), (f32, L2), serial"


@pytest.mark.slow
@in_turns("plugin", [AVX512, AVX2])
def test_padding_is_left_out(plugin: TargetPlugin, compiler: Compiler) -> None:
    shapes = {
        "[padding=1]": ("1×5×3×4×45×3×3", "1×1×2×3×4×3×3", "1×13×2×2×12×3×3"),
        "Accum[padding=[0, 2, 1, 0]]": ("1×4×3×3×36×2×3",),
        "[stride=2, padding=[1, 1, 0, 0]]": ("1×3×2×4×50×3×3", "1×6×2×4×9×3×3"),
        "[stride=[1, 2], padding=3, dilation=2]": ("1×3×2×3×37×3×5",),
        # Rows and columns of the output that see padding alone.
        "[padding=4]": ("1×2×2×9×20×2×2",),
        # Tiles in a loop.
        "[stride=2, padding=1]": ("1×12×1×2×100×3×3",),
    }
    chosen = {f"Conv{op}({one}, {OPERANDS})": "select ConvPixels" for op, some in shapes.items() for one in some}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.parametrize(
    "spec",
    [
        "Conv(1×4×3×4×16×3×3",
        "Conv[stride=3, padding=1](1×4×3×4×16×4×4",
        "Conv[padding=1](1×15×3×4×16×3×3",
        "Conv[padding=1](1×4×3×4×3×3×3",
        "Conv[padding=1](2×4×3×4×16×3×3",
    ],
    ids=["no padding", "stride 3", "many filters", "few columns", "a batch"],
)
def test_what_it_does_not_take(spec: str) -> None:
    target = Registry.of(x86=AVX2).target("x86_avx2")
    assert not target.kernels_by_name["ConvPixels"].accepts(parse_spec(f"{spec}, {OPERANDS})", target).logical)
