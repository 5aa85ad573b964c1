"""A few rows times a matrix, which streams by: tails of all dimensions, rows apart, and where search chooses it."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512
from morello_x86_testing.scheduled import check

from morello import api
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry
from morello.runtime import Compiler, available_compilers
from morello.schedule import lines, schedule_of

PLUGINS = pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.info.name)
KERNEL = "RowsTimesMatrixAccum"


def product(shape: tuple[int, int, int], lhs: str, rhs: str, out: str, op: str = "MatmulAccum") -> str:
    m, k, n = shape
    return f"{op}(1×{m}×{k}×{n}, (f32, {lhs}), (f32, {rhs}), (f32, {out}), serial)"


@pytest.mark.slow
@pytest.mark.parametrize("compiler", available_compilers(), ids=lambda compiler: compiler.name)
@PLUGINS
def test_tails_and_strides_of_all_operands(plugin: TargetPlugin, compiler: Compiler) -> None:
    apart, near = "GL, row_major, c1, ua", "L1, row_major, c1, ua"
    specs = [
        product((1, 4, 64), "L1", "GL", "L1"),
        product((1, 7, 197), "GL, ua", apart, "L1, ua"),
        product((2, 9, 129), "GL, col_major, c0, ua", "L2", near),
        product((3, 21, 100), apart, apart, near),
        product((8, 6, 79), "GL, col_major", "L1", near),
    ]
    check(Registry.of(x86=plugin), plugin.info.name, dict.fromkeys(specs, f"select {KERNEL}"), compiler)


@pytest.mark.parametrize(("shape", "fits"), [((8, 4, 64), True), ((9, 4, 64), False), ((1, 3, 64), False)])
@PLUGINS
def test_rows_are_few_and_the_matrix_is_not(plugin: TargetPlugin, shape: tuple[int, int, int], fits: bool) -> None:
    target = Registry.of(x86=plugin).target(plugin.info.name)
    spec = parse_spec(product(shape, "GL", "GL", "L1"), target).logical
    assert bool(target.kernels_by_name[KERNEL].accepts(spec)) == fits


@PLUGINS
def test_search_lets_a_large_matrix_stream_by(plugin: TargetPlugin) -> None:
    text = product((1, 512, 1024), "GL", "GL", "GL", op="Matmul")
    kernel = api.compile(f"target {plugin.info.name}\nspec problem = {text}\n", db=False)
    assert f"select {KERNEL}" in [line.strip() for line in lines(schedule_of(kernel.impl))]


def cost(plugin: TargetPlugin, shape: tuple[int, int, int], state: str = "") -> int:
    """Return the cost of a product whose matrix comes from beyond L2, by rows."""
    target = Registry.of(x86=plugin).target(plugin.info.name)
    spec = parse_spec(product(shape, "L1", f"GL, row_major{state}", "L1"), target).logical
    return int(target.kernels_by_name[KERNEL].cost(spec, target))


def test_long_rows_cost_as_much_as_adjacent_ones() -> None:
    short, long = (1, 64, 64), (1, 64, 1024)
    assert cost(AVX2, long, ", c1") == cost(AVX2, long)
    assert cost(AVX2, short, ", c1") > 1.1 * cost(AVX2, short)
    assert cost(AVX2, short, ", c1, s4096") > 1.5 * cost(AVX2, short, ", c1")
    assert cost(AVX2, long, ", c1, s4096") == cost(AVX2, long)


def test_wide_vectors_wait_for_each_row_to_begin() -> None:
    """They leave too little to compute meanwhile, even for rows as long as a page."""
    short, long = (1, 64, 64), (1, 64, 1024)
    assert 1.1 * cost(AVX512, long) < cost(AVX512, long, ", c1") < 1.4 * cost(AVX512, long)
    assert cost(AVX512, short, ", c1") > 1.5 * cost(AVX512, short)
    assert cost(AVX512, short, ", c1, s4096") > 1.05 * cost(AVX512, short, ", c1")
    assert cost(AVX512, long, ", c1, s4096") == cost(AVX512, long, ", c1")


def test_sums_that_leave_l1_cost_wide_vectors_more() -> None:
    """The matrix is read once for four rows as for two: without more for sums, both would cost about the same."""
    assert cost(AVX512, (4, 64, 2048)) > 1.5 * cost(AVX512, (2, 64, 2048))
    assert cost(AVX512, (4, 64, 1024)) < 1.2 * cost(AVX512, (2, 64, 1024))


def test_search_reads_a_long_matrix_of_rows_a_page_apart_in_few_pieces() -> None:
    """With 8 rows, sums of all columns leave L1: tiles of three wide vectors read as few pieces as there can be."""
    text = product((8, 2048, 2048), "GL", "GL", "GL", op="Matmul")
    kernel = api.compile(f"target x86_avx512\nspec problem = {text}\n", db=False)
    assert "fit 3 [32, 48]" in [line.strip() for line in lines(schedule_of(kernel.impl))]
    assert "_mm_prefetch" in kernel.source
