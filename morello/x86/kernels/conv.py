"""Convolutions of one value with one value. Larger tiles become matrix products, which have vector kernels."""

from __future__ import annotations

from morello.ir.ops.conv import Conv
from morello.kernels.site import KernelSite
from morello.plugins import Microkernel
from morello.x86.kernels.common import SCALAR, one_value
from morello.x86.kernels.reduce import accumulates
from morello.x86.kernels.values import computed, costs, read, write


def _mult_add(site: KernelSite) -> None:
    dtype = site.spec.states[2].dtype
    image, filters = (f"({read(site, i, dtype)})" for i in range(2))
    if dtype.is_float:
        total = f"{image} * {filters}"
        total = f"{read(site, 2, dtype)} + {total}" if accumulates(site.spec) else total
    else:
        total = f"(uint32_t){image} * (uint32_t){filters}"
        total = f"(uint32_t){read(site, 2, dtype)} + {total}" if accumulates(site.spec) else total
        total = computed(total, dtype)
    write(site, 2, total)


KERNELS = (
    Microkernel(
        name="ValueConv",
        op=Conv,
        operands=(SCALAR,) * 3,
        when=one_value,
        cost=costs(1),
        emit=_mult_add,
    ),
)
