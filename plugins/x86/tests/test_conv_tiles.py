"""Register tiles of convolutions: filters or pixels in vectors, strides and dilations, whole and cut vectors."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.build.toolchain import Compiler
from morello.errors import MorelloError
from morello.ir.layout import Layout
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry
from morello.rewrites.move import MoveStep

from .scheduled import check, in_turns

PLUGINS = pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.target)
_PAIRS, _ANY = "ConvImageVpmaddwd", "ConvImageAny"


def tiles() -> dict[str, str]:
    """Return the kernel for each Spec: sums from 0 and more, loops in either order, one step and many."""
    filters, pixels = "(f32, L1, chwn), (f32, L1, nhwc), serial", "(f32, L1), (f32, L1), serial"
    i32 = "(i32, L1, nhwc), serial)"
    return {
        f"Conv[stride=2](1×16×3×1×5×7×7, (f32, L1), {filters})": "ConvTile",
        f"ConvAccum(1×11×18×1×4×1×2, (f32, L1, nhwc), {filters})": "ConvTile",
        f"ConvAccum[stride=[1, 3], dilation=2](1×8×2×1×3×2×3, (f32, L1), {filters})": "ConvTile",
        f"Conv(1×16×1×1×4×1×1, (f32, L1), {filters})": "ConvTile",
        "ConvAccum(1×16×5×1×3×3×2, (f32, L1), (f32, L1, layout[2, 3, 1, 0]), (f32, L1, nhwc), serial)": "ConvTile",
        f"Conv(1×5×3×1×13×3×3, (f32, L1), {pixels})": "ConvTilePixels",
        f"ConvAccum[stride=[2, 1], dilation=[1, 2]](1×3×4×1×16×2×3, (f32, GL), {pixels})": "ConvTilePixels",
        f"ConvAccum(1×1×20×1×9×1×1, (f32, L2), {pixels})": "ConvTilePixels",
        # All that differs at an edge: one tile and several, filters wider than the image, rows beside it alone.
        f"Conv[padding=1](1×16×5×7×17×3×3, (f32, L1), {filters})": "ConvImage",
        f"ConvAccum[padding=1](1×11×18×3×29×1×3, (f32, L2, nhwc), {filters})": "ConvImage",
        f"Conv[stride=2, padding=[3, 3, 2, 2]](1×24×3×6×9×7×7, (f32, L1), {filters})": "ConvImage",
        f"ConvAccum[dilation=[2, 3], padding=4](1×24×4×5×6×3×3, (f32, L1, nhwc), {filters})": "ConvImage",
        f"Conv[padding=[0, 3, 4, 0]](1×8×2×6×5×2×5, (f32, L1), {filters})": "ConvImage",
        "Conv[padding=2](1×16×16×3×4×5×5, (f32, L1, nhwc), (f32, L2, layout[2,3,1,0]), (f32, L1, nhwc))": "ConvImage",
        # Tiles that lie in the padding alone.
        f"Conv[dilation=2, padding=1](1×16×2×3×1×3×2, (f32, L1), {filters})": "ConvImage",
        graph(
            "b: (1×27×1×1, f32, L1), z: (1×27×4×5, f32, L2, nhwc)", "r = Add(a, z), a = Add[over=[0, 2, 3]](c, b)"
        ): "ConvImage4",
        graph("b: (1×1×1×1, f32, L1)", "r = Mul[over=[0, 1, 2, 3]](c, b)"): "ConvImage3",
        # Words of channels: by positions, by channels, and a single one.
        f"Conv[padding=1, stride=2](1×24×6×5×9×3×3, (u8, L1, nhwc), (i8, L1, layout[2, 3, 1, 0, 1p2]), {i32}": _PAIRS,
        f"ConvAccum[padding=2](1×12×8×3×4×5×2, (i16, L1, nhwc), (i8, L2, layout[1, 2, 3, 0, 1p2]), {i32}": _PAIRS,
        f"Conv(1×16×2×3×7×3×3, (u8, L1, nhwc), (u8, L1, layout[2, 3, 0, 1]), {i32}": _PAIRS,
        "Conv[padding=1](1×16×3×4×5×3×3, (bf16, L1, nhwc), (f32, L1, chwn), (f32, L1, nhwc), serial)": "ConvImageBf16",
        "Conv[dilation=2](1×9×3×4×5×3×3, (f64, L1, nhwc), (f64, L1, chwn), (f64, L1, nhwc), serial)": "ConvImageF64",
        # Types that are converted in registers: whole vectors, masked ones, and sums that are added to.
        f"Conv[padding=1](1×27×3×4×5×3×3, {typed('bf16', 'bf16', 'bf16')}": _ANY,
        f"ConvAccum[padding=1](1×16×3×4×5×3×3, {typed('f16', 'f16', 'f16')}": _ANY,
        f"ConvAccum[padding=1, stride=2](1×32×5×4×5×3×2, {typed('u8', 'u8', 'u8')}": _ANY,
        f"Conv(1×9×3×4×5×3×3, {typed('i64', 'i64', 'i64')}": _ANY,
        f"Conv(1×18×3×2×5×3×3, {typed('i32', 'u32', 'f32')}": _ANY,
        f"Conv[padding=1](1×11×3×2×5×3×3, {typed('i8', 'f32', 'f64')}": _ANY,
    }


def graph(others: str, stages: str) -> str:
    """Return a padded convolution c, stages that compute r from it, and a function of r."""
    return (
        f"Compose([o = Silu(r), {stages}, c = Conv[stride=2, padding=2](x, w)], [{others}, x: (1×3×7×8, f32, L1, "
        "nhwc), w: (27×3×5×4, f32, L2, chwn), o: (1×27×4×5, f32, L2, nhwc)], serial)"
    )


def typed(image: str, filters: str, out: str) -> str:
    return f"({image}, L1, nhwc), ({filters}, L2, chwn), ({out}, L1, nhwc), serial)"


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_sums_are_those_of_the_convolution(plugin: TargetPlugin, compiler: Compiler) -> None:
    schedules = {spec: f"select {kernel}" for spec, kernel in tiles().items()}
    check(Registry.of(x86=plugin), plugin.target, schedules, compiler)


@pytest.mark.parametrize(
    ("types", "strips"),
    [
        ("(u8, GL), (i8, GL), (i32, GL)", {(1, "layout[2, 3, 1, 0, 1p2]")}),
        # Kernels without words take these.
        ("(f32, GL), (f32, GL), (f32, GL)", set[tuple[int, str]]()),
        ("(bf16, GL), (bf16, GL), (f32, GL)", set[tuple[int, str]]()),
    ],
)
def test_search_packs_the_operands_of_kernels_alone(types: str, strips: set[tuple[int, str]]) -> None:
    goal = api.goal(f"Conv(1×16×8×4×4×3×3, {types}, serial)", target="x86_avx2", registry=Registry.of(x86=AVX2))
    moves = [*MoveStep.steps(goal.spec.logical, goal.target)]
    layouts = [(one.operand, one.layout) for one in moves if isinstance(one.layout, Layout)]
    assert {(operand, str(one)) for operand, one in layouts if one.has_strips} == strips


@pytest.mark.parametrize("layout", ["chwn", "layout[2, 3, 1, 0]"])
def test_columns_and_channels_side_by_side_are_one_loop(layout: str) -> None:
    spec = f"Conv[stride=2](1×8×3×1×4×5×5, (f32, L1, nhwc), (f32, L1, {layout}), (f32, L1, nhwc), serial)"
    goal = api.goal(spec, target="x86_avx2", registry=Registry.of(x86=AVX2)).apply("select ConvTile")
    loops = [line.strip() for line in goal.program.source.splitlines() if "for (ptrdiff_t turn" in line]
    counts = [int(line.split(";")[1].rsplit(" ", 1)[1]) for line in loops]
    # Rows of 15 values, or channels of rows: steps of the innermost loop are none of these.
    assert counts == ([5] if layout != "chwn" else [3, 5])


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        # Sums and factors take more registers than there are.
        ("Conv(1×64×3×1×64×3×3, (f32, L1), (f32, L1, chwn), (f32, L1, nhwc), serial)", "ConvTile"),
        # Filters lie apart.
        ("Conv(1×16×3×1×4×3×3, (f32, L1), (f32, L1), (f32, L1, nhwc), serial)", "ConvTile"),
        # A stride leaves out pixels.
        ("Conv[stride=2](1×2×3×1×8×3×3, (f32, L1), (f32, L1), (f32, L1), serial)", "ConvTilePixels"),
        ("Conv[padding=1](1×2×3×1×8×3×3, (f32, L1), (f32, L1), (f32, L1), serial)", "ConvTilePixels"),
        # Filters lie apart, and nothing is to be skipped.
        ("Conv[padding=1](1×16×3×5×4×3×3, (f32, L1), (f32, L1), (f32, L1, nhwc), serial)", "ConvImage"),
        ("Conv(1×16×3×5×4×3×3, (f32, L1), (f32, L1, chwn), (f32, L1, nhwc), serial)", "ConvImage"),
    ],
)
@PLUGINS
def test_what_no_tile_takes_is_refused(plugin: TargetPlugin, spec: str, kernel: str) -> None:
    goal = api.goal(spec, target=plugin.target, registry=Registry.of(x86=plugin))
    with pytest.raises(MorelloError, match=kernel):
        goal.apply(f"select {kernel}")


@pytest.mark.parametrize(
    ("filters", "accum", "level", "fetched"),
    [(32, "", "GL", True), (16, "", "GL", False), (32, "Accum", "GL", False), (32, "", "L1", False)],
)
def test_later_pixels_of_far_outputs_with_more_filters_are_fetched(
    filters: int, accum: str, level: str, fetched: bool
) -> None:
    """Of the others, the core foresees whole lines, or has read the sums."""
    near = "(f32, L1, nhwc), (f32, L1, layout[1, 2, 3, 0])"
    spec = f"Conv{accum}(1×{filters}×3×2×8×3×3, {near}, (f32, {level}, nhwc), serial)"
    goal = api.goal(spec, target="x86_avx2", registry=Registry.of(x86=AVX2))
    for step in (*(["move 2 to L1"] if level == "GL" else []), "tile [0, 16, 0, 1, 4, 0, 0]", "select ConvTile"):
        goal = goal.apply(step)
    assert ("prefetch" in goal.program.source) is fetched
