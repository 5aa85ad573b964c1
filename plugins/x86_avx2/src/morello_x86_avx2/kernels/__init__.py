"""Microkernels in vectors of any width: multiply-adds, moves and zeroing of every type.

Costs are reciprocal throughputs in cycles, from the paper's implementation unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from morello.plugins import Microkernel
from morello_x86_avx2.kernels import dot, fill, matmul, move, pairs, transpose


def kernels(vectors: Sequence[int]) -> tuple[Microkernel, ...]:
    """All microkernels of a core whose vectors have these sizes in bytes."""
    return (
        *matmul.kernels(vectors),
        *dot.kernels(vectors),
        *pairs.KERNELS,
        *move.kernels(vectors),
        *transpose.kernels(vectors),
        *fill.KERNELS,
    )


__all__ = ["kernels"]
