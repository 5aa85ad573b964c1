"""The plugin makes its target alone, with profiles of two cores, and C for compilers with the extensions it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from morello_aarch64_neon.plugin import INFO, PLUGIN

import morello
from morello.api.kernel import Kernel
from morello.build.library import CFile, build_file
from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError
from morello.plugins import Profile, Registry
from morello.plugins.profile_choice import by_cpu

GOLDEN = Path(__file__).parents[3] / "tests" / "golden"
#: A product of four types, and the extension and the instruction that it needs, in the names of compilers.
PRODUCTS = {
    ("f32", "f32", "f32"): ("", "fmla"),
    ("i8", "i8", "i32"): ("dotprod", "sdot"),
    ("u8", "u8", "u32"): ("dotprod", "udot"),
    ("u8", "i8", "i32"): ("i8mm", "sudot"),
    ("i8", "u8", "i32"): ("i8mm", "usdot"),
    ("bf16", "bf16", "f32"): ("bf16", "bfdot"),
}


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


def product_of(types: tuple[str, str, str]) -> Kernel:
    """Return 8×8 sums over 32 values, with factors as register tiles take them."""
    extension = PRODUCTS[types][0]
    lhs, rhs, out = types
    taken = {"f32": 1, "bf16": 2}.get(lhs, 4)
    layout = f", layout[0, 1, 2, 1p{taken}]" if taken > 1 else ""
    name = {"": "", "dotprod": "Dot", "i8mm": "Usdot", "bf16": "Bfdot"}[extension]
    text = f"Matmul(1×8×32×8, ({lhs}, L1), ({rhs}, L1{layout}), ({out}, L1), serial)"
    cpu = f"+{'asimddp' if extension == 'dotprod' else extension}" if extension else None
    return morello.compile(morello.goal(text, target="aarch64_neon", cpu=cpu).select(f"RegisterTile{name}"))


@pytest.mark.parametrize("types", PRODUCTS)
def test_flags_name_the_extensions_of_a_program(types: tuple[str, str, str]) -> None:
    program = product_of(types).program
    extension = PRODUCTS[types][0]
    assert program.flags == (f"-mcpu=generic+{extension}" if extension else "-mcpu=generic",)
    assert program.cpu_tests is not None
    assert len(program.cpu_tests) == 1 + bool(extension)


@pytest.mark.slow
@pytest.mark.parametrize("types", PRODUCTS)
def test_products_compile_to_one_instruction_a_vector_of_sums(types: tuple[str, str, str]) -> None:
    """By elements of vectors of the left-hand side: eight rows of two vectors in each of four steps of the loop."""
    try:
        compiler = find_compiler(info=INFO)
    except ToolchainError as error:
        pytest.skip(error.message)
    program = product_of(types).program
    units = {f"{program.name}.c": CFile(program.source, program.flags)}
    lines = build_file("s", units, {f"{program.name}.h": program.header}, compiler).decode().splitlines()
    instructions = [line.split()[0] for line in lines if line.startswith("\t") and not line.startswith("\t.")]
    assert instructions.count(PRODUCTS[types][1]) in (64, 128)
    assert not {"dup", "ld1r"} & {*instructions}
