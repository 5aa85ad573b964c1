"""Few rows whose values take turns in the output: planes that become channels, groups of channels that are shuffled."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry

from .scheduled import check, in_turns


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_values_take_turns(plugin: TargetPlugin, compiler: Compiler) -> None:
    planes = [
        f"Move(1×{rows}×1×{columns}, (f32, L2), (f32, L1, layout[0, 2, 3, 1]), serial)"
        for rows, columns in [(2, 4), (3, 37), (4, 9), (5, 16), (8, 21)]
    ]
    shuffled = "Move(1×17×4×1×1, (i32, GL, layout[0, 3, 4, 2, 1], c1), (i32, GL, layout[0, 3, 4, 1, 2]), serial)"
    check(Registry.of(x86=plugin), plugin.target, dict.fromkeys([*planes, shuffled], "select Interleave"), compiler)


@pytest.mark.parametrize(
    "spec",
    [
        "Move(1×9×1×16, (f32, L1), (f32, L1, layout[0, 2, 3, 1]), serial)",
        "Move(1×3×1×3, (f32, L1), (f32, L1, layout[0, 2, 3, 1]), serial)",
        "Move(1×3×1×8, (f32, L1), (f32, L1, layout[0, 2, 3, 1], c1), serial)",
        "Move(1×3×1×8, (f32, L1), (f32, L1), serial)",
    ],
    ids=["many rows", "few columns", "columns apart", "no transpose"],
)
def test_what_it_does_not_take(spec: str) -> None:
    target = Registry.of(x86=AVX2).target("x86_avx2")
    assert not target.kernels_by_name["Interleave"].accepts(parse_spec(spec, target).logical)
