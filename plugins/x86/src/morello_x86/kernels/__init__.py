"""Microkernels in vectors of any width, and of single values: a file for each family of operations.

Costs are reciprocal throughputs in tenths of a cycle. Those in half cycles are from [Kaufman2025]'s implementation
unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from morello.plugins import Microkernel
from morello_x86.kernels import (
    conv,
    dot,
    elementwise,
    fill,
    matmul,
    move,
    pack,
    random,
    reduce,
    register_tiles,
    rows,
    rows_times_matrix,
    softmax,
    streams,
    transpose,
)


def kernels(vectors: Sequence[int], registers: int) -> tuple[Microkernel, ...]:
    """Return all microkernels of a core with `registers` vector registers and vectors of these sizes in bytes."""
    return (
        *register_tiles.kernels(max(vectors), registers),
        *rows_times_matrix.kernels(max(vectors), registers),
        *conv.kernels(max(vectors), registers),
        *matmul.kernels(vectors),
        *dot.kernels(vectors),
        *matmul.PAIRS,
        *move.kernels(vectors),
        *transpose.in_memory(max(vectors)),
        *transpose.kernels(vectors),
        *streams.kernels(max(vectors)),
        *pack.kernels(vectors),
        *fill.FILLS,
        *_SCALARS,
        *fill.BROADCASTS,
        *(kernel for family in (elementwise, reduce, softmax, rows, random) for kernel in family.kernels(max(vectors))),
    )


#: Kernels on single values of any data type, so that every operation has a program.
_SCALARS = (*elementwise.SCALARS, *reduce.SCALARS, *softmax.SCALARS, *conv.SCALARS, *fill.PADDING, *random.SCALARS)


__all__ = ["kernels"]
