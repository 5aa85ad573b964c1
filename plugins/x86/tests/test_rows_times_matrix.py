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
    kernel = api.compile(f"target {plugin.info.name}\nspec problem = {text}\n", db=None)
    assert f"select {KERNEL}" in [line.strip() for line in lines(schedule_of(kernel.impl))]


@PLUGINS
def test_long_rows_cost_little_more_than_adjacent_ones(plugin: TargetPlugin) -> None:
    target = Registry.of(x86=plugin).target(plugin.info.name)

    def cost(columns: int, state: str) -> int:
        text = product((1, 64, columns), "L1", f"GL, row_major{state}", "L1")
        return int(target.kernels_by_name[KERNEL].cost(parse_spec(text, target).logical, target))

    assert cost(1024, "") <= cost(1024, ", c1") < 1.4 * cost(1024, "")
    assert cost(64, ", c1") > 1.1 * cost(64, "")
    assert cost(64, ", c1, s4096") > 1.05 * cost(64, ", c1")
    assert cost(1024, ", c1, s4096") == cost(1024, ", c1")


def test_sums_that_leave_l1_cost_wide_vectors_more() -> None:
    target = Registry.of(x86=AVX512).target("x86_avx512")

    def cost(rows: int) -> float:
        text = product((rows, 64, 2048), "L1", "GL, row_major", "L1")
        return int(target.kernels_by_name[KERNEL].cost(parse_spec(text, target).logical, target)) / rows

    # Of the lines that stream by, four rows would share what two do.
    assert cost(4) > 1.5 * cost(2) / 2


def test_search_reads_a_long_matrix_of_rows_a_page_apart_in_few_pieces() -> None:
    """With 8 rows, sums of all columns leave L1: tiles of three wide vectors read as few pieces as there can be."""
    text = product((8, 2048, 2048), "GL", "GL", "GL", op="Matmul")
    kernel = api.compile(f"target x86_avx512\nspec problem = {text}\n", db=None)
    assert "fit 3 [32, 48]" in [line.strip() for line in lines(schedule_of(kernel.impl))]
    assert "_mm_prefetch" in kernel.source
