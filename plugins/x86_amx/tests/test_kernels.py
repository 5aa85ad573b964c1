"""Products in tiles: with AMX's instructions where the CPU has them, and with their emulation in C."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from morello_x86_amx.emulated import emulated
from morello_x86_amx.kernels import KERNELS
from morello_x86_amx.plugin import WITHOUT_TILES

from morello import api
from morello.api.kernel import Kernel
from morello.build.toolchain import available_compilers
from morello.host import missing_features
from morello.plugins import Registry
from morello.run.arrays import pack
from morello.testing import KernelCheck, kernel_checks
from tools.fuzz.tile_programs import batches, registries

REGISTRIES = registries()
#: Where neither runs, programs are drawn for the emulation, and tests are skipped.
REGISTRY = next(iter(REGISTRIES.values()), emulated())
#: The loop over k of a product of 32×32 values: eight tiles, and each tile of a factor is loaded once.
LOOP = """\
                        _tile_loadd(4, &lhs2[32 * k2], 512);
                        _tile_loadd(6, &rhs2[1024 * k2], 128);
                        _tile_dpbf16ps(0, 4, 6);
                        _tile_loadd(7, &rhs2[1024 * k2 + 32], 128);
                        _tile_dpbf16ps(1, 4, 7);
                        _tile_loadd(5, &lhs2[32 * k2 + 4096], 512);
                        _tile_dpbf16ps(2, 5, 6);
                        _tile_dpbf16ps(3, 5, 7);
                    }
"""
BOUNDARY = """
target x86_amx
spec product = Matmul(1×{rows}×64×32, (bf16, L1), (bf16, L1, layout[0, 2, 1, 2p16, 1p2]), (f32, L1))
schedule product {{
    tile [0, 32, 0, 0] parallel
    {rest}
}}
"""

needs_avx512 = pytest.mark.skipif(
    bool(missing_features(WITHOUT_TILES)), reason="the emulation needs AVX-512 with VNNI and BF16"
)


def kernel_of(text: str, registry: Registry = REGISTRY) -> Kernel:
    return api.compile(next(iter(api.parse(text, registry=registry).values())).synthesize(db=False))


def checks() -> list[Any]:
    names = {kernel.name for kernel in KERNELS}
    return [
        pytest.param(check, marks=pytest.mark.xdist_group(f"tiles {number}"), id=f"{check}-{compiler.name}-{by}")
        for by, registry in REGISTRIES.items()
        for number, compiler in enumerate(available_compilers()[:2])
        for check in kernel_checks(registry.target("x86_amx", "base"), compiler=compiler, sanitize=True)
        if check.kernel.name in names
    ]


@needs_avx512
@pytest.mark.slow
@pytest.mark.parametrize("check", checks())
def test_kernels_compute_their_declared_results(check: KernelCheck) -> None:
    check()


@pytest.mark.slow
@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=REGISTRIES.keys())
def test_random_programs(registry: Registry) -> None:
    for trials in batches(12, 1, registry):
        for number in range(len(trials.impls)):
            trials.check(number)


@pytest.mark.slow
@pytest.mark.skipif(len(REGISTRIES) < 2, reason="needs a CPU with AMX")
@pytest.mark.parametrize("scale", [1.0, 2.0**-63, 2.0**60])
def test_the_emulation_has_the_bits_of_the_instruction(scale: float) -> None:
    """The scales make products ordinary, subnormal, and nearly infinite."""
    operands = "(bf16, L1), (bf16, L1, layout[0, 1, 2, 1p2]), (f32, L1)"
    text = f"target x86_amx\nspec product = MatmulAccum(1×32×256×32, {operands}, serial)"
    parsed = [api.parse(text, registry=one)["product"] for one in REGISTRIES.values()]
    kernels = [api.compile(goal.select("AmxTileBf16Accum")) for goal in parsed]
    rng, shapes = np.random.default_rng(0), ((1, 32, 256), (1, 256, 32), (1, 32, 32))
    lhs, rhs, sums = (rng.normal(size=shape) * np.exp2(rng.integers(-8, 3, shape)) * scale for shape in shapes)
    results = []
    for kernel in kernels:
        tensors = kernel.spec.operands
        values = (lhs, rhs, sums * scale)
        arrays = [pack(one.astype(to.state.dtype.numpy), to) for one, to in zip(values, tensors, strict=True)]
        kernel(*arrays)
        results.append(arrays[2].view(np.uint32))
    np.testing.assert_array_equal(*results)


@needs_avx512
@pytest.mark.slow
def test_search_proves_the_loop_of_two_by_two_tiles() -> None:
    text = "target x86_amx\nspec product = Matmul(1×256×256×256, (bf16, GL), (bf16, GL), (f32, GL), serial)"
    kernel = kernel_of(text)
    assert kernel.goal.proof == "optimal"
    assert dict(zip((level.name for level in kernel.target.levels), kernel.peak, strict=True))["TMM"] == 8 << 10
    assert LOOP in kernel.source
    kernel.check()


@needs_avx512
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "rest", "functions"),
    [
        (64, "select AmxTileBf16", 1),  # threads alone
        (
            80,
            "subschedule [0] { select AmxTileBf16 }\n    subschedule [1] { select AmxTileBf16 }",
            2,
        ),  # and their caller
    ],
    ids=["threads", "threads and caller"],
)
def test_every_function_configures_the_tiles_that_it_uses(rows: int, rest: str, functions: int) -> None:
    kernel = kernel_of(BOUNDARY.format(rows=rows, rest=rest))
    kernel.check()
    assert kernel.source.count("    morello_tiles_begin();") == functions
    assert kernel.source.count("    morello_tiles_end();") == functions
