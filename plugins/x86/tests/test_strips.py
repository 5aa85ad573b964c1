"""Register tiles of 512 bits fetch their parts of strips in L2, which may be read for the first time."""

from __future__ import annotations

import pytest
from morello_x86_avx512.plugin import PLUGIN

from morello import api
from morello.plugins.registry import Registry

from .scheduled import check

REGISTRY = Registry.of(x86=PLUGIN)


def tiles(channels: int, strip: int, level: str) -> tuple[str, str]:
    """Return a convolution and a product by tiles of 16 filters or columns of `strip`, with their schedules."""
    filters = f"(f32, GL, layout[0, 2, 3, 1, 0p{strip}])"
    conv = (
        f"Conv[padding=[0, 1, 0, 1]](1×{strip}×{channels}×2×5×1×3, (f32, L2, nhwc), {filters}, (f32, L2, nhwc), serial)"
    )
    product = f"Matmul(1×4×{channels}×{strip}, (f32, L1), (f32, GL), (f32, L1), serial)"
    return (
        f"{conv} ; move 1 to {level} ;{' tile [0, 16, 0, 0, 0, 0, 0] ;' if strip > 16 else ''} select ConvImage",
        f"{product} ; move 1 to {level} ;{' tile [0, 0, 0, 16] ;' if strip > 16 else ''} select RegisterTile",
    )


@pytest.mark.parametrize(
    ("channels", "strip", "level", "fetched"),
    [(64, 32, "L2", True), (36, 32, "L2", False), (64, 16, "L2", False), (64, 32, "L1", False), (64, 160, "L2", False)],
    ids=["parts", "few steps", "whole strips", "in L1", "wide rows"],
)
def test_parts_of_strips_in_l2_are_fetched(channels: int, strip: int, level: str, fetched: bool) -> None:
    for text in tiles(channels, strip, level):
        spec, schedule = text.replace(" ;", "\n").split("\n", 1)
        (goal,) = api.parse(
            f"target x86_avx512\nspec one = {spec}\nschedule one {{\n{schedule}\n}}\n", registry=REGISTRY
        ).values()
        assert ("_mm_prefetch" in goal.program.source) is fetched, spec


def test_results_are_those_of_the_operation() -> None:
    texts = (one.split(" ; ", 1) for one in tiles(68, 48, "L2"))
    check(REGISTRY, "x86_avx512", dict(texts))
