"""The kernels of a CPU with vectors: an operation or two a file, and here all of them.

Costs are reciprocal throughputs in tenths of a cycle. Those in half cycles are from [Kaufman2025]'s implementation
unless a comment says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence

from morello.plugins import Microkernel
from morello_vectors import (
    causal,
    conv,
    conv_images,
    conv_pixels,
    depthwise,
    dot,
    elementwise,
    fill,
    gather,
    interleave,
    matmul,
    move,
    pack,
    pool,
    product_graphs,
    quantized,
    random,
    reduce,
    register_tiles,
    resize,
    rows,
    rows_times_matrix,
    scan,
    softmax,
    to_bytes,
    transpose,
)
from morello_vectors import streams as streams_
from morello_vectors.multiply_add import PORTABLE, Families

#: Kernels on single values of any data type, so that every operation has a program.
_SCALARS = (
    *elementwise.SCALARS,
    *reduce.SCALARS,
    *softmax.SCALARS,
    *conv.SCALARS,
    *fill.PADDING,
    *random.SCALARS,
    *causal.SCALARS,
    *quantized.SCALARS,
    *to_bytes.SCALARS,
)


#: Modules of kernels that depend on the widest vectors alone.
_FAMILIES = (reduce, scan, softmax, rows, pool, resize, random, causal, to_bytes)


def kernels(vectors: Sequence[int], registers: int, families: Families | None = None) -> tuple[Microkernel, ...]:
    """Return all kernels of a core with `registers` vector registers, which hold vectors of these sizes in bytes.

    `families` are the multiply-adds of its register tiles, by default those that GNU C has for every core. Of kernels
    that cost the same, search takes the first.
    """
    families = families or [(adds, max(vectors)) for adds in PORTABLE]
    return (*products(families, vectors, registers), *others(vectors))


def products(families: Families, vectors: Sequence[int], registers: int) -> tuple[Microkernel, ...]:
    """Return the kernels of products and convolutions, with register tiles by the multiply-adds of `families`."""
    floats = [(adds, size) for adds, size in families if adds.width == 4 and adds.out == ("f32",) and not adds.narrow]
    return (
        *register_tiles.kernels(families, registers),
        *rows_times_matrix.kernels(floats, registers),
        *conv.kernels(*floats[0], registers),
        *conv_images.kernels(families, *floats[0], registers),
        conv_pixels.kernel(*floats[0], registers),
        *depthwise.kernels(*floats[0], registers),
        *product_graphs.kernels(*floats[0], registers),
        *matmul.kernels(vectors),
        *dot.kernels(vectors),
        *quantized.kernels(max(vectors), registers),
    )


def others(vectors: Sequence[int], streams: bool = False) -> tuple[Microkernel, ...]:
    """Return the kernels of all other operations; `streams` is for cores that can store past the caches."""
    widest = max(vectors)
    return (
        *move.kernels(vectors),
        *transpose.in_memory(widest, streams),
        *interleave.kernels(widest),
        *transpose.kernels(vectors),
        *(streams_.kernels(widest) if streams else ()),
        *pack.kernels(vectors),
        *fill.FILLS,
        *_SCALARS,
        *fill.BROADCASTS,
        *gather.GATHERS,
        *elementwise.kernels(widest, streams),
        *(kernel for family in _FAMILIES for kernel in family.kernels(widest)),
    )
