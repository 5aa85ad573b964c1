"""Depthwise convolutions by channels and by pixels: alone and in graphs, padded, of all types and of odd sizes."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import SearchBudget, api
from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry

from .scheduled import check, in_turns

IMAGES, FILTERS = "layout[0, 3, 4, 1, 2]", "(f32, GL, layout[1, 2, 3, 4, 0])"


def graph(equations: str, operands: str, image: str, out: str, filters: str = "20×1×1×3×3") -> str:
    """Return a Compose that begins with the convolution c = GroupedConv(x, w) of an image with a border."""
    return (
        f"Compose([{equations}, c = GroupedConv(x, w)], [x: ({image}, f32, GL, {IMAGES}, c2), w: ({filters}, f32, GL, "
        f"layout[1, 2, 3, 4, 0]), {operands}, o: ({out}, f32, GL, {IMAGES}, c2)], serial)"
    )


BIAS = graph(
    "o = Clip[low=0, high=6](a), a = Add[over=[0, 3, 4]](c, b)",
    "b: (1×20×1×1×1, f32, GL)",
    "1×20×1×9×11",
    "1×20×1×7×9",
)
RESIDUAL = graph(
    "o = Silu(r), r = Add(a, z), a = Mul[over=[0, 1, 2, 3, 4]](c, b)",
    f"b: (1×1×1×1×1, f32, L1), z: (2×20×1×1×5, f32, L2, {IMAGES})",
    "2×20×1×3×7",
    "2×20×1×1×5",
)

PIXELS = (
    "Compose([o = Relu(r), r = Add(a, z), a = Add[over=[0, 3, 4]](c, b), c = GroupedConv[padding=1](x, w)], "
    "[b: (1×3×1×1×1, f32, GL), z: (2×3×1×5×7, bf16, L2), x: (2×3×1×5×7, f32, GL), w: (3×1×1×3×3, f32, GL), "
    "o: (2×3×1×5×7, f32, GL)], serial)"
)
MASKED = (
    "Compose([o = Relu(a), a = Mul[over=[0, 1, 4]](c, b), c = GroupedConv[stride=2, padding=[1, 1, 0, 0]](x, w)], "
    "[b: (1×1×1×6×1, f32, GL), x: (1×3×1×12×34, f32, GL), w: (3×1×1×3×3, f32, GL), o: (1×3×1×6×17, f32, GL)], serial)"
)
F32 = ("f32", "f32", "f32")
#: Factors' types and the output's.
TYPES = (
    ("bf16", "bf16", "f32"),
    ("f16", "f32", "bf16"),
    ("f64", "f64", "f64"),
    ("u8", "i8", "i32"),
    ("u8", "u8", "i16"),
    ("i8", "i8", "i8"),
    ("i16", "i64", "i64"),
)


def alone(op: str, shape: str, types: tuple[str, str, str] = F32, image: str = "", filters: str = "") -> str:
    """Return a convolution whose image and output have one layout."""
    image, filters = (f", layout{one}" if one else "" for one in (image, filters))
    layouts = (image, filters, image)
    operands = ", ".join(f"({dtype}, GL{layout})" for dtype, layout in zip(types, layouts, strict=True))
    return f"{op}({shape}, {operands}, serial)"


def by_channels(op: str, shape: str, types: tuple[str, str, str] = F32) -> str:
    return alone(op, shape, types, "[0, 3, 4, 1, 2]", "[1, 2, 3, 4, 0]")


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_padding_is_left_out(plugin: TargetPlugin, compiler: Compiler) -> None:
    cases = {
        "GroupedConv[padding=1]": ("1×20×1×1×7×9×3×3", "2×3×1×1×5×17×3×3", "1×2×1×1×9×4×3×3"),
        "GroupedConv[stride=2, padding=[1, 1, 0, 0]]": ("1×37×1×1×4×5×3×3", "1×3×1×1×5×19×3×3"),
        "GroupedConv[stride=[1, 2], dilation=2, padding=[0, 3, 4, 1]]": ("1×16×1×1×6×5×3×3", "1×2×1×1×9×8×3×3"),
        "GroupedConv[padding=2]": ("1×5×1×1×1×1×5×5", "1×2×1×1×3×16×5×5"),
        # Rows and columns of the output that see padding alone.
        "GroupedConv[padding=3]": ("1×16×1×1×9×9×2×2", "1×2×1×1×8×23×2×2"),
        # The first are by blocks of channels: several, or a single one.
        "GroupedConv": ("1×70×1×1×3×20×3×3", "1×2×1×1×6×33×3×3"),
        # Vectors of every other pixel on either side of those that are loaded.
        "GroupedConv[stride=2, padding=3]": ("1×2×1×1×3×50×7×7",),
        "GroupedConv[stride=2]": ("1×35×1×1×3×9×3×3", "1×2×1×1×3×37×3×3"),
    }
    chosen: dict[str, str] = {}
    for op, shapes in cases.items():
        for shape in shapes:
            chosen[alone(op, shape)] = "select DepthwisePixels"
        if len(shapes) > 1:
            chosen[by_channels(op, shapes[0])] = "select Depthwise"
            del chosen[alone(op, shapes[0])]
    chosen |= {PIXELS: "select DepthwisePixels4", MASKED: "select DepthwisePixels3"}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.slow
@in_turns("plugin", [AVX512, AVX2])
def test_factors_become_sums(plugin: TargetPlugin, compiler: Compiler) -> None:
    chosen = {alone("GroupedConv[padding=1]", "1×2×1×1×3×17×3×3", one): "select DepthwisePixels" for one in TYPES}
    chosen |= {
        alone("GroupedConv[stride=2]", "1×1×1×1×3×35×3×3", one): "select DepthwisePixels" for one in TYPES[1:5:3]
    }
    chosen |= {by_channels("GroupedConv[padding=1]", "1×35×1×1×3×5×3×3", one): "select Depthwise" for one in TYPES}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_sums_are_those_of_the_convolution(plugin: TargetPlugin, compiler: Compiler) -> None:
    alone = [
        f"GroupedConv[stride=2](1×37×1×1×5×6×3×3, (f32, GL, {IMAGES}), {FILTERS}, (f32, GL, {IMAGES}), serial)",
        f"GroupedConv[stride=[1, 2], dilation=[2, 1]](2×16×1×1×2×3×2×5, (f32, L2, {IMAGES}), {FILTERS}, "
        f"(f32, L1, {IMAGES}, c1), serial)",
        f"GroupedConv(1×5×1×1×1×1×1×1, (f32, GL, {IMAGES}), {FILTERS}, (f32, GL, {IMAGES}), serial)",
    ]
    chosen = dict.fromkeys(alone, "select Depthwise") | {BIAS: "select Depthwise3", RESIDUAL: "select Depthwise4"}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        (f"GroupedConv(1×16×2×1×4×4×3×3, (f32, GL, {IMAGES}), {FILTERS}, (f32, GL, {IMAGES}))", "Depthwise"),
        (f"GroupedConv(1×16×1×1×4×4×3×3, (f32, GL, {IMAGES}), (f32, GL), (f32, GL, {IMAGES}))", "Depthwise"),
        (by_channels("GroupedConv", "1×16×1×1×4×4×3×3", ("f64", "f32", "f32")), "Depthwise"),
        (alone("GroupedConv[padding=1]", "1×16×1×1×4×3×3×3"), "DepthwisePixels"),
        (alone("GroupedConv[stride=3]", "1×16×1×1×4×8×3×3"), "DepthwisePixels"),
        (alone("GroupedConv[padding=4]", "1×16×1×1×8×8×3×3"), "DepthwisePixels"),
        (BIAS.replace("Clip[low=0, high=6]", "Gelu"), "Depthwise3"),
    ],
    ids=[
        "two filters a group",
        "filters apart",
        "factors wider than sums",
        "few columns",
        "far columns",
        "small image",
        "a function of many registers",
    ],
)
def test_what_it_does_not_take(spec: str, kernel: str) -> None:
    target = Registry.of(x86=AVX2).target("x86_avx2")
    assert not target.kernels_by_name[kernel].accepts(parse_spec(spec, target).logical)


def test_search_packs_constant_filters_for_the_kernel() -> None:
    spec = BIAS.replace("layout[1, 2, 3, 4, 0])", "constant)")
    goal = api.goal(spec, target="x86_avx512").synthesize(db=False, budget=SearchBudget(seconds=2))
    assert goal.schedule.split("\n") == ["pack 2 as layout[1, 2, 3, 4, 0]", "select Depthwise3"]


def test_search_lays_out_other_filters_for_the_kernel() -> None:
    """The image, much larger than the filters, stays as it is."""
    spec = alone("GroupedConv[padding=1]", "1×32×1×1×8×8×3×3", image="[0, 3, 4, 1, 2]")
    goal = api.goal(spec, target="x86_avx2").synthesize(db=False, budget=SearchBudget(seconds=60))
    assert goal.schedule.split("\n")[-1] == "select Depthwise"
    assert "move 1 to L1 as layout[1, 2, 3, 4, 0]" in goal.schedule.split("\n")
