"""QMatmul and Dequantize: every value of a byte, groups and columns, in one kernel and by way of a matrix."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.errors import MorelloError
from morello.host import missing_features
from morello.ir.ops.quantized import Dequantize, Quantized
from morello.plugins.registry import installed


def weight(op: Quantized, bytes_: np.ndarray, row: int, column: int) -> int:
    """One weight, by the text of docs/language.md."""
    if op.bits == 8:
        return int(bytes_[0, row, column])
    if not op.group:
        return int(bytes_[0, row // 2, column]) >> 4 * (row % 2) & 15
    half = op.group // 2
    group, place = divmod(row, op.group)
    return int(bytes_[0, group * half + place % half, column]) >> 4 * (place >= half) & 15


def inputs(op: Quantized, groups: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights with every value of a byte, scales of both signs, and zero points that include the least and largest."""
    kind = np.uint8 if op.bits == 4 else np.int8
    rows = groups * op.block // op.pack
    weights = np.arange(rows * columns).astype(np.uint8).view(kind).reshape(1, rows, columns)
    per_column = 1, groups if op.group else 1, columns
    rng = np.random.default_rng(0)
    zeros = rng.choice([0, 15, 7] if op.bits == 4 else [-128, 127, 0], per_column).astype(kind)
    return weights, rng.standard_normal(per_column).astype(np.float32), zeros


@pytest.mark.parametrize("op", [Dequantize(), Dequantize(4, 0), Dequantize(8, 64), Dequantize(8, 0)], ids=str)
def test_weights_are_where_the_reference_says(op: Dequantize) -> None:
    groups = 2 if op.group else 16
    weights, scales, zeros = inputs(op, groups, 33)
    (found,) = op.evaluate((1, groups, 33), [weights, scales.astype(float), zeros.astype(float)], [])
    for row in range(groups * op.block):
        group = row // op.group if op.group else 0
        for column in (0, 1, 32):
            difference = weight(op, weights, row, column) - int(zeros[0, group, column])
            assert found[0, row, column] == float(scales[0, group, column]) * difference


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_avx2", "x86_avx512", "reference_c"])
@pytest.mark.parametrize("parameters", ["bits=4", "bits=8, group=64", "bits=4, group=0", "bits=8, group=0"])
def test_extremes_are_exact(target: str, parameters: str) -> None:
    if missing_features(installed().target(target).info.cpu_features):
        pytest.skip("this machine cannot run it")
    kinds = ("u8", "u8") if "bits=4" in parameters else ("i8", "i8")
    groups = 64 if "group=0" in parameters else 2
    text = f"QMatmul[{parameters}](1×1×{groups}×40, GL, ({kinds[0]}, GL), GL, ({kinds[1]}, GL), GL, serial)"
    goal = morello.goal(text, target=target)
    kernel = morello.compile(goal, db=False)
    op = goal.spec.op
    assert isinstance(op, Quantized)
    weights, scales, zeros = inputs(op, groups, 40)
    # Powers of two, so that results are exact.
    scales = np.exp2(np.rint(scales)).astype(np.float32)
    lhs = np.zeros((1, 1, groups * op.block), np.float32)
    out = np.empty((1, 1, 40), np.float32)
    for row in (0, op.block // 2, groups * op.block - 1):
        lhs[:] = 0
        lhs[..., row] = 3
        kernel(lhs, weights, scales, zeros, out)
        group = row // op.group if op.group else 0
        expected = [weight(op, weights, row, column) - int(zeros[0, group, column]) for column in range(40)]
        assert (out[0, 0] == 3 * scales[0, group] * expected).all()


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["tile [0, 4, 0, 16]; dequantize to L1", "to_accum; subschedule [1] { split 1 }"])
@pytest.mark.parametrize("parameters", ["group=4", "bits=8, group=0"])
def test_programs_are_right(steps: str, parameters: str, prove) -> None:
    kind = "i8" if "bits=8" in parameters else "u8"
    text = f"QMatmul[{parameters}](1×8×4×16, L1, ({kind}, L1), (bf16, L1), ({kind}, L1), L1, serial)"
    one = morello.parse(f"target x86_avx2\nspec one = {text}\nschedule one {{ {steps}; synthesize }}")["one"]
    found = one.synthesize(db=False)
    prove(found.impl, found.target)


def test_other_operations() -> None:
    with pytest.raises(MorelloError, match="is for QMatmul, not for Matmul"):
        morello.goal("Matmul(1×2×2×2, L1, L1, L1)", target="x86_avx2").apply("dequantize to L1")
