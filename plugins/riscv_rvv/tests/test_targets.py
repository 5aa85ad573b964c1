"""Kernels and programs for RISC-V compute their declared results under qemu, in the instructions that they are for."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from morello import api
from morello.build.toolchain import find_compiler
from morello.codegen.interface import COMMON_FLAGS
from morello.ir.numbers import Num
from morello.plugins import installed
from morello.testing import KernelCheck, Trials, kernel_checks
from morello.testing.draws import Draws

PROGRAMS = 20
#: Products, transposes, and operations on every value.
GROUPS = ("riscv_rvv256 0", "riscv_rvv128 2", "riscv_rvv256 4")
NAMES = ("riscv_rvv128", "riscv_rvv256")
TOOLS = {"ziglang": find_spec("ziglang"), "qemu-riscv64": shutil.which("qemu-riscv64")}
MISSING = " and ".join(name for name, found in TOOLS.items() if not found)

needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"needs {MISSING}: pip install ziglang, apt install qemu-user")


def checks() -> list[KernelCheck]:
    """The C is that of other CPUs, where all kernels are tested: here, groups that are built together are."""
    every = [one for name in NAMES for one in kernel_checks(installed().target(name), 1)]
    return [one for one in every if one.group in GROUPS]


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [pytest.param(one, marks=pytest.mark.xdist_group(f"kernels of {one.group}"), id=str(one)) for one in checks()],
)
def test_kernels_compute_their_declared_results(check: KernelCheck) -> None:
    check()


def cost(kernel: str, text: str) -> Num:
    target = installed().target("riscv_rvv256")
    found = target.kernels_by_name[kernel].cost
    assert found
    return found(api.goal(text, target="riscv_rvv256").spec.logical, target)


def test_costs_include_conversions() -> None:
    """Rounding converts to integers and back, 8 vectors here; weights of 16 bits are converted one by one."""
    apart = cost("VectorRound", "Round(64, L1, L1, serial)") - cost("VectorNeg", "Neg(64, L1, L1, serial)")
    assert apart == 8 * (4 + 0.5) * 10
    words = "Dequantize[bits=8, group=4](1×3×8, (i8, L1), (f32, L1), (i8, L1), ({}, L1), serial)"
    f32, f16, bf16 = (cost("VectorDequantize", words.format(one)) for one in ("f32", "f16", "bf16"))
    assert (f16 - bf16, bf16 > f32) == (3 * 4 * (4 - 1) * 10, True)


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_random_programs_are_right(name: str) -> None:
    target = installed().target(name)
    trials = Trials([one.impl for one in Draws(target, seed=1).programs(PROGRAMS)], target)
    for number in range(PROGRAMS):
        trials.check(number)


@needs_tools
@pytest.mark.slow
@pytest.mark.parametrize(
    ("types", "instruction"), [(("f32", "f32", "f32"), "vfmacc.vf"), (("i8", "i8", "i32"), "vwmacc.vx")]
)
@pytest.mark.parametrize("name", NAMES)
def test_products_are_in_multiply_adds_of_vectors(
    name: str, types: tuple[str, ...], instruction: str, tmp_path: Path
) -> None:
    operands = ", ".join(f"({dtype}, GL)" for dtype in types)
    kernel = api.compile(api.goal(f"Matmul(1×32×32×32, {operands}, serial)", target=name))
    kernel.check()
    source, assembly = tmp_path / "product.c", tmp_path / "product.s"
    source.write_text(kernel.program.source)
    compiler = find_compiler(info=installed().target(name).info)
    command = [*compiler.command, *COMMON_FLAGS, *kernel.program.flags, "-S", "-o", str(assembly), str(source)]
    subprocess.run(command, check=True, timeout=100)
    assert len(re.findall(re.escape(instruction), assembly.read_text())) >= 8
