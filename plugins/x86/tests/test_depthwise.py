"""Depthwise convolutions with channels side by side: alone and in graphs, with strides, dilations and odd sizes."""

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
        (f"GroupedConv[padding=1](1×16×1×1×4×4×3×3, (f32, GL, {IMAGES}), {FILTERS}, (f32, GL, {IMAGES}))", "Depthwise"),
        (BIAS.replace("Clip[low=0, high=6]", "Gelu"), "Depthwise3"),
    ],
    ids=["two filters a group", "filters apart", "padding", "a function of many registers"],
)
def test_what_it_does_not_take(spec: str, kernel: str) -> None:
    target = Registry.of(x86=AVX2).target("x86_avx2")
    assert not target.kernels_by_name[kernel].accepts(parse_spec(spec, target).logical)


def test_search_packs_constant_filters_for_the_kernel() -> None:
    spec = BIAS.replace("layout[1, 2, 3, 4, 0])", "constant)")
    goal = api.goal(spec, target="x86_avx512").synthesize(db=False, budget=SearchBudget(seconds=2))
    assert goal.schedule.split("\n") == ["pack 2 as layout[1, 2, 3, 4, 0]", "select Depthwise3"]
