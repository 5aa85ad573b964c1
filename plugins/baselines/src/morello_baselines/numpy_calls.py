"""numpy: what its users call for each operation, into arrays that are there already."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from morello.ir.dtypes import BF16
from morello.ir.ops import Operation
from morello.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Sub
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.fill import Fill
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Max, Min
from morello.ir.ops.move import Move
from morello.ir.ops.reduce import Mean, Prod, Sum
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello.ir.spec import LogicalSpec
from morello_baselines.calls import CallLibrary, Function, GraphNode, NotOffered

#: Functions that take inputs and output as they are.
_SAME: Mapping[type[Operation], str] = MappingProxyType(
    {
        Add: "add",
        Sub: "subtract",
        Mul: "multiply",
        Div: "divide",
        Maximum: "maximum",
        Minimum: "minimum",
        Tanh: "tanh",
        Exp: "exp",
    }
)


def _matmul(place: GraphNode) -> Function:
    op, out = place.op, place.arrays[-1]
    assert isinstance(op, Matmul)
    if op.saturating:
        raise NotOffered("no products that saturate")
    if out.dtype.kind != "f":
        raise NotOffered("no fast products of integers")
    if not op.accumulate:
        return np.matmul
    product = np.empty_like(out)

    def function(lhs: np.ndarray, rhs: np.ndarray, total: np.ndarray, out: np.ndarray) -> np.ndarray:
        return np.add(total, np.matmul(lhs, rhs, product), out)

    return function


def _softmax(place: GraphNode) -> Function:
    op, out = place.op, place.arrays[-1]
    assert isinstance(op, Softmax)
    axis = op.axis(out.ndim)
    row = np.empty_like(np.max(out, axis=axis, keepdims=True))

    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.subtract(x, np.max(x, axis=axis, keepdims=True, out=row), out)
        np.exp(out, out)
        return np.divide(out, np.sum(out, axis=axis, keepdims=True, out=row), out)

    return function


def _sigmoid(place: GraphNode) -> Function:
    one = np.float32(1)

    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.exp(np.negative(x, out), out)
        return np.reciprocal(np.add(out, one, out), out)

    return function


def _silu(place: GraphNode) -> Function:
    one = np.float32(1)

    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.exp(np.negative(x, out), out)
        return np.divide(x, np.add(out, one, out), out)

    return function


def _rsqrt(place: GraphNode) -> Function:
    return lambda x, out: np.reciprocal(np.sqrt(x, out), out)


def _gelu(place: GraphNode) -> Function:
    op = place.op
    assert isinstance(op, Gelu)
    one, half = np.float32(1), np.float32(0.5)
    bend = _erf() if op.form == "erf" else _tanh_of_cubic(place.arrays[-1])

    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.add(bend(x, out), one, out)
        return np.multiply(np.multiply(out, x, out), half, out)

    return function


def _erf() -> Function:
    """Return erf(x/√2) on arrays. Raises NotOffered without scipy."""
    try:
        # Not imported by name, as it need not be there.
        erf = importlib.import_module("scipy.special").erf
    except ImportError as error:
        raise NotOffered("no erf in numpy, and scipy, which has it, is not installed (pip install scipy)") from error
    scale = np.float32(math.sqrt(0.5))
    return lambda x, out: erf(np.multiply(x, scale, out), out)


def _tanh_of_cubic(like: np.ndarray) -> Function:
    """Return tanh(√(2/π)·(x + 0.044715·x³)) on arrays."""
    cube, linear = np.float32(0.044715 * math.sqrt(2 / math.pi)), np.float32(math.sqrt(2 / math.pi))

    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.multiply(np.multiply(x, x, out), cube, out)
        return np.tanh(np.multiply(np.add(out, linear, out), x, out), out)

    return function


def _copied(x: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.copyto(out, x)
    return out


class Numpy(CallLibrary):
    """numpy, with scipy for erf."""

    def __init__(self) -> None:
        super().__init__(np)
        self.calls = {
            **{kind: self.same(name) for kind, name in _SAME.items()},
            Matmul: _matmul,
            Relu: self.constant("maximum", lambda op: 0),
            Scale: self.constant("multiply", lambda op: op.factor),
            Shift: self.constant("add", lambda op: op.term),
            Rsqrt: _rsqrt,
            Sigmoid: _sigmoid,
            Silu: _silu,
            Gelu: _gelu,
            Softmax: _softmax,
            Sum: self.reduction("sum", "add"),
            Mean: self.reduction("mean", "add"),
            Prod: self.reduction("prod", "multiply"),
            Max: self.reduction("max", "maximum"),
            Min: self.reduction("min", "minimum"),
            DivideVec: self.divided,
            DivideVecScalar: self.divided,
            Move: lambda place: _copied,
            Broadcast: lambda place: _copied,
            Fill: self._fill,
        }

    def check(self, logical: LogicalSpec) -> None:
        if BF16 in {state.dtype for state in logical.states}:
            raise NotOffered("no bf16")
        super().check(logical)

    def given(self, array: np.ndarray) -> np.ndarray:
        return array

    def plain(self, array: np.ndarray) -> np.ndarray:
        return array

    def _fill(self, place: GraphNode) -> Function:
        value = self.value(place)

        def function(out: np.ndarray) -> np.ndarray:
            out.fill(value)
            return out

        return function
