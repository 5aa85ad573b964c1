"""Data types of tensor values."""

from __future__ import annotations

from typing import Any, cast

import attrs
import ml_dtypes
import numpy as np

from morello.errors import SpecError


@attrs.frozen(cache_hash=True)
class DType:
    """A value type: its name in Specs, width in bytes, and its numpy and C spellings."""

    name: str
    bytes: int
    c_name: str
    numpy: np.dtype = attrs.field(eq=False, hash=False, repr=False)

    @property
    def is_float(self) -> bool:
        return self.name in ("f32", "bf16")

    @property
    def is_signed(self) -> bool:
        return not self.name.startswith("u")

    @property
    def unit_roundoff(self) -> float:
        """Return the largest relative error of rounding to this float type."""
        return {"f32": 2.0**-24, "bf16": 2.0**-8}[self.name]

    @property
    def smallest(self) -> float:
        """Return the smallest positive subnormal value of this float type."""
        return {"f32": 2.0**-149, "bf16": 2.0**-133}[self.name]

    @property
    def smallest_normal(self) -> float:
        """Return the smallest positive normal value of this float type."""
        return {"f32": 2.0**-126, "bf16": 2.0**-126}[self.name]

    @property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and largest finite value."""
        if not self.is_float:
            whole = np.iinfo(self.numpy)
            return float(whole.min), float(whole.max)
        info = cast("np.finfo[Any]", ml_dtypes.finfo(self.numpy))
        return float(info.min), float(info.max)

    def __str__(self) -> str:
        return self.name


U8 = DType("u8", 1, "uint8_t", np.dtype(np.uint8))
I8 = DType("i8", 1, "int8_t", np.dtype(np.int8))
U16 = DType("u16", 2, "uint16_t", np.dtype(np.uint16))
I16 = DType("i16", 2, "int16_t", np.dtype(np.int16))
U32 = DType("u32", 4, "uint32_t", np.dtype(np.uint32))
I32 = DType("i32", 4, "int32_t", np.dtype(np.int32))
F32 = DType("f32", 4, "float", np.dtype(np.float32))
#: C code handles bfloat16 as its bit pattern.
BF16 = DType("bf16", 2, "uint16_t", np.dtype(ml_dtypes.bfloat16))

ALL = (U8, I8, U16, I16, U32, I32, F32, BF16)
BY_NAME = {dtype.name: dtype for dtype in ALL}


def by_name(name: str) -> DType:
    """Return the data type called `name`. Raises SpecError for an unknown name."""
    try:
        return BY_NAME[name]
    except KeyError:
        raise SpecError(f"unknown data type {name!r}", f"data types are {', '.join(BY_NAME)}") from None
