"""Quantize and Requantize: ties, ends of the range, NaN, and graphs with them."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.frontend import parse_spec
from morello.host import missing_features
from morello.ir.dtypes import F32, I8, I32, U8, DType
from morello.ir.ops.compose import Compose
from morello.ir.ops.quantize import Quantize, Requantize
from morello.plugins.registry import installed
from morello.rewrites.convert import Convert

#: Values, scale, zero point and bytes of i8.
CASES = [
    ([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], 1, 0, [0, 2, 2, 0, -2, -2]),
    ([3e38, -3e38, np.inf, -np.inf], 1, 5, [127, -128, 127, -128]),
    ([np.nan, 0.0], 0, 7, [7, 7]),
    ([127.4, 127.5, -128.5, -128.51], 1, 0, [127, 127, -128, -128]),
    ([-255.0, 1.0, 255.0], 1, 127, [-128, 127, 127]),
    ([255.0, -1.0, -255.0], 1, -128, [127, -128, -128]),
]


@pytest.mark.parametrize(("values", "scale", "zero", "expected"), CASES)
def test_ends_and_ties(values: list[float], scale: float, zero: int, expected: list[int]) -> None:
    given = [np.array(one, float) for one in (values, [scale], [zero])]
    (found,) = Quantize(over=(0,)).evaluate((len(values),), given, [F32, F32, I8, I8])
    assert found.tolist() == expected


def test_scales_and_zero_points_may_be_computed() -> None:
    operands = "y: (4, i32, GL), a: (4, f32, GL), b: (4, f32, GL), c: (4, i8, GL), d: (4, i8, GL), q: (4, i8, GL)"
    graph = "q = Requantize(y, s, z), s = Mul(a, b), z = Add(c, d)"
    logical = parse_spec(f"Compose([{graph}], [{operands}])", installed().target("x86_avx2")).logical
    given = [np.array([one] * 4) for one in (100, 0.5, 0.5, 1, 2)]
    (found,) = logical.op.evaluate((4,), given, [state.dtype for state in logical.states])
    assert found.tolist() == [28] * 4


@pytest.mark.parametrize(("name", "source"), [("Quantize", "f32"), ("Requantize", "i32")])
def test_sources_are_not_converted_to_bytes(name: str, source: str) -> None:
    text = f"{name}(4, ({source}, GL), (f32, GL), (i8, GL), (i8, GL))"
    assert not Convert.accepts(parse_spec(text, installed().target("x86_avx2")).logical)


def test_sums_are_rounded_to_f32_first() -> None:
    # 2^24 + 1 is no f32; times 2^-23 it is 2, and a little more before.
    given = [np.array([2**24 + 1, 100, -(2**31)]), np.array([2.0**-23]), np.array([1])]
    (found,) = Requantize(over=(0,)).evaluate((3,), given, [I32, F32, U8, U8])
    assert found.tolist() == [3, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("target", ["x86_avx2", "x86_avx512", "reference_c"])
@pytest.mark.parametrize("times", [1, 5], ids=["values", "vectors"])
def test_programs_round_as_the_meaning(target: str, times: int) -> None:
    if missing_features(installed().target(target).info.cpu_features):
        pytest.skip("this machine cannot run it")
    for length in {len(values) * times for values, *_ in CASES}:
        text = f"Quantize[over=[0]]({length}, GL, GL, (i8, GL), (i8, GL), serial)"
        kernel = morello.compile(morello.goal(text, target=target), db=False)
        for values, scale, zero, expected in (one for one in CASES if len(one[0]) * times == length):
            source, out = np.array(values * times, np.float32), np.empty(length, np.int8)
            kernel(source, np.array([scale], np.float32), np.array([zero], np.int8), out)
            assert out.tolist() == expected * times


GRAPHS = [
    "Compose([q = Requantize[over=[0, 1]](y, s, z), y = Matmul(a, w)], [a: (1×3×8, u8, GL), w: (1×8×16, i8, GL), "
    "s: (1×1×16, f32, GL), z: (1×1×16, u8, GL), q: (1×3×16, u8, GL)], serial)",
    "Compose([q = Quantize[over=[1]](x, s, z), s = Scale[by=0.0078125](m), m = Max(g), g = Silu(x)], "
    "[x: (5×16, f32, GL), z: (5×1, i8, GL), q: (5×16, i8, GL)], serial)",
]


@pytest.mark.slow
@pytest.mark.parametrize("text", GRAPHS)
def test_graphs(text: str, prove) -> None:
    one = morello.goal(text, target="x86_avx2")
    prove(one.synthesize(db=False).impl, one.target)


def test_intermediates_have_the_type_that_is_read() -> None:
    found: list[DType] = []
    for text in GRAPHS:
        spec = morello.goal(text, target="x86_avx2").spec
        assert isinstance(spec.op, Compose)
        found.append(spec.op.intermediate_dtype(1, [state.dtype for state in spec.logical.states]))
    assert found == [I32, F32]
