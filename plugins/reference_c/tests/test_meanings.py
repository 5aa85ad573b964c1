"""The printed C computes what operations mean."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.ir.dtypes import ALL, BF16, F32, I8, I16, I32, I64, U16, U32, DType
from morello.ir.layout import Dynamic, Layout, OddEven, Packed, col_major, row_major
from morello.ir.ops import by_name
from morello.plugins import Target
from morello.run.arrays import empty
from morello.testing import Trials
from morello.testing.sanitize import run_sanitized

Make = Callable[..., Kernel]

STRIPS = Layout((Dynamic(0), Dynamic(2), Dynamic(1), OddEven(1, 4), Packed(2, 3)))


MOVES = [pair for pair in product(ALL, ALL) if not by_name("Move").check((4, 5), pair)]


@pytest.mark.slow
def test_moves_between_all_types(make: Make, target: Target) -> None:
    impls: list[Any] = [make("Move", (4, 5), [*dtypes]).impl for dtypes in MOVES]
    found = Trials(impls, target, reference=target)
    for number in range(len(MOVES)):
        found.check(number)


def test_products(make: Make, target: Target, compiler: Compiler) -> None:
    kinds = [(F32, F32, F32), (BF16, BF16, F32), (BF16, F32, BF16), (I8, I32, F32), (U16, U16, U16), (I16, U32, I8)]
    layouts = [row_major(3), col_major(3), STRIPS]
    products = [(op, dtypes) for op in ("Matmul", "MatmulAccum") for dtypes in kinds]
    impls: list[Any] = [
        make(op, (2, 8, 5, 6), [*zip(dtypes, layouts, [1, 0, 3], strict=True)]).impl for op, dtypes in products
    ]
    found = Trials(impls, target, compiler=compiler, reference=target)
    for number in range(len(impls)):
        found.check(number)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rank_layout_and_contiguity(make: Make, target: Target, data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 3)) * 4 for _ in range(rank))
    op = data.draw(st.sampled_from(["Move", "FillZero"]))
    kinds = list[Any]()
    for _ in by_name(op).operands(rank):
        dims = [Dynamic(dim) for dim in data.draw(st.permutations(range(rank)))]
        if data.draw(st.booleans()):
            dims.append(data.draw(st.sampled_from([OddEven, Packed]))(data.draw(st.integers(0, rank - 1)), 4))
        kinds.append((F32, Layout(tuple(dims)), data.draw(st.integers(0, len(dims)))))
    make(op, shape, kinds).check(reference=target)


def test_adds_in_order_and_rounds_after_each_step(make: Make, compiler: Compiler) -> None:
    rng = np.random.default_rng(0)
    lhs, rhs, out = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 50), (1, 50, 4), (1, 3, 4)))
    expected = out.copy()
    for k in range(50):
        expected += lhs[:, :, k, None] * rhs[:, None, k, :]
    make("MatmulAccum", (1, 3, 50, 4), [F32] * 3, compiler=compiler)(lhs, rhs, out)
    assert np.array_equal(out, expected)


def test_bf16_sums_round_once(make: Make) -> None:
    ones = np.ones((1, 1, 1000), ml_dtypes.bfloat16)
    out = make("Matmul", (1, 1, 1000, 1), [BF16] * 3)(ones, ones.reshape(1, 1000, 1))
    assert out.item() == 1000, "in bf16, 256 + 1 is 256"


@pytest.mark.slow
def test_every_bf16_becomes_the_same_float(make: Make, compiler: Compiler) -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    values = make("Move", (2**16,), [BF16, F32], compiler=compiler)(bits)
    assert np.array_equal(values.view(np.uint32), bits.astype(np.uint32) << 16)
    back = make("Move", (2**16,), [F32, BF16], compiler=compiler)(values).view(np.uint16)
    nan = np.isnan(values)
    assert np.array_equal(back[~nan], bits[~nan])
    assert np.array_equal(back[nan], bits[nan] | 0x40), "NaN stays NaN, and becomes quiet"


def test_floats_round_to_the_nearest_bf16(make: Make) -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 2**16, np.uint32)
    bits[::2] = bits[::2] & 0xFFFF0000 | 0x8000  # ties
    values = bits.view(np.float32)
    got = make("Move", (2**16,), [F32, BF16])(values)
    with np.errstate(all="ignore"):
        expected = values.astype(ml_dtypes.bfloat16)
    assert np.array_equal(got, expected, equal_nan=True)


@pytest.mark.parametrize("dtypes", [(I32, I32, I32), (U16, U16, I8), (U16, U16, U32), (I16, I16, I16), (I64, I64, I64)])
def test_integers_overflow_without_undefined_behaviour(
    make: Make, compiler: Compiler, dtypes: tuple[DType, ...]
) -> None:
    kernel = make("MatmulAccum", (1, 2, 3, 4), [*dtypes])
    arrays = [empty(tensor) for tensor in kernel.spec.operands]
    for array, dtype in zip(arrays, dtypes, strict=True):
        array[...] = dtype.limits[1]
    (got,) = run_sanitized(kernel.program, kernel.spec, arrays, compiler)
    lhs, rhs, out = (array.astype(np.int64) for array in arrays)
    assert np.array_equal(got, (lhs @ rhs + out).astype(dtypes[2].numpy))
