"""Emitted functions in a C program, under the sanitizers."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pytest

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.errors import ArgumentError, ToolchainError, VerificationError
from morello.ir.dtypes import BF16, F32, I8, I32, U8
from morello.ir.layout import Dynamic, Layout, OddEven, row_major
from morello.run.arrays import empty
from morello.testing.sanitize import SANITIZERS, default_sanitizers, run_sanitized

pytestmark = pytest.mark.slow

Make = Callable[..., Kernel]
MATMUL = (2, 3, 4, 8)
OVERFLOW = "heap-buffer-overflow"
OUT = "out[out_at(b, m, n)] = sum;"


def arrays(kernel: Kernel) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    made = [empty(tensor) for tensor in kernel.spec.operands]
    for array in made:
        array[...] = rng.integers(0, 100, array.shape).astype(array.dtype)
    return made


@pytest.mark.parametrize(
    ("op", "shape", "kinds"),
    [
        ("MatmulAccum", MATMUL, F32),
        ("MatmulAccum", MATMUL, [I8, U8, I32]),
        ("Matmul", MATMUL, [(BF16, row_major(3), 0), F32, (BF16, row_major(3), 2)]),
        ("Move", (5, 8), [(F32, Layout((Dynamic(0), Dynamic(1), OddEven(1, 4)))), BF16]),
        ("FillZero", (3, 3, 3), (I8, row_major(3), 1)),
    ],
)
def test_sanitized_results_equal_the_kernels(make: Make, compiler: Compiler, op: str, shape, kinds) -> None:
    kernel = make(op, shape, kinds, compiler=compiler)
    given = arrays(kernel)
    got = run_sanitized(kernel.program, kernel.spec, given, compiler)
    kernel(*given)
    assert got[0].tobytes() == given[-1].tobytes()


@pytest.mark.parametrize(
    ("replace", "report"),
    [
        ({OUT: OUT + " out[48] = 1;"}, OVERFLOW),
        ({"sum = 0": "sum = lhs[24]"}, OVERFLOW),
        ({"sum = 0": "sum = rhs[-1]"}, OVERFLOW),
        ({"sum = 0": "sum = 1 << (32 + (int)n)"}, "shift exponent|exponent .* too large"),
    ],
)
def test_findings_of_sanitizers_are_reported(
    make: Make, compiler: Compiler, replace: dict[str, str], report: str
) -> None:
    kernel = make("Matmul", MATMUL, replace=replace)
    if report == OVERFLOW and default_sanitizers(compiler) != SANITIZERS:
        pytest.skip(f"{compiler.name} has no address sanitizer")
    with pytest.raises(VerificationError, match=report):
        run_sanitized(kernel.program, kernel.spec, arrays(kernel), compiler)


def test_the_workspace_has_its_declared_size(make: Make, compiler: Compiler) -> None:
    kernel = make("FillZero", (2,), I32)
    prototype = "void sample(int32_t *restrict out, int32_t *restrict workspace)"
    for size, fine in ((8, True), (4, False)):
        program = attrs.evolve(
            kernel.program,
            source=f"#include <stdint.h>\n{prototype} {{ workspace[1] = 7; out[0] = out[1] = workspace[1]; }}\n",
            header=f"#include <stdint.h>\n{prototype};\n",
            prototype=prototype,
            workspace=size,
        )
        if fine or default_sanitizers(compiler) != SANITIZERS:
            assert run_sanitized(program, kernel.spec, arrays(kernel), compiler)[0].tolist() == [7, 7]
        else:
            with pytest.raises(VerificationError, match=OVERFLOW):
                run_sanitized(program, kernel.spec, arrays(kernel), compiler)


@pytest.mark.slow
def test_one_that_does_not_end(make: Make, compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = make("FillZero", (2,), replace={"i0++": "i0 += 0"})
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "2")
    with pytest.raises(VerificationError, match="does not end"):
        run_sanitized(kernel.program, kernel.spec, arrays(kernel), compiler)


def test_c_that_does_not_compile(make: Make, compiler: Compiler) -> None:
    kernel = make("FillZero", (2,), replace={"= 0;": "= zero;"})
    with pytest.raises(ToolchainError, match="zero"):
        run_sanitized(kernel.program, kernel.spec, arrays(kernel), compiler)


def test_arrays_that_do_not_fit(make: Make, compiler: Compiler) -> None:
    kernel = make("Move", (2,))
    with pytest.raises(ArgumentError, match="takes 2 arrays, got 1"):
        run_sanitized(kernel.program, kernel.spec, arrays(kernel)[:1], compiler)
    with pytest.raises(ArgumentError, match=r"src: expected float32 of shape \(2,\), got float64"):
        run_sanitized(kernel.program, kernel.spec, [np.zeros(2)] * 2, compiler)
