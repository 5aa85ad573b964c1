"""to_conv and pad: a few planes of a padded Conv3d are Convs without its padding, more of them get a padded image."""

from __future__ import annotations

import pytest

import morello
from morello.errors import MorelloError
from morello.ir.impl import Node


def volumes(planes: int, flags: str = "") -> morello.Goal:
    return morello.goal(f"Conv3d{flags}(1×1×1×{planes}×2×2×3×3×3, L1, L1, L1)", target="x86_avx2")


def children(goal: morello.Goal) -> list[str]:
    assert isinstance(goal.impl, Node)
    return [child.spec.logical.op.name for child in goal.impl.children]


def test_planes_in_the_padding_are_left_out() -> None:
    # Three for the filter, less one at either end.
    found = children(volumes(2, "[padding=1]").apply("to_conv"))
    assert found == ["GroupedConv", "GroupedConvAccum"] * 2


def test_many_planes_are_tiled() -> None:
    padded = volumes(9, "[padding=1]")
    with pytest.raises(MorelloError, match="out has more planes than 8"):
        padded.apply("to_conv")
    assert children(padded.apply("pad to L1")) == ["Pad", "Conv3d"]
    with pytest.raises(MorelloError, match="out has more planes than 1"):
        volumes(2).apply("to_conv")
    assert children(volumes(1).apply("to_conv")) == ["GroupedConv", *["GroupedConvAccum"] * 2]
