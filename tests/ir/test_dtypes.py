"""Data types: their facts are those of numpy's types."""

from __future__ import annotations

import pickle

import ml_dtypes
import numpy as np
import pytest

from morello.ir.dtypes import ALL, BF16, F16, F32, F64, DType


@pytest.mark.parametrize(
    ("dtype", "largest", "smallest", "normal", "roundoff"),
    [
        (F64, np.finfo(np.float64).max, 2.0**-1074, 2.0**-1022, 2.0**-53),
        (F32, np.finfo(np.float32).max, 2.0**-149, 2.0**-126, 2.0**-24),
        (BF16, 2.0**127 * (2 - 2.0**-7), 2.0**-133, 2.0**-126, 2.0**-8),
        (F16, 65504, 2.0**-24, 2.0**-14, 2.0**-11),
        (DType("f8e4m3", ml_dtypes.float8_e4m3fn), 448, 2.0**-9, 2.0**-6, 2.0**-4),
    ],
    ids=str,
)
def test_limits_of_floats(dtype: DType, largest: float, smallest: float, normal: float, roundoff: float) -> None:
    assert dtype.limits == (-largest, largest)
    assert (dtype.smallest, dtype.smallest_normal, dtype.unit_roundoff) == (smallest, normal, roundoff)
    assert dtype.has_infinity == (largest != 448)


def test_how_c_stores_and_computes_them() -> None:
    assert [(dtype.name, dtype.c_name, dtype.wide.c_name) for dtype in ALL if dtype.is_float] == [
        ("f32", "float", "float"),
        ("bf16", "uint16_t", "float"),
        ("f16", "uint16_t", "float"),
        ("f64", "double", "double"),
    ]
    assert all(dtype.wide is dtype for dtype in ALL if not dtype.is_float)
    assert pickle.loads(pickle.dumps(F16)) == F16
