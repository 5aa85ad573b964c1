"""Data types of tensor values.

A data type is a name for a type of numpy or `ml_dtypes`, which determines everything else. Plugins declare more (hook
`morello_dtypes`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, cast

import attrs
import ml_dtypes
import numpy as np

from morello.errors import SpecError

#: The names of data types: no other word of the language looks like them.
NAME = re.compile(r"b?[fiu][0-9]\w*|bool")
#: C computes with the values of these types, and with the bits of others.
_IN_C = {"b": "uint8_t", "u": "uint{}_t", "i": "int{}_t", "f4": "float", "f8": "double"}


@attrs.frozen(cache_hash=True)
class DType:
    """A value type: its name in Specs and its type in numpy."""

    name: str
    numpy: np.dtype = attrs.field(converter=np.dtype, repr=False)

    @cached_property
    def bytes(self) -> int:
        return self.numpy.itemsize

    @cached_property
    def is_float(self) -> bool:
        return self.numpy.kind not in "iub"

    @cached_property
    def is_bool(self) -> bool:
        """Return True for truth values, stored as bytes that are 0 or 1: they are no numbers."""
        return self.numpy.kind == "b"

    @cached_property
    def c_name(self) -> str:
        """Return the C type of stored values: an unsigned integer if these are bits."""
        kind = self.numpy.kind
        return _IN_C.get(f"{kind}{self.bytes}", _IN_C.get(kind, _IN_C["u"])).format(8 * self.bytes)

    @cached_property
    def c_sums(self) -> str:
        """Return the C type of sums and products: of integers an unsigned one, which wraps around."""
        return self.wide.c_name if self.is_float else f"uint{max(32, 8 * self.bytes)}_t"

    @property
    def is_signed(self) -> bool:
        return self.numpy.kind not in "ub"

    @property
    def wide(self) -> DType:
        """Return the type in which C computes values: f32 for floats that it stores as bits."""
        return F32 if self.is_float and self.bytes < F32.bytes else self

    @property
    def is_bits(self) -> bool:
        """Return True for floats that C stores as bits."""
        return self.wide is not self

    @property
    def in_numpy(self) -> bool:
        """Return False for types of `ml_dtypes`."""
        return self.numpy.kind != "V"

    def takes_bits(self, given: np.dtype) -> bool:
        """Return whether arrays of a type of numpy may hold the bits of these values, which numpy lacks."""
        return not self.in_numpy and given == np.dtype(f"u{self.bytes}")

    @cached_property
    def info(self) -> np.finfo[Any]:
        """Return the limits of a float type."""
        return cast("np.finfo[Any]", ml_dtypes.finfo(self.numpy))

    @cached_property
    def unit_roundoff(self) -> float:
        """Return the largest relative error of rounding to this float type; 0 for other types."""
        return float(self.info.eps) / 2 if self.is_float else 0.0

    @cached_property
    def smallest(self) -> float:
        """Return the smallest positive subnormal value of this float type; 0 for other types."""
        return float(self.info.smallest_subnormal) if self.is_float else 0.0

    @cached_property
    def smallest_normal(self) -> float:
        """Return the smallest positive normal value of this float type."""
        return float(self.info.smallest_normal)

    @cached_property
    def limits(self) -> tuple[float, float]:
        """Return the smallest and largest finite value; those of integers are ints, as no float is exact for i64."""
        if self.is_bool:
            return 0, 1
        if not self.is_float:
            info = np.iinfo(self.numpy)
            return int(info.min), int(info.max)
        return float(self.info.min), float(self.info.max)

    @cached_property
    def has_infinity(self) -> bool:
        """Return False for integers and floats without infinities, where NaN takes their place."""
        return self.is_float and bool(np.isinf(self.numpy.type(np.inf)))

    def bits(self, value: float) -> int:
        """Return the bits of a value, which is rounded to this type."""
        with np.errstate(all="ignore"):
            return int(np.array(value).astype(self.numpy).view(f"u{self.bytes}"))

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", np.bool_)
U8 = DType("u8", np.uint8)
I8 = DType("i8", np.int8)
U16 = DType("u16", np.uint16)
I16 = DType("i16", np.int16)
U32 = DType("u32", np.uint32)
I32 = DType("i32", np.int32)
I64 = DType("i64", np.int64)
F32 = DType("f32", np.float32)
BF16 = DType("bf16", ml_dtypes.bfloat16)
F16 = DType("f16", np.float16)
F64 = DType("f64", np.float64)

ALL = (U8, I8, U16, I16, U32, I32, I64, F32, BF16, F16, F64, BOOL)
#: Morello's own data types. Those of plugins are in `Registry.dtypes` and `Target.dtypes`.
BY_NAME = {dtype.name: dtype for dtype in ALL}
#: The types of indices: operands and results that are numbers of rows.
INDICES = (I32, I64)


def by_name(name: str, known: Mapping[str, DType] = BY_NAME) -> DType:
    """Return the data type called `name`, among those of a target if given. Raises SpecError for an unknown name."""
    try:
        return known[name]
    except KeyError:
        raise SpecError(f"unknown data type {name!r}", f"data types are {', '.join(known)}") from None


def widest(dtypes: Iterable[DType]) -> DType:
    """Return F64 if it is one of these types, else F32."""
    return F64 if F64 in dtypes else F32
