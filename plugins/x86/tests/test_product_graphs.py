"""Products with functions of each value after them, in register tiles whose columns fill no whole vectors."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry

from .scheduled import check, in_turns


def graph(equations: str, others: str, rows: int, k: int, columns: int) -> str:
    """Return a Compose that begins with the product p = Matmul(x, w) of rows that lie apart."""
    return (
        f"Compose([{equations}, p = Matmul(x, w)], [x: (1×{rows}×{k}, f32, L1, c1), w: (1×{k}×{columns}, f32, L2), "
        f"{others}o: (1×{rows}×{columns}, f32, L1, c1)], serial)"
    )


BIAS = "b: (1×1×{columns}, f32, L1), "
ALONE = graph("o = Relu(p)", "", 2, 9, 13)
BIASED = graph("o = Clip[low=0, high=1](a), a = Add(p, b)", BIAS.format(columns=9), 1, 5, 9)
RESIDUAL = graph(
    "o = Relu(r), r = Add(a, z), a = Mul(p, b)", "b: (1×1×1, f32, L1), z: (1×3×10, f32, L1, c1), ", 3, 20, 10
)


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_sums_are_those_of_the_product(plugin: TargetPlugin, compiler: Compiler) -> None:
    kernels = {ALONE: 2, BIASED: 3, RESIDUAL: 4}
    chosen = {spec: f"select RegisterTileGraph{inputs}" for spec, inputs in kernels.items()}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.parametrize(
    "spec",
    [
        graph("o = Relu(a), a = Add(p, b)", BIAS.format(columns=16), 1, 5, 16),
        graph("o = Relu(a), a = Add(p, b)", BIAS.format(columns=9), 9, 5, 9),
        graph("o = Gelu(a), a = Add(p, b)", BIAS.format(columns=9), 1, 5, 9),
        graph("o = Relu(a), a = Add(p, b)", "b: (1×2×1, f32, L1), ", 2, 5, 9),
    ],
    ids=["whole vectors", "too many rows", "a function of many registers", "a value for each row"],
)
def test_what_it_does_not_take(spec: str) -> None:
    target = Registry.of(x86=AVX2).target("x86_avx2")
    assert not target.kernels_by_name["RegisterTileGraph3"].accepts(parse_spec(spec, target).logical)
