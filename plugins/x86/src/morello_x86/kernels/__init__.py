"""Microkernels in vectors of any width, and of single values: what each operation has is in a file of its own.

Costs are reciprocal throughputs in cycles, from [Kaufman2025]'s implementation unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from morello.plugins import Microkernel
from morello_x86.kernels import (
    broadcast,
    conv,
    dot,
    elementwise,
    fill,
    matmul,
    move,
    pad,
    pairs,
    reduce,
    softmax,
    softmax_rows,
    transpose,
)


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """Return all microkernels of a core whose vectors have these sizes in bytes."""
    return (
        *matmul.kernels(vectors),
        *dot.kernels(vectors),
        *pairs.KERNELS,
        *move.kernels(vectors),
        *transpose.kernels(vectors),
        *fill.KERNELS,
        *_SCALARS,
        *broadcast.KERNELS,
        *(kernel for family in (elementwise, reduce, softmax_rows) for kernel in family.kernels(max(vectors))),
    )


#: What every operation has, whatever its data type: programs of single values.
_SCALARS = (*elementwise.SCALARS, *reduce.SCALARS, *softmax.SCALARS, *conv.KERNELS, *pad.KERNELS)


__all__ = ["kernels"]
