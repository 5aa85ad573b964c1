"""A few rows times a matrix, which streams by: tails of all dimensions, rows apart, and where search chooses it."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.build.toolchain import Compiler
from morello.frontend.parser import parse_spec
from morello.plugins import TargetPlugin
from morello.plugins.registry import Registry
from morello.schedule import lines, schedule_of

from .scheduled import check, in_turns

PLUGINS = pytest.mark.parametrize("plugin", [AVX2, AVX512], ids=lambda plugin: plugin.target)
KERNEL, OF_BF16 = "RowsTimesMatrixAccum", "RowsTimesMatrixBf16Accum"


def product(
    shape: tuple[int, int, int], lhs: str, rhs: str, out: str, op: str = "MatmulAccum", types: str = "f32 f32"
) -> str:
    (m, k, n), (left, right) = shape, types.split()
    return f"{op}(1×{m}×{k}×{n}, ({left}, {lhs}), ({right}, {rhs}), (f32, {out}), serial)"


@pytest.mark.slow
@in_turns("plugin", [AVX2, AVX512])
def test_tails_and_strides_of_all_operands(plugin: TargetPlugin, compiler: Compiler) -> None:
    apart, near = "GL, row_major, c1, ua", "L1, row_major, c1, ua"
    specs = [
        product((1, 4, 64), "L1", "GL", "L1"),
        product((1, 5, 197), "GL, ua", apart, "L1, ua"),
        product((2, 9, 129), "GL, col_major, c0, ua", "L2", near),
        product((3, 21, 100), apart, apart, near),
        product((6, 6, 79), "GL, col_major", "L1", near),
    ]
    narrow = [
        product((1, 5, 198), "GL, ua", apart, "L1, ua", types="bf16 bf16"),
        product((3, 21, 100), apart, apart, near, types="f32 bf16"),
        product((6, 6, 78), "GL, col_major", "L1", near, types="bf16 f32"),
    ]
    chosen = dict.fromkeys(specs, f"select {KERNEL}") | dict.fromkeys(narrow, f"select {OF_BF16}")
    check(Registry.of(x86=plugin), plugin.target, chosen, compiler)


@pytest.mark.parametrize(("shape", "fits"), [((6, 4, 64), True), ((9, 4, 64), False), ((1, 3, 64), False)])
@PLUGINS
def test_rows_are_few_and_the_matrix_is_not(plugin: TargetPlugin, shape: tuple[int, int, int], fits: bool) -> None:
    target = Registry.of(x86=plugin).target(plugin.target)
    spec = parse_spec(product(shape, "GL", "GL", "L1"), target).logical
    assert bool(target.kernels_by_name[KERNEL].accepts(spec)) == fits


@pytest.mark.slow
@pytest.mark.parametrize(("types", "chosen"), [("f32 f32", KERNEL), ("bf16 bf16", OF_BF16)])
@PLUGINS
def test_search_lets_a_large_matrix_stream_by(plugin: TargetPlugin, types: str, chosen: str) -> None:
    text = product((1, 512, 1024), "GL", "GL", "GL", op="Matmul", types=types)
    kernel = api.compile(f"target {plugin.target}\nspec problem = {text}\n", db=False)
    assert f"select {chosen}" in [line.strip() for line in lines(schedule_of(kernel.impl))]


@pytest.mark.parametrize(("rows", "taken"), [(1, 8), (3, 4)])
@PLUGINS
def test_eight_rows_of_bf16_stream_by_at_a_time(plugin: TargetPlugin, rows: int, taken: int) -> None:
    """Four rows of it take a third longer from memory; for more rows of the left-hand side, registers hold no more."""
    text = product((rows, 32, 256), "L1", "GL", "L1", types="bf16 bf16")
    schedule = f"schedule problem {{\nselect {OF_BF16}\n}}\n"
    kernel = api.compile(f"target {plugin.target}\nspec problem = {text}\n{schedule}", db=False)
    assert f"k < 32; k += {taken})" in kernel.source


@pytest.mark.parametrize("kernel", ["RegisterTileAccum", "RegisterTileBf16Accum", KERNEL, OF_BF16])
@PLUGINS
def test_rows_far_apart_cost_no_less_a_few_at_a_time(plugin: TargetPlugin, kernel: str) -> None:
    """A piece of one row is contiguous, just like a piece that the next one follows."""
    target = Registry.of(x86=plugin).target(plugin.target)

    def cost(steps: int) -> int:
        types = "bf16 bf16" if "Bf16" in kernel else "f32 f32"
        matrix = "GL, row_major, c1, s4096" if steps > 1 else "GL"
        spec = parse_spec(product((1, steps, 64), "L1", matrix, "L1", types=types), target).logical
        return int(target.kernels_by_name[kernel].call_cost(spec, target))

    few = 4 if "Rows" in kernel else 1
    assert 64 // few * cost(few) >= cost(64)


def cost(plugin: TargetPlugin, shape: tuple[int, int, int], state: str = "") -> int:
    """Return the cost of a product whose matrix comes from beyond L2, by rows."""
    target = Registry.of(x86=plugin).target(plugin.target)
    spec = parse_spec(product(shape, "L1", f"L3, row_major{state}", "L1"), target).logical
    return int(target.kernels_by_name[KERNEL].call_cost(spec, target))


def test_long_rows_cost_as_much_as_adjacent_ones() -> None:
    short, long = (1, 64, 64), (1, 64, 1024)
    assert cost(AVX2, long, ", c1") == cost(AVX2, long)
    assert cost(AVX2, short, ", c1") > 1.1 * cost(AVX2, short)
    assert cost(AVX2, short, ", c1, s4096") > 1.5 * cost(AVX2, short, ", c1")
    assert cost(AVX2, long, ", c1, s4096") == cost(AVX2, long)


def test_wide_vectors_wait_for_each_row_to_begin() -> None:
    """They leave too little to compute meanwhile, even for rows as long as a page."""
    short, long = (1, 64, 64), (1, 64, 1024)
    assert 1.1 * cost(AVX512, long) < cost(AVX512, long, ", c1") < 1.5 * cost(AVX512, long)
    assert cost(AVX512, short, ", c1") > 1.5 * cost(AVX512, short)
    assert cost(AVX512, short, ", c1, s4096") > 1.05 * cost(AVX512, short, ", c1")
    assert cost(AVX512, long, ", c1, s4096") == cost(AVX512, long, ", c1")


def test_sums_that_leave_l1_cost_wide_vectors_more() -> None:
    """The matrix is read once for four rows as for two: without more for sums, both would cost about the same."""
    assert cost(AVX512, (4, 64, 2048)) > 1.5 * cost(AVX512, (2, 64, 2048))
    assert cost(AVX512, (4, 64, 1024)) < 1.2 * cost(AVX512, (2, 64, 1024))


@pytest.mark.slow
def test_search_reads_a_long_matrix_of_rows_a_page_apart_in_few_pieces() -> None:
    """With 8 rows, sums of all columns leave L1: tiles of three wide vectors read as few pieces as there can be."""
    text = product((8, 2048, 2048), "GL", "GL", "GL", op="Matmul")
    kernel = api.compile(f"target x86_avx512\nspec problem = {text}\n", db=False)
    assert "fit 3 [48]" in [line.strip() for line in lines(schedule_of(kernel.impl))]
    assert "_mm_prefetch" in kernel.source
