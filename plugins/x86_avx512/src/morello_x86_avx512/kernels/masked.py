"""Loads and stores of fewer values than a vector of 64 bytes holds: masks keep them from touching what lies behind."""

from __future__ import annotations

from morello.ir.dtypes import DType
from morello.kernels.site import KernelSite

#: Bytes of the vectors that are masked.
WIDTH = 64


def _mask(dtype: DType, count: int) -> str:
    """Return the mask of the first `count` values of a vector; fewer than it holds."""
    return f"(__mmask{WIDTH // dtype.bytes}){hex((1 << count) - 1)}"


def load_first(site: KernelSite, dtype: DType, count: int, pointer: str) -> str:
    """Return a C expression for a vector whose first `count` values come from memory; the others are 0."""
    kind = site.vector_type(dtype, WIDTH // dtype.bytes)
    return f"({kind})_mm512_maskz_loadu_epi{8 * dtype.bytes}({_mask(dtype, count)}, {pointer})"


def store_first(dtype: DType, count: int, pointer: str, value: str) -> str:
    """Return a C statement that stores the first `count` values of a vector and leaves what follows as it is."""
    return f"_mm512_mask_storeu_epi{8 * dtype.bytes}({pointer}, {_mask(dtype, count)}, (__m512i){value});"
