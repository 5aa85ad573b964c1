"""The meaning of each operation in C: a new operation is one more function here and its line in `MEANINGS`.

Sums of floats are computed as float, or double for f64, functions like exp as double, and results are rounded to the
output's type once, at the end. Integers are computed as unsigned ones of at least 32 bits, which wrap around without
undefined behaviour; every integer type takes their value modulo its own size.
"""

from __future__ import annotations

from morello.ir.ops import Operation
from morello.ir.ops.binary import Binary
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.compare import Not, Truth, Where
from morello.ir.ops.conv import Convolution
from morello.ir.ops.conv_transpose import ConvTranspose
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.fill import Fill
from morello.ir.ops.gather import Gather
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Extremum
from morello.ir.ops.move import Move, OnePrefix
from morello.ir.ops.pad import Pad
from morello.ir.ops.pool import AvgPool, MaxPool
from morello.ir.ops.quantize import ToBytes
from morello.ir.ops.quantized import Dequantize, QMatmul
from morello.ir.ops.rand_matmul import RandMatmul, Random
from morello.ir.ops.reduce import Mean, Prod, Sum
from morello.ir.ops.resize import Resize
from morello.ir.ops.scan import Arg, CumSum, LinearScan, TopK
from morello.ir.ops.softmax import Softmax, SoftmaxComplete
from morello.ir.ops.softmax_parts import (
    SoftmaxDenominator,
    SoftmaxDenominatorAndMax,
    SoftmaxDenominatorAndMaxFromParts,
    SoftmaxDenominatorAndUnscaled,
    SoftmaxDenominatorAndUnscaledFromMax,
)
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.unary import Unary
from morello.ir.ops.views import Concat, Slice, Transpose
from morello_reference_c.meanings import copies, elementwise, pools, products, reductions, softmax
from morello_reference_c.meanings.common import HELPERS, Meaning

__all__ = ["HELPERS", "MEANINGS", "looped", "meaning"]

MEANINGS: dict[type[Operation], Meaning] = {
    Fill: copies.fill,
    Move: copies.move,
    OnePrefix: copies.one_prefix,
    Pad: copies.pad,
    Broadcast: copies.broadcast,
    Gather: copies.gather,
    Transpose: copies.transpose,
    Slice: copies.sliced,
    Concat: copies.concat,
    Matmul: products.matmul,
    Dequantize: products.dequantize,
    QMatmul: products.qmatmul,
    Random: products.random,
    RandMatmul: products.rand_matmul,
    Convolution: products.conv,
    ConvTranspose: products.conv_transpose,
    Binary: elementwise.binary,
    Truth: elementwise.truth,
    Not: elementwise.negated,
    Where: elementwise.where,
    DivideVec: elementwise.divide,
    DivideVecScalar: elementwise.divide,
    ToBytes: elementwise.to_bytes,
    Unary: elementwise.unary,
    MaxPool: pools.largest,
    AvgPool: pools.mean,
    Resize: pools.resized,
    Extremum: reductions.extremum,
    Arg: reductions.arg,
    CumSum: reductions.cumsum,
    LinearScan: reductions.linear,
    TopK: reductions.top,
    Sum: reductions.total,
    Mean: reductions.total,
    Prod: reductions.total,
    CausalMask: softmax.causal_mask,
    Softmax: softmax.softmax,
    SoftmaxComplete: softmax.complete,
    SoftmaxDenominator: softmax.denominator,
    SoftmaxDenominatorAndMax: softmax.denominator_and_max,
    SoftmaxDenominatorAndMaxFromParts: softmax.denominator_and_max,
    SoftmaxDenominatorAndMaxPerPart: softmax.per_part,
    SoftmaxDenominatorAndUnscaled: softmax.unscaled,
    SoftmaxDenominatorAndUnscaledFromMax: softmax.unscaled,
}


def meaning(op: Operation) -> Meaning | None:
    """Return the function that prints an operation, None for one that is not known here."""
    found = (MEANINGS[cls] for cls in type(op).__mro__ if cls in MEANINGS)
    printer = next(found, None)
    # Those of plugins are not known here.
    return printer if not isinstance(op, (Unary, Binary)) or elementwise.knows(op) else None


def looped(op: Operation, rank: int) -> set[int]:
    """Return the dimensions that an operation's meaning loops over itself: those over which it sums or compares."""
    whole = op.untiled(rank) if isinstance(op, (Softmax, Gather, ConvTranspose, CumSum, LinearScan)) else ()
    return {*op.reductions(rank), *whole}
