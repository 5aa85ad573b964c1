"""Slices of results cover the result, each is that of its Spec, and a fault in any is found."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.api.kernel import Kernel
from morello.errors import VerificationError
from morello.ir.dtypes import BF16, F32, I8, I32, U8
from morello.ir.layout import Dynamic, Layout, OddEven, Packed, col_major
from morello.ir.spec import LogicalSpec
from morello.plugins import Target
from morello.verify.datasets import DataSetting, data_sets
from morello.verify.result_slices import result_slices
from morello.verify.tolerance import expectations
from tools.fuzz.specs import drawn_spec

Make = Callable[..., Kernel]

STRIPS = Layout((Dynamic(0), Dynamic(1), Dynamic(2), Packed(1, 2), OddEven(2, 4)))
MATMUL = (2, 5, 6, 8)


def whole_and_parts(logical: LogicalSpec, count: int) -> None:
    """Check that slices are right, and cover each result once."""
    shape = tuple(map(int, logical.shape))
    dtypes = [state.dtype for state in logical.states]
    setting = DataSetting.of(logical.op, shape, dtypes)
    parts = result_slices(logical, 1, count)
    assert 1 <= len(parts) <= count
    written = [one.shape(shape) for one in logical.declared if one.writes]
    seen = [np.zeros(sizes, dtype=np.int64) for sizes in written]
    for part in parts:
        for marks, place in zip(seen, part.written, strict=True):
            marks[place] += 1
    assert all(np.all(marks == 1) for marks in seen)
    data = next(each for each in data_sets(setting, thorough=False) if each.integral)
    values = data.arrays(0, setting)
    reads = [value for value, one in zip(values, logical.declared, strict=True) if one.reads]
    meant = [one.values for one in expectations(logical, reads, data.integral)]
    for part in parts:
        mine = [value[place] for value, place in zip(reads, part.read, strict=True)]
        own = expectations(part.logical, mine, data.integral)
        for found, expected, place in zip(own, meant, part.written, strict=True):
            np.testing.assert_allclose(found.values, expected[place], rtol=1e-12)


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_parts_make_up_the_whole(avx2: Target, number: int, count: int) -> None:
    whole_and_parts(drawn_spec(avx2, 7, number).logical, count)


@pytest.mark.parametrize("count", [2, 3, 13])
def test_products_are_cut_along_their_longest_side(make: Make, count: int) -> None:
    logical = make("Matmul", (1, 6, 3, 20)).spec.logical
    whole_and_parts(logical, count)
    sizes = [part.logical.shape[3] for part in result_slices(logical, 1, count)]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_results_of_few_points_are_one_slice(make: Make) -> None:
    logical = make("Matmul", MATMUL).spec.logical
    (part,) = result_slices(logical, 2 * 5 * 6 * 8, 5)
    assert part.logical == logical
    assert len(result_slices(logical, 2 * 5 * 6 * 8 - 1, 5)) == 2


@pytest.fixture
def few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let results of a few points be judged in parts."""
    monkeypatch.setattr("morello.verify.check._SLICE_POINTS", 100)


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize(
    ("op", "kinds"),
    [
        ("Matmul", F32),
        ("Matmul", [F32, (F32, STRIPS), (F32, col_major(3))]),
        ("MatmulAccum", BF16),
        ("MatmulAccum", [U8, I8, I32]),
        ("Move", [F32, BF16]),
    ],
)
def test_right_kernels_pass(make: Make, target: Target, op: str, kinds) -> None:
    report = make(op, MATMUL, kinds).check(reference=target)
    assert report.slices > 1
    assert all(result.reference == 0 for result in report.results)
    assert f"each on one of {report.slices} slices of the result" in str(report)
    assert make(op, MATMUL, kinds).check(reference=target, thorough=True).slices == 1


@pytest.mark.usefixtures("few_points")
@pytest.mark.parametrize("column", range(8))
def test_wrong_values_are_found_in_any_slice(make: Make, target: Target, column: int) -> None:
    out = "out[out_at(b, m, n)] = sum;"
    kernel = make("Matmul", MATMUL, F32, replace={out: out.replace("sum", f"n == {column} ? 77 : sum")})
    with pytest.raises(VerificationError, match=re.escape("out) at (")) as caught:
        kernel.check(reference=target)
    assert re.search(rf"at \(\d, \d, {column}\): expected .* got 77", str(caught.value))
