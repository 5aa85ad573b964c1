"""Patterns of microkernels as text."""

from __future__ import annotations

import re

import pytest

from morello.ir.ops.matmul import Matmul
from morello.kernels.pattern import Multiple, OperandPattern, Shape, parse_pattern
from morello.plugins import Microkernel

ROW = OperandPattern(levels=("C",), dtypes=("f32", "i32"), layout="row_major", aligned=True)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("any", OperandPattern()),
        ("f32/i32 C row_major aligned", ROW),
        ("f32 VRF v4/v8", OperandPattern(levels=("VRF",), dtypes=("f32",), vectors=(4, 8))),
        ("RF/L1 col_major strided", OperandPattern(levels=("RF", "L1"), layout="col_major", contiguous=False)),
    ],
)
def test_operands_as_text_and_back(text: str, pattern: OperandPattern) -> None:
    assert OperandPattern.of(text) == pattern
    assert str(pattern) == text


@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ("1", 1),
        ("n", None),
        ("8i", (Multiple(of=8),)),
        ("1×1×k×16i", (1, 1, None, Multiple(of=16))),
        ("1x1x4xn", (1, 1, 4, None)),
    ],
)
def test_sizes_as_text(sizes: str, shape: Shape) -> None:
    assert parse_pattern(f"{sizes}, f32 C, f32 C").shape == shape


@pytest.mark.parametrize("sizes", ["", "1×", "-1", "n8", "8.5"])
def test_an_invalid_size(sizes: str) -> None:
    with pytest.raises(ValueError, match="is not a number, a multiple"):
        parse_pattern(f"{sizes}, f32 C")


def test_text_and_data_declare_the_same() -> None:
    text = Microkernel(name="One", takes="Matmul(1×1×1×n, any, any, f32 C)", cost=lambda spec, machine: 1)
    assert text.operands == (OperandPattern(), OperandPattern(), OperandPattern(levels=("C",), dtypes=("f32",)))
    assert text.size_rules(4) == text.shape == (1, 1, 1, None)
    assert text.size_rules(3) is None
    assert text.describe() == "Matmul of 1×1×1×n on (any), (any), (f32 C)"
    single = Microkernel(name="One", takes="Matmul(1, any, any, any)", cost=lambda spec, machine: 1)
    assert single.size_rules(2) == (1, 1)


def test_an_operation_as_text() -> None:
    kernel = Microkernel(name="One", takes="MatmulAccum(1×1×1×6i, any, any, f32 C)", template="{out} += {lhs} * {rhs};")
    assert kernel.op == Matmul(accumulate=True)
    assert kernel.describe() == "MatmulAccum of 1×1×1×6i on (any), (any), (f32 C)"


@pytest.mark.parametrize(
    ("takes", "rule"),
    [
        (
            "ClippedSwish(1, any, any)",
            "ClippedSwish is not an operation of Morello: an operation of your own is given by `op`",
        ),
        ("1, any, any", "microkernel One has no operation: begin `takes` with it"),
        ("", "microkernel One has no operation"),
    ],
)
def test_a_pattern_without_a_known_operation(takes: str, rule: str) -> None:
    with pytest.raises(ValueError, match=re.escape(rule)):
        Microkernel(name="One", takes=takes, template="{out} = {src};")


def test_two_operations() -> None:
    rule = "microkernel One: `takes` has Move, and `op` is Matmul: leave out `op`"
    with pytest.raises(ValueError, match=re.escape(rule)):
        Microkernel(name="One", op=Matmul(), takes="Move(1, any, any)", template="{out} = {src};")
