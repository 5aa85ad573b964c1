"""Whole rows of softmax and of norms: wherever operands lie, the graphs that are norms, and their accuracy."""

from __future__ import annotations

import attrs
import numpy as np
import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry
from morello.rewrites.bufferize import Bufferize
from morello.schedule import lines, schedule_of

from .scheduled import check, in_turns, require_features

PLUGINS = pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.target)
X, ONE_ROW, F32 = "x: (1×1×64, f32, GL)", "o: (1×1×64, f32, GL)", "(1×1×64, f32, L1)"


def graph(equations: str, operands: str) -> str:
    return f"Compose([{equations}], [{X}, {operands}, {ONE_ROW}], serial)"


#: x plus a row, centred, with and without a product and a sum at its end.
CENTRED = graph("o = Sub[over=[2]](s, m), m = Mean(s), s = Add(x, r)", f"r: {F32}")
SCALED = graph("o = Mul(c, g), c = Sub[over=[2]](x, m), m = Scale[by=0.25](t), t = Sum(x)", f"g: {F32}")
GIVEN = graph(
    "o = Mul[over=[2]](d, q), q = Rsqrt(e), e = Shift[by=0.5](v), v = Mean(p), p = Mul(d, d), d = Sub[over=[2]](x, m)",
    "m: (1×1×1, f32, L1)",
)


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_rows_in_memory_and_caches(plugin: TargetPlugin, compiler: Compiler) -> None:
    softmax = [
        "Softmax(1×197, (f32, GL), (f32, L1), serial)",
        "Softmax(1×1024, (bf16, L2), (f32, GL), serial)",
        "Softmax[dim=0](100×1, (f32, GL, ua), (f32, GL, ua), serial)",
    ]
    norms = [
        "RMSNorm(1×1×64, (f32, GL), (f32, L1), (f32, GL), serial)",
        "RMSNorm(1×1×208, (bf16, GL), (f32, GL), (bf16, L1), serial)",
        f"RMSNorm(1×1×{8 if plugin is AVX2 else 16}, (bf16, L3), (bf16, L2), (bf16, L1, ua), serial)",
    ]
    layer_norms = [
        "LayerNorm[eps=0.5](1×1×80, (f32, GL, ua), (f32, L1, ua), (bf16, GL), (f32, L2), serial)",
        "LayerNorm(1×1×4096, (f32, L2), (f32, GL), (f32, GL), (f32, GL), serial)",
        "InstanceNorm(1×1×64, (f32, GL), (f32, L1), (f32, GL), (f32, GL), serial)",
    ]
    chosen = dict.fromkeys(softmax, "select VectorSoftmax")
    chosen |= dict.fromkeys([*norms, CENTRED, SCALED, GIVEN], "select VectorNorm2")
    chosen |= dict.fromkeys(layer_norms, "select VectorNorm3")
    chosen |= {"L2Normalize[dim=0](64×1, (f32, GL), (f32, L1), serial)": "select VectorNorm1"}
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("RMSNorm(1×1×64, (f32, GL), (f32, GL), (f32, GL))", True),
        ("RMSNorm(1×2×64, (f32, GL), (f32, GL), (f32, GL))", False),
        ("RMSNorm(1×1×100, (f32, GL), (f32, GL), (f32, GL))", False),
        (graph("o = Exp(d), d = Sub[over=[2]](x, m), m = Mean(r)", f"r: {F32}"), False),
        (graph("o = Add(d, r), d = Scale[by=2](x)", f"r: {F32}"), False),
    ],
    ids=["a row", "two rows", "a part of a vector", "an exponential", "no sum"],
)
@PLUGINS
def test_graphs_that_are_norms_of_a_row(plugin: TargetPlugin, text: str, fits: bool) -> None:
    target = Registry.of(x86=plugin).target(plugin.target)
    assert bool(target.kernels_by_name["VectorNorm2"].accepts(parse_spec(text, target).logical)) == fits


@pytest.mark.slow
def test_short_rows_of_softmax_lie_in_lanes() -> None:
    """A row of one vector waits for its maximum and its sum: rows in lanes take two thirds of the time."""
    found = api.compile("target x86_avx512\nspec problem = Softmax(1024×16, (f32, GL), (f32, GL))\n", db=False)
    assert "VectorSoftmax" not in [line.strip().removeprefix("select ") for line in lines(schedule_of(found.impl))]


@PLUGINS
def test_computing_overlaps_with_memory(plugin: TargetPlugin) -> None:
    """Rows that no cache keeps are read again in each pass."""
    target = Registry.of(x86=plugin).target(plugin.target)

    def cost(size: int, level: str) -> int:
        spec = parse_spec(f"Softmax(1×{size}, (f32, {level}), (f32, {level}))", target).logical
        return int(target.kernels_by_name["VectorSoftmax"].call_cost(spec, target))

    traffic = 2 * (256 * 80 + 150)
    assert max(cost(4096, "L1"), traffic) <= cost(4096, "GL") < cost(4096, "L1") + traffic
    assert cost(1 << 18, "GL") >= 2 * 64 * 256 * 2 * 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "kernel"),
    [
        ("Softmax(64×512, (f32, GL), (f32, GL))", "VectorSoftmax"),
        ("RMSNorm(1×64×512, (f32, GL), (f32, GL), (f32, GL))", "VectorNorm2"),
    ],
)
@PLUGINS
def test_search_chooses_whole_rows(plugin: TargetPlugin, spec: str, kernel: str) -> None:
    found = api.compile(f"target {plugin.target}\nspec problem = {spec}\n", db=False)
    assert f"select {kernel}" in [line.strip() for line in lines(schedule_of(found.impl))]
    assert "_mm_prefetch" in found.source


@PLUGINS
def test_large_graphs_are_cut_around_norms(plugin: TargetPlugin) -> None:
    """Pieces that kernels implement stay whole where search cuts graphs into single operations."""
    target = attrs.evolve(Registry.of(x86=plugin).target(plugin.target), cuts_all=True)
    graph = parse_spec(
        "Compose([y = Matmul(n, w), n = LayerNorm(h, g, b), h = Matmul(x, w)], [x: (1×4×8, GL), w: (1×8×8, GL), "
        "g: (1×1×8, GL), b: (1×1×8, GL), y: (1×4×8, GL)])",
        target,
    ).logical
    assert {step.at for step in Bufferize.steps(graph, target)} == {(), (1, 10)}


def whole_row(plugin: TargetPlugin, spec: str, kernel: str) -> Kernel:
    """Return the program of a Spec that calls one kernel. Skip the test on a machine that cannot run it."""
    require_features(Registry.of(x86=plugin).target(plugin.target).info.cpu_features)
    text = f"target {plugin.target}\nspec row = {spec}\nschedule row {{\nselect {kernel}\n}}\n"
    return api.compile(text, db=False)


@pytest.mark.slow
@PLUGINS
def test_variances_survive_a_large_mean(plugin: TargetPlugin) -> None:
    """A difference of mean squares would lose all digits: the squares are 10⁸ times as large as the variance."""
    kernel = whole_row(plugin, "LayerNorm(1×1×768, (f32, GL), (f32, GL), (f32, GL), (f32, GL))", "VectorNorm3")
    rng = np.random.default_rng(0)
    x = (1e4 + rng.standard_normal((1, 1, 768))).astype(np.float32)
    gamma, beta = np.ones((2, 1, 1, 768), np.float32)
    exact = x.astype(np.float64)
    wanted = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5) + 1
    # Each value of x is rounded to 2⁻¹⁰, but these are exact here; only the mean is off by a little.
    assert np.abs(kernel(x, gamma, beta) - wanted).max() < 2e-3


@pytest.mark.slow
@PLUGINS
def test_powers_of_a_whole_row_keep_their_relative_accuracy(plugin: TargetPlugin) -> None:
    """One ulp for a power, half of one each for the sum, its reciprocal and the product; more below the normal ones."""
    kernel = whole_row(plugin, "Softmax(1×4096, (f32, GL), (f32, GL))", "VectorSoftmax")
    x = np.linspace(-110, 0, 4096, dtype=np.float32)[None]
    powers = np.exp(x.astype(np.float64))
    wanted = powers / powers.sum()
    spacing = np.spacing(wanted.astype(np.float32))
    assert (np.abs(kernel(x) - wanted) / spacing).max() < 4
    assert np.array_equal(kernel(np.full_like(x, -np.inf))[0, :8], np.full(8, np.nan, np.float32), equal_nan=True)
