"""Convolutions of one value with one value. Larger tiles become matrix products, which have vector kernels."""

from __future__ import annotations

from morello.ir.ops.conv import Conv
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel
from morello_x86.kernels.reduce import accumulates
from morello_x86.kernels.values import computed, costs, line


def _mult_add(site: KernelSite) -> str:
    dtype = site.spec.states[2].dtype
    if dtype.is_float:
        return "{out} + ({image}) * ({filters})" if accumulates(site.spec) else "({image}) * ({filters})"
    total = "(uint32_t)({image}) * (uint32_t)({filters})"
    return computed(f"(uint32_t){{out}} + {total}" if accumulates(site.spec) else total, dtype)


KERNELS = (
    Microkernel(
        name="ValueConv",
        op=Conv,
        takes="1, RF/L1, RF/L1, RF/L1",
        cost=costs(1),
        template=line(_mult_add),
    ),
)
