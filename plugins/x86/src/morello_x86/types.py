"""The data types that kernels take whose patterns name none."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from morello.plugins import Microkernel

TYPES = ("u8", "i8", "u16", "i16", "u32", "i32", "f32", "bf16")


def of_types(kernels: Iterable[Microkernel]) -> tuple[Microkernel, ...]:
    """Return kernels for these types only."""
    return tuple(
        attrs.evolve(one, operands=tuple(attrs.evolve(each, dtypes=each.dtypes or TYPES) for each in one.operands))
        for one in kernels
    )
