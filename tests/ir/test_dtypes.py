"""Constants of float types are those of numpy's types."""

from __future__ import annotations

import ml_dtypes
import pytest

from morello.ir.dtypes import BF16, F32, DType


@pytest.mark.parametrize("dtype", [F32, BF16], ids=str)
def test_limits_of_floats(dtype: DType) -> None:
    info = ml_dtypes.finfo(dtype.numpy)
    assert dtype.smallest == float(info.smallest_subnormal)
    assert dtype.smallest_normal == float(info.smallest_normal)
    assert dtype.unit_roundoff == float(info.eps) / 2
