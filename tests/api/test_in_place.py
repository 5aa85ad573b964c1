"""Outputs that are stored over an input: Specs, programs and calls."""

from __future__ import annotations

from functools import cache

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import morello
from morello.errors import ArgumentError, EmitError
from morello.frontend.diagnostics import SourceError
from morello.ir.impl import Node
from morello.ir.in_place import hazard

#: Specs, and schedules that leave nothing or little to search.
EXP = "Exp(3×37, (f32, L1, overwritten), L1, serial)"
SUB = "Sub(3×16, L1, (f32, L1, overwritten), L1, serial)"
SOFTMAX = "Softmax(3×40, (f32, L1, c1, overwritten), (f32, L1, c1), serial)(x, y)"
BLOCK = """Compose([y = Add(h, x), h = Matmul(x, w)],
    [w: (1×8×8, f32, L1), x: (1×2×8, f32, L1, overwritten), y: (1×2×8, f32, L1)], serial)"""
SCHEDULES = {
    EXP: "select VectorExp",
    SUB: "select VectorSub",
    SOFTMAX: "tile [1, 0]; select VectorSoftmax",
    BLOCK: "bufferize to L1; subschedule [0] { synthesize }; subschedule [1] { select VectorAdd }",
}
every = pytest.mark.parametrize("text", SCHEDULES, ids=["exp", "sub", "softmax", "block"])


def goal(text: str) -> morello.Goal:
    return morello.goal(text, target="x86_avx2", profile="base")


@cache
def scheduled(text: str) -> morello.Goal:
    return goal(text).apply(SCHEDULES[text])


@cache
def kernel(text: str) -> morello.Kernel:
    return morello.compile(scheduled(text), db=False, progress=False)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@every
def test_the_text_of_a_spec_keeps_the_overwritten_input(text: str) -> None:
    (again,) = morello.parse(goal(text).spec_file).values()
    assert again.signature == goal(text).signature
    assert "overwritten" in again.spec_lines
    assert "overwritten" in repr(again)
    # Programs are those of the Spec with an output in memory of its own.
    assert again.spec == goal(text.replace(", overwritten", "")).spec


@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3))
def test_results_are_those_of_numpy(seed: int, gap: int) -> None:
    x, w = np.random.default_rng(seed).uniform(-3, 3, (2, 48, 48)).astype(np.float32)
    cases = [
        (EXP, [x[:3, :37].copy()], 0, np.exp),
        (SUB, [w[:3, :16].copy(), x[:3, :16].copy()], 1, np.subtract),
        (SOFTMAX, [x[:3, gap : 40 + gap]], 0, softmax),
        (BLOCK, [w[None, :8, :8].copy(), x[None, :2, :8].copy()], 1, lambda w, x: x + x @ w),
    ]
    for text, arrays, over, function in cases:
        given, expected = arrays[over], function(*arrays)
        others = [array.copy() for array in arrays]
        assert kernel(text)(*arrays) is None
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-4)
        for place, (array, before) in enumerate(zip(arrays, others, strict=True)):
            assert place == over or np.array_equal(array, before)


@pytest.mark.slow
@pytest.mark.parametrize("text", [SOFTMAX, BLOCK], ids=["softmax", "block"])
def test_programs_are_right(text: str) -> None:
    kernel(text).check()


def test_calls_take_the_array_as_out_too() -> None:
    call, x = kernel(EXP), np.zeros((3, 37), np.float32)
    assert call(x, out=x) is x
    assert call(out=x) is x
    np.testing.assert_allclose(x, np.exp(1), rtol=1e-6)
    with pytest.raises(ArgumentError, match="operand src is given twice"):
        call(x, out=x.copy())
    with pytest.raises(ArgumentError, match="takes 1 array"):
        call(x, x)
    with pytest.raises(ArgumentError, match=r"operand 1 \(rhs\).*overlaps operand 0 \(lhs\)"):
        kernel(SUB)(x.reshape(-1)[:48].reshape(3, 16), x.reshape(-1)[40:88].reshape(3, 16))


def test_other_kernels_take_no_output_that_overlaps_an_input() -> None:
    plain = goal(EXP.replace(", overwritten", "")).apply(SCHEDULES[EXP])
    call, x = morello.compile(plain), np.zeros((4, 37), np.float32)
    for out in (x[:3], x[1:]):
        with pytest.raises(ArgumentError, match=r"operand 1 \(out\): .* overlaps operand 0 \(src\)"):
            call(x[:3], out=out)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Matmul(1×8×8×8, (f32, GL, overwritten), GL, GL)", "out of Matmul cannot be stored over lhs"),
        ("Add[over=[0]](4×8, GL, (f32, GL, overwritten), GL)", "which has other dimensions"),
        ("Exp(4×8, (f32, GL, overwritten), (bf16, GL))", r"out \(bf16, .*\) cannot be stored over src \(f32"),
        ("Exp(4×8, (f32, GL, overwritten), (f32, GL, col_major))", "cannot be stored over src"),
        ("Exp(4×8, GL, (f32, GL, overwritten))", "out is an output"),
        ("Add(4×8, (f32, GL, overwritten), (f32, GL, overwritten), GL)", "a second operand that is overwritten"),
        ("Add(4×8, (f32, GL, constant, overwritten), GL, GL)", "lhs is constant and overwritten"),
        ("SoftmaxDenominatorAndUnscaled(4×8, (f32, GL, overwritten), GL, GL)", "has 2 outputs"),
    ],
)
def test_errors_of_specs(text: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        goal(text)


def test_a_program_that_reads_too_late_is_refused() -> None:
    """VectorExpStreamed computes values at the ends of its operands twice."""
    wrong = goal("Exp(4×8, (f32, GL, overwritten), GL, serial)").apply("select VectorExpStreamed")
    with pytest.raises(EmitError, match="VectorExpStreamed may read values of the input that it has overwritten"):
        _ = wrong.program
    # Search takes another kernel.
    found = goal("Exp(4×8, (f32, GL, overwritten), GL, serial)").synthesize(
        db=False, progress=False, using=["VectorExpStreamed", "VectorExp"]
    )
    assert "VectorExp " not in found.proof
    assert found.program.prototype == "void kernel(float *restrict src)"


def test_the_order_of_stages_counts() -> None:
    """The product of a residual block reads x, so that it comes before the sum that overwrites x."""
    done = scheduled(BLOCK)
    impl, signature = done.impl, done.signature
    assert isinstance(impl, Node)
    assert signature is not None
    over = signature.overwritten
    assert over is not None
    assert hazard(impl, over, done.target.in_place) is None
    parts = attrs.evolve(impl.expansion, parts=impl.expansion.parts[::-1])
    turned = attrs.evolve(impl, expansion=parts, children=impl.children[::-1])
    found = hazard(turned, over, done.target.in_place)
    assert found
    assert "reads the overwritten input after the output was written" in found.message


def test_the_reference_is_not_in_place() -> None:
    text = "Exp(4×8, (f32, GL, overwritten), GL)"
    with pytest.raises(EmitError, match="leave out `overwritten`"):
        morello.compile(text, target="reference_c", db=False, progress=False)
