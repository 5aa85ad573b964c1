"""Microkernels of x86-64: those of every CPU with vectors, in Intel's intrinsics, and multiply-adds of small integers.

Costs are reciprocal throughputs in tenths of a cycle. Those in half cycles are from [Kaufman2025]'s implementation
unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from morello_vectors.kernels import others, products

from morello.plugins import Microkernel
from morello_x86.kernels import pairs
from morello_x86.kernels.multiply_adds import families


def kernels(vectors: Sequence[int], registers: int) -> tuple[Microkernel, ...]:
    """Return all microkernels of a core with `registers` vector registers and vectors of these sizes in bytes."""
    return (
        *products(families(max(vectors)), vectors, registers),
        *pairs.dots(vectors),
        *pairs.PAIRS,
        *others(vectors, streams=True),
    )


__all__ = ["kernels"]
