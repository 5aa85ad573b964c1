"""Register tiles compute products with tails, rows apart and operands in any level, on both widths of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import attrs
import pytest
from morello_vectors import register_tiles
from morello_vectors.tile_cost import cost_of_tiles
from morello_x86.calibration.peak import FEATURES
from morello_x86.calibration.tile_times import measure
from morello_x86.kernels.multiply_adds import F32_FMA, MULTIPLY_ADDS, NARROW, families
from morello_x86.kernels.tile_tables import shipped_cycles, tables
from morello_x86_avx2.plugin import PLUGIN as AVX2
from morello_x86_avx512.plugin import PLUGIN as AVX512

from morello import api
from morello.build.library import build
from morello.build.toolchain import Compiler, available_compilers
from morello.errors import PluginError
from morello.frontend.parser import parse_spec
from morello.host import missing_features
from morello.plugins import Microkernel, Profile, Target, TargetPlugin
from morello.plugins.registry import Registry
from morello.testing import KernelCheck, Trials, kernel_checks

from . import scheduled
from .scheduled import in_turns, require_features

PLUGINS = {8: AVX2, 16: AVX512}
TILE_CYCLES = {
    (adds.name, size): shipped_cycles(adds, size) for widest in MULTIPLY_ADDS for adds, size in families(widest)
}
#: Vector registers, by values of f32 in each.
REGISTERS = {8: 16, 16: 32}


def registry(values: int, *others: Microkernel) -> Registry:
    """Return the target of that vector width with the family, and `others`, as its kernels."""
    plugin: TargetPlugin = PLUGINS[values]
    family = register_tiles.kernels(families(4 * values), REGISTERS[values])
    return Registry.of(tiles=attrs.evolve(plugin, kernels=(*family, *others)))


def target(values: int) -> Target:
    return registry(values).target(full_name(values))


def full_name(values: int) -> str:
    """Return the name of the target with all of its optional CPU features."""
    name = PLUGINS[values].target
    return " + ".join((name, *registry(values).target(name).optional_features))


def product(op: str, shape: tuple[int, int, int], lhs: str, rhs: str, out: str) -> str:
    """Return the text of a Spec; operands are the text behind their data types."""
    m, k, n = shape
    return f"{op}(1×{m}×{k}×{n}, (f32, {lhs}), (f32, {rhs}), (f32, {out}), serial)"


def trials(values: int, specs: dict[str, str], *others: Microkernel, compiler: Compiler | None = None) -> Trials:
    return scheduled.trials(registry(values, *others), full_name(values), specs, compiler)


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [
        pytest.param(one, marks=pytest.mark.xdist_group(f"tiles of {one.group}"), id=str(one))
        for values in PLUGINS
        for one in kernel_checks(target(values), 4, sanitize=True)
    ],
)
def test_tiles_compute_what_they_declare(check: KernelCheck) -> None:
    (info,) = (one.info for one in PLUGINS.values() if one.info and str(check).startswith(one.info.name))
    require_features(info.cpu_features)
    check()


@pytest.mark.slow
@in_turns("values", PLUGINS)
def test_tails_and_strides_of_all_operands(values: int, compiler: Compiler) -> None:
    ua, wide = "GL, row_major, c1, ua", 2 * values
    anywhere = ("L1, row_major", "GL, col_major", ua, "GL, col_major, c0, ua")
    specs = {
        product(op, (m, k, n), lhs, rhs, out): f"select RegisterTile{op.removeprefix('Matmul')}"
        for op in ("Matmul", "MatmulAccum")
        for (m, k, n), lhs, rhs, out in [
            ((5, 9, wide - 1), anywhere[1], ua, ua),
            ((2, 7, 3 * values + 1), anywhere[2], "L1, row_major", ua),
            ((3, 1024, values - 1), anywhere[3], ua, "L1, row_major"),
            ((values + 4, 4, values), anywhere[2], ua, ua),
            ((1, 19, values), anywhere[0], ua, ua),
            ((1, 8, 1), anywhere[0], "GL, row_major, c0, ua", ua.replace("c1", "c0")),
            ((4, 1, 5), anywhere[0].replace("row_major", "col_major"), ua, ua),
        ]
    }
    found = trials(values, specs, compiler=compiler)
    for number in range(len(specs)):
        found.check(number)


#: Families with their operation, types, and columns of a narrower last vector, which AVX2 loads in units of 4 bytes.
SMALL_TYPES = [
    ("Bf16", "Matmul", ("bf16", "bf16", "f32"), 2),
    ("Bf16", "Matmul", ("f32", "bf16", "f32"), 6),
    ("Bf16", "Matmul", ("bf16", "f32", "f32"), 7),
    ("Vdpbf16ps", "Matmul", ("bf16", "bf16", "f32"), 3),
    ("Vpdpbusd", "Matmul", ("u8", "i8", "i32"), 3),
    ("Vpdpbusd", "Matmul", ("i8", "u8", "u32"), 5),
    ("Vpdpwssd", "Matmul", ("i16", "i16", "i32"), 3),
    ("Vpdpwssd", "Matmul", ("u8", "i16", "i32"), 3),
    ("Vpmaddwd", "Matmul", ("u8", "i8", "i32"), 2),
    ("Vpmaddwd", "Matmul", ("i8", "i8", "i32"), 4),
    ("Vpmaddwd", "Matmul", ("i16", "u8", "u32"), 6),
    ("Vpmaddubsw", "Matmul[saturating]", ("u8", "i8", "i16"), 6),
    ("Vpmulld", "Matmul", ("i32", "u32", "i32"), 3),
    ("Vpmullw", "Matmul", ("u16", "i16", "i16"), 2),
]


@pytest.mark.slow
@in_turns("values", PLUGINS)
def test_small_types_with_tails_and_rows_apart(values: int, compiler: Compiler) -> None:
    """Operands that steps of several neighbours take lie in strips of these, for the columns of a tile in turn."""
    specs: dict[str, str] = {}
    for name, op, types, tail in SMALL_TYPES:
        kernel = target(values).kernels_by_name.get(f"RegisterTile{name}")
        if kernel is None or missing_features(kernel.cpu_features):
            continue
        taken, sums = TILE_CYCLES[name, 4 * values].taken, TILE_CYCLES[name, 4 * values].values
        apart = "GL, row_major, c1, ua"
        rows = apart if taken == 1 else f"GL, layout[0, 1, 2, 1p{taken}], c2, ua"
        for accum, k, columns in [("", 9, sums + tail), ("Accum", 3, tail), ("", 1, sums)]:
            layouts = (apart, rows if k > 1 or taken == 1 else "L1, col_major", apart)
            operands = ", ".join(f"({dtype}, {layout})" for dtype, layout in zip(types, layouts, strict=True))
            spec = f"{op.replace('Matmul', f'Matmul{accum}')}(1×4×{k * taken}×{columns}, {operands}, serial)"
            specs[spec] = f"select RegisterTile{name}{accum}"
    found = trials(values, specs, compiler=compiler)
    assert len(specs) > 20
    for number in range(len(specs)):
        found.check(number)


@pytest.mark.slow
@pytest.mark.parametrize("values", PLUGINS)
def test_tiles_of_packed_and_of_cut_operands(values: int) -> None:
    rows = "GL, row_major"
    pack = "subschedule [0] { ; tile [1, 1, 1] ; move 0 to L1 ; move 1 to L1 ; select Assign ; }"
    packed = (
        f"move 1 to GL as layout[0, 2, 1, 2p{values}] ; {pack} ; tile [1, 3, 21, {values}] ; select RegisterTileAccum"
    )
    cut = f"move 0 to L1 ; tile [1, 3, 21, {values - 2}] ; split 7 ; move 1 to L1 ; select RegisterTileAccum"
    copies = [one for one in PLUGINS[values].kernels if one.name == "Assign"]
    spec = product("MatmulAccum", (12, 21, 4 * values), rows, rows, rows)
    found = trials(
        values,
        {
            spec: packed,
            spec.replace("row_major", "col_major", 1): packed,
            spec.replace(f"×{4 * values}", f"×{4 * (values - 2)}"): cut,
        },
        *copies,
    )
    for number in range(3):
        found.check(number)


@pytest.mark.parametrize("values", PLUGINS)
def test_which_tiles_fit(values: int) -> None:
    plain, registers = target(values), REGISTERS[values]
    kernel = plain.kernels_by_name["RegisterTile"]

    def fits(m: int, n: int, rhs: str = "GL, row_major", lhs: str = "GL, row_major") -> bool:
        text = product("Matmul", (m, 16, n), lhs, rhs, "GL, row_major")
        return bool(kernel.accepts(parse_spec(text, plain).logical))

    assert fits(registers - 2, values)
    assert not fits(registers - 1, values)
    assert fits((registers - 3) // 2, 2 * values)
    assert not fits((registers - 1) // 2, 2 * values)
    # With AVX2 the mask of a last vector that is narrower takes a register.
    assert fits(registers - 2, values - 1) == (values == 16)
    assert not fits(4, values, rhs="GL, col_major")
    assert not fits(4, values, rhs=f"GL, layout[0, 2, 1, 2p{values // 2}]")
    assert not fits(4, values, lhs="GL, layout[0, 2, 1, 2p4]")
    assert fits(4, values, lhs="GL, col_major")


def test_values_without_a_stride_are_an_error() -> None:
    tile = target(8).kernels_by_name["RegisterTileAccum"]
    anywhere = attrs.evolve(tile.operands[0], layouts=())
    careless = attrs.evolve(tile, name="Careless", operands=(anywhere, *tile.operands[1:]))
    spec = product("MatmulAccum", (6, 8, 8), "GL, layout[0, 1, 2, 1p3]", "GL, row_major", "GL, row_major")
    found = trials(8, {spec: "select Careless"}, careless)
    with pytest.raises(PluginError, match="dimension 1 of lhs has no stride: its values lie in strips"):
        found.target.emitter.emit(found.impls[0], found.target, "p")


def cost(values: int, text: str) -> int:
    """Return the tenths of a cycle of a tile that starts at 0."""
    plain = target(values)
    return int(plain.kernels_by_name["RegisterTile"].call_cost(parse_spec(text, plain).logical, plain))


@pytest.mark.parametrize(("values", "rows", "vectors"), [(8, 6, 2), (16, 6, 4), (16, 14, 2)])
def test_costs_are_tenths_of_measured_cycles(values: int, rows: int, vectors: int) -> None:
    near = ("L1, row_major",) * 3
    cycles = TILE_CYCLES["", 4 * values]
    (tile,) = [one for one in cycles.tiles if (one.rows, one.vectors) == (rows, vectors)]
    few, many = (cost(values, product("Matmul", (rows, k, values * vectors), *near)) for k in (100, 300))
    assert many - few == pytest.approx(20 * tile.step, rel=0.01)
    assert few == pytest.approx(10 * tile.step + tile.zero, rel=0.02)
    # These are the tiles that programs are made of: next to nothing is lost.
    assert tile.step <= 1.05 * cycles.add * rows * vectors


def test_operands_that_come_from_afar_overlap_with_the_sums_of_large_tiles() -> None:
    def price(rows: int, level: str, how: str = "") -> int:
        near, rhs = "L1, row_major", f"{level}, row_major{how}"
        return cost(16, product("Matmul", (rows, 128, 64), near, rhs, near))

    assert price(6, "L1") < price(6, "L3") < 1.2 * price(6, "L1")
    assert price(1, "L3") > 1.5 * price(1, "L1")
    assert price(6, "L3") < price(6, "L3", ", c1") < 1.3 * price(6, "L3")
    assert price(2, "L3", ", c1, s2048") > 1.1 * price(2, "L3", ", c1")
    assert price(2, "L3", ", c1, s4096") > 1.1 * price(2, "L3", ", c1, s2048")


def test_rows_that_evict_one_another_from_the_nearest_level_come_from_the_next() -> None:
    def price(steps: int, level: str, spacing: int = 0) -> int:
        far = f", c1, s{spacing}" if spacing else ", c1"
        near = "L1, row_major"
        return cost(16, product("Matmul", (6, steps, 32), near, f"{level}, row_major{far}", near))

    assert price(128, "L1", 4096) > 1.2 * price(128, "L1")
    assert price(128, "L1", 4096) == price(128, "L2", 4096)
    assert price(8, "L1", 4096) == price(8, "L1")
    # From L2, rows half a page apart take no longer than others.
    assert price(128, "L1", 2048) == price(128, "L1")


@pytest.mark.slow
def test_tiles_that_were_not_measured_cost_about_what_their_neighbours_do() -> None:
    for (name, size), cycles in TILE_CYCLES.items():
        plain = target(16 if name == NARROW.name else size // 4)
        kernel = plain.kernels_by_name[f"RegisterTile{name}"]
        lhs, rhs, out = (pattern.dtypes[0] for pattern in kernel.operands)
        # The smallest tiles of two instructions wait for one of them.
        for tile in cycles.tiles[2:]:
            without = attrs.evolve(cycles, tiles=tuple(one for one in cycles.tiles if one != tile))
            shape = f"1×{tile.rows}×{1000 * cycles.taken}×{tile.vectors * cycles.values}"
            near = "L1, row_major"
            op = "Matmul[saturating]" if name == "Vpmaddubsw" else "Matmul"
            text = f"{op}({shape}, ({lhs}, {near}), ({rhs}, {near}), ({out}, {near}), serial)"
            filled = int(cost_of_tiles(lambda machine, own=without: own)(parse_spec(text, plain).logical, plain))
            assert filled == pytest.approx(100 * tile.step + tile.zero, rel=0.5 if name else 0.25), (name, tile)


@pytest.mark.parametrize("values", PLUGINS)
def test_many_rows_that_evict_one_another_cost_more(values: int) -> None:
    def extra(rows: int, k: int) -> int:
        """Return what a left-hand side in memory adds to the cost, beyond eight rows and at other distances."""
        far, near = (
            cost(values, product("Matmul", (rows, k, values), lhs, *("L1, row_major",) * 2))
            for lhs in ("GL, row_major", "L1, row_major")
        )
        return (far - near) // rows

    assert extra(12, 1024) > 2 * extra(12, 1040)
    assert extra(8, 1024) <= extra(8, 1040)


@pytest.mark.parametrize("values", PLUGINS)
def test_few_sums_do_not_wait_for_one_another(values: int) -> None:
    few, many = (cost(values, product("Matmul", (3, k, values), *("L1, row_major",) * 3)) for k in (100, 300))
    assert many - few < 20 * 0.6 * 400


def test_few_columns_take_narrow_vectors_where_these_are_faster() -> None:
    """A core that computes wide vectors in two halves takes twice as long for those."""
    rows = tuple((m, n, 2 * step, 2 * start, 2 * zero) for m, n, step, start, zero in tables(64)["tiles_f32"])
    halves = Profile(name="halves", target="x86_avx512", tables={"tiles_f32": rows})
    own = registry(16).target("x86_avx512", halves)

    def cheapest(columns: int) -> str:
        text = product("MatmulAccum", (5, 64, columns), *("L1, row_major",) * 3)
        logical = parse_spec(text, own).logical
        kernels = [one for one in own.kernels if one.accepts(logical)]
        return min(kernels, key=lambda one: one.call_cost(logical, own)).name

    assert [cheapest(columns) for columns in (1, 7, 8)] == ["RegisterTileNarrowAccum"] * 3
    assert [cheapest(columns) for columns in (9, 16)] == ["RegisterTileAccum"] * 2


def test_no_tile_is_faster_than_its_multiply_adds() -> None:
    for values in PLUGINS:
        for rows, k, columns in [(1, 1, 1), (1, 8, values), (2, 30, values), (6, 3, 2 * values)]:
            least = TILE_CYCLES["", 4 * values].add * rows * k * -(-columns // values) / 10
            assert cost(values, product("Matmul", (rows, k, columns), *("L1, row_major",) * 3)) >= least + 50


@pytest.mark.slow
@pytest.mark.parametrize("values", PLUGINS)
def test_measured_tiles_are_about_as_fast_as_their_multiply_adds(values: int) -> None:
    require_features(FEATURES[4 * values])

    def build_tiles(source: str, flags: Sequence[str]) -> Path:
        return build({"tiles.c": source}, flags, available_compilers()[0])

    shapes = [(1, 1), (6, 2)]
    found = [measure(F32_FMA, 4 * values, build_tiles, repeats=5, tiles=shapes) for _ in range(3)]
    assert [(one.rows, one.vectors) for one in found[0].tiles] == shapes
    # Other processes may run meanwhile.
    add = median(one.add for one in found)
    slow, fast = (median(one.tiles[number].step for one in found) for number in range(2))
    assert 0.5 * 12 * add < fast < 5 * 12 * add
    assert 0.5 * add < slow < 20 * add


@pytest.mark.parametrize("values", PLUGINS)
def test_a_profile_says_what_tiles_cost(values: int) -> None:
    """Twice the cycles for a step are twice the cost, except for the cost of a call."""
    name = PLUGINS[values].target
    rows = tuple((m, n, 2 * step, start, zero) for m, n, step, start, zero in tables(4 * values)["tiles_f32"])
    slow = registry(values).target(name, Profile(name="slow", target=name, tables={"tiles_f32": rows}))
    text = product("MatmulAccum", (4, 256, 2 * values), "L1", "L1", "L1")
    base, costly = (
        int(one.kernels_by_name["RegisterTileAccum"].call_cost(parse_spec(text, one).logical, one))
        for one in (target(values), slow)
    )
    assert 1.8 < costly / base < 2.1


def test_avx2_keeps_sums_in_place_and_stores_tails_without_masks() -> None:
    """Left to gcc, sums are spilled in loops; a masked store takes Zen 4 as long as a dozen others."""
    text = product("Matmul", (6, 32, 15), "GL", "GL", "GL")
    schedule = "schedule tile {\nselect RegisterTile\n}\n"
    source = api.compile(f"target x86_avx2\nspec tile = {text}\n{schedule}", db=False).source
    assert source.count("vfmadd231ps") == 4 * 6 * 2
    assert "maskstore" not in source


@pytest.mark.parametrize(
    ("rows", "columns", "moved", "operands", "fetched"),
    [
        (4, 2048, "move 1 to L2\n", "GL, GL, GL", (4, 4)),
        (4, 2048, "", "GL, (f32, L2), (f32, L2)", (0, 0)),
        (1, 2048, "", "GL, GL, GL", (1, 0)),
        (4, 48, "", "GL, GL, GL", (4, 0)),
    ],
    ids=["a view of memory", "operands in L2", "more loads than multiply-adds", "a matrix that stays in L2"],
)
def test_tiles_fetch_lines_from_memory(
    rows: int, columns: int, moved: str, operands: str, fetched: tuple[int, int]
) -> None:
    """Lines of the output go to L1, those of the next tile's columns, for a round of four steps, to L2."""
    text = f"Matmul(1×{rows}×64×{columns}, {operands}, serial)"
    schedule = f"schedule tile {{\n{moved}tile [1, {rows}, 64, 16]\nselect RegisterTile\n}}\n"
    source = api.compile(f"target x86_avx2\nspec tile = {text}\n{schedule}", db=False).source
    assert (source.count("_MM_HINT_T0"), source.count("_MM_HINT_T1")) == fetched


def test_sums_in_memory_are_added_after_the_steps() -> None:
    """The tile does not wait for them as it begins."""
    schedule = "schedule tile {\ntile [1, 4, 64, 16]\nselect RegisterTileAccum\n}\n"

    def first(level: str) -> str:
        text = f"target x86_avx2\nspec tile = MatmulAccum(1×4×64×48, GL, GL, (f32, {level}), serial)\n{schedule}"
        source = api.compile(text, db=False).source
        return min(("_mm256_loadu_ps(out", "_mm256_fmadd_ps"), key=source.index)

    assert (first("GL"), first("L1")) == ("_mm256_fmadd_ps", "_mm256_loadu_ps(out")
