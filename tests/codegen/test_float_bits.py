"""Conversions in C of floats that are stored as bits: every value, and every place where rounding changes."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest

from morello.build.library import build
from morello.codegen.float_bits import ODD_FLOAT, bits_to_float, float_to_bits
from morello.ir.dtypes import BF16, F16, DType
from tools.fixtures import COMPILERS

E4M3, E5M2 = DType("f8e4m3", ml_dtypes.float8_e4m3fn), DType("f8e5m2", ml_dtypes.float8_e5m2)
IEEE_E4M3 = DType("f8e4m3i", ml_dtypes.float8_e4m3)
KINDS = (BF16, F16, E4M3, E5M2, IEEE_E4M3)


def source() -> str:
    parts = ["#include <stdint.h>\n#include <stddef.h>\n#include <string.h>\n", ODD_FLOAT]
    for dtype in KINDS:
        parts += [bits_to_float(dtype), float_to_bits(dtype)]
        for name, before, after, call in (
            ("decode", dtype.c_name, "float", f"{dtype}_to_float(from[i])"),
            ("encode", "float", dtype.c_name, f"float_to_{dtype}(from[i])"),
            ("encode_double", "double", dtype.c_name, f"float_to_{dtype}(odd_float(from[i]))"),
        ):
            head = f"void {name}_{dtype}(const {before} *from, {after} *to, ptrdiff_t n)"
            parts.append(f"{head};\n{head} {{ for (ptrdiff_t i = 0; i < n; i++) to[i] = {call}; }}\n")
    return "\n".join(parts)


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda compiler: compiler.name)
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    return ctypes.CDLL(str(build({"bits.c": source()}, (), request.param)))


def computed(library: ctypes.CDLL, name: str, values: np.ndarray, to: np.dtype) -> np.ndarray:
    out = np.empty(values.shape, to)
    values = np.ascontiguousarray(values)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (values, out)]
    getattr(library, name)(*pointers, ctypes.c_ssize_t(values.size))
    return out


@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_value(library: ctypes.CDLL, dtype: DType) -> None:
    bits = np.arange(1 << 8 * dtype.bytes, dtype=f"u{dtype.bytes}")
    expected = bits.view(dtype.numpy).astype(np.float32)
    got = computed(library, f"decode_{dtype}", bits, np.dtype(np.float32))
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    fine = ~np.isnan(expected)
    assert np.array_equal(got.view(np.uint32)[fine], expected.view(np.uint32)[fine])
    again = computed(library, f"encode_{dtype}", got, bits.dtype)
    assert np.array_equal(again[fine], bits[fine])
    assert np.isnan(again[~fine].view(dtype.numpy).astype(np.float32)).all()


# Types of ml_dtypes round doubles twice.
@pytest.mark.parametrize(("dtype", "wide"), [*((dtype, np.float32) for dtype in KINDS), (F16, np.float64)])
def test_every_tie(library: ctypes.CDLL, dtype: DType, wide: type) -> None:
    """Between neighbours, and right beside that, also where they overflow and underflow."""
    finite = np.arange(dtype.bits(dtype.limits[1]) + 1, dtype=f"u{dtype.bytes}").view(dtype.numpy).astype(np.float64)
    ties = np.append((finite[:-1] + finite[1:]) / 2, 1.5 * finite[-1] - finite[-2] / 2).astype(wide)
    ties = ties[np.isfinite(ties)]
    # In doubles, two roundings, to float and then to fewer bits, would end elsewhere.
    beside = [np.nextafter(ties, wide(np.inf)), np.nextafter(ties, wide(0))]
    values = np.concatenate([finite.astype(wide), ties, *beside, np.array([np.inf, 1e30, 1e-30, 0], wide)])
    values = np.concatenate([values, -values])
    with np.errstate(all="ignore"):
        expected = values.astype(dtype.numpy).view(f"u{dtype.bytes}")
    name = f"encode_{dtype}" if wide is np.float32 else f"encode_double_{dtype}"
    got = computed(library, name, values, expected.dtype)
    assert np.array_equal(got, expected)
