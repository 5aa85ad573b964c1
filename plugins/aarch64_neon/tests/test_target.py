"""The plugin makes its target alone, with profiles of two cores, and C for compilers with the extensions it needs."""

from __future__ import annotations

import pytest
from morello_aarch64_neon.plugin import INFO, PLUGIN

import morello
from morello.api.kernel import Kernel
from morello.build.library import CFile, build_file
from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError
from morello.plugins import Profile, Registry
from morello.plugins.profile_choice import by_cpu

#: Register tiles: the types of operands, strips of the right-hand side along k, extensions, and instructions.
PRODUCTS = {
    "RegisterTile": ("f32 f32 f32", 1, "", "fmla"),
    "RegisterTileFp16": ("f16 f16 f16", 1, "asimdhp", "fmla"),
    "RegisterTileDot": ("i8 i8 i32", 4, "asimddp", "sdot"),
    "RegisterTileUsdot": ("u8 i8 i32", 4, "i8mm", "sudot"),
    "RegisterTileBfdot": ("bf16 bf16 f32", 2, "bf16", "bfdot"),
    "MatrixTileMmla": ("u8 u8 u32", 8, "i8mm", "ummla"),
    "MatrixTileUsmmla": ("u8 i8 i32", 8, "i8mm", "usmmla"),
    "MatrixTileBfmmla": ("bf16 bf16 f32", 4, "bf16", "bfmmla"),
}
#: Extensions in the names of compilers.
FLAGS = {"": "", "asimdhp": "", "asimddp": "+dotprod", "i8mm": "+i8mm", "bf16": "+bf16"}


def test_the_target_needs_no_other_plugin() -> None:
    registry = Registry.of(aarch64_neon=PLUGIN)
    assert registry.names == ["aarch64_neon"]
    for name in ("cortex_a76", "neoverse_v1"):
        assert registry.target("aarch64_neon", name).kernels


@pytest.mark.parametrize(
    ("lineage", "profile"),
    [
        (["neoverse_v1", "neoverse_n1"], "neoverse_v1"),
        (["neoverse_n1"], "cortex_a76"),
        (["m1", "aarch64"], "cortex_a76"),
    ],
)
def test_profiles_are_for_cpus(lineage: list[str], profile: str) -> None:
    chosen = by_cpu([one for one in PLUGIN.profiles if isinstance(one, Profile)], lineage).profile
    assert chosen is not None
    assert chosen.name == profile


def product_of(name: str) -> Kernel:
    """Return 8×8 sums over 32 values, with factors as a kernel takes them."""
    types, strip, extension, _ = PRODUCTS[name]
    lhs, rhs, out = types.split()
    layout = f", layout[0, 1, 2, 1p{strip}]" if strip > 1 else ""
    text = f"Matmul(1×8×32×8, ({lhs}, L1), ({rhs}, L1{layout}), ({out}, L1), serial)"
    cpu = f"+{extension}" if extension else None
    return morello.compile(morello.goal(text, target="aarch64_neon", cpu=cpu).select(name))


@pytest.mark.parametrize("name", PRODUCTS)
def test_flags_name_the_extensions_of_a_program(name: str) -> None:
    program, extension = product_of(name).program, PRODUCTS[name][2]
    assert program.flags == (f"-mcpu=generic{FLAGS[extension]}",)
    assert program.cpu_tests is not None
    assert len(program.cpu_tests) == 1 + bool(extension)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        # Four values of f32 are a vector, four of bf16 are not.
        ("AvgPool(1×8×1×1×3×11, (f32, GL), (f32, GL), serial)", ["PoolWindow", "PoolValues"]),
        ("AvgPool(1×8×1×1×3×11, (bf16, GL), (bf16, GL), serial)", ["PoolValues"]),
        # All windows of a row but two lie in the image.
        ("MaxPool[padding=1](1×64×6×6×3×3, (f32, GL), (f32, GL), serial)", ["PoolColumns", "PoolValues"]),
        ("MaxPool[padding=1](1×64×5×5×3×3, (f32, GL), (f32, GL), serial)", ["PoolValues"]),
    ],
)
def test_a_pool_that_fills_no_vector_is_of_single_values(text: str, names: list[str]) -> None:
    goal = morello.goal(text, target=INFO.name)
    assert [one.name for one in goal.target.kernels if one.accepts(goal.impl.spec.logical)] == names


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_compile_to_one_instruction_a_vector_of_sums(name: str) -> None:
    """None repeats a value of the left-hand side in a vector of its own."""
    try:
        compiler = find_compiler(info=INFO)
    except ToolchainError as error:
        pytest.skip(error.message)
    program = product_of(name).program
    units = {f"{program.name}.c": CFile(program.source, program.flags)}
    lines = build_file("s", units, {f"{program.name}.h": program.header}, compiler).decode().splitlines()
    instructions = [line.split()[0] for line in lines if line.startswith("\t") and not line.startswith("\t.")]
    vectors = 8 if PRODUCTS[name][0] == "f16 f16 f16" else 16
    found = instructions.count(PRODUCTS[name][3])
    assert found
    assert found % vectors == 0
    assert not {"dup", "ld1r"} & {*instructions}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "cpu", "kernel"),
    [("i8 i8 i32", "+i8mm", "MatrixTileMmla"), ("bf16 bf16 f32", "+bf16", "MatrixTileBfmmla")],
)
def test_search_packs_for_products_of_matrices(types: str, cpu: str, kernel: str) -> None:
    lhs, rhs, out = (f"({one}, GL)" for one in types.split())
    goal = morello.goal(f"Matmul(1×64×64×64, {lhs}, {rhs}, {out}, serial)", target="aarch64_neon", cpu=cpu)
    assert kernel in goal.synthesize().schedule
