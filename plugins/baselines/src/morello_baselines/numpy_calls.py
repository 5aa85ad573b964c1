"""numpy: what its users call for each operation, into arrays that are there already."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from morello.ir.dtypes import BF16
from morello.ir.ops import Compose, Operation
from morello.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Sub
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.fill import Fill
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Max
from morello.ir.ops.move import Move
from morello.ir.ops.reduce import Mean, Reduction, Sum
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello.ir.spec import LogicalSpec
from morello_baselines.calls import Arrays, Function, GraphNode, Maker, NotOffered


def _same(function: np.ufunc) -> Maker:
    """Return the maker of a function that takes inputs and output as they are."""
    # Some functions deprecate an output that is not named.
    return lambda place: lambda *arrays: function(*arrays[:-1], out=arrays[-1])


def _with(function: np.ufunc, number: Callable[[Any], float]) -> Maker:
    """Return the maker of a function of values and a number that the operation has."""

    def maker(place: GraphNode) -> Function:
        value = place.arrays[-1].dtype.type(number(place.op))
        return lambda x, out: function(x, value, out=out)

    return maker


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


def _reduction(reduce: Callable[..., Any], add: np.ufunc) -> Maker:
    def maker(place: GraphNode) -> Function:
        op, out = place.op, place.arrays[-1]
        assert isinstance(op, Reduction)
        axis = op.axis(out.ndim)
        if len(place.known) == 1:
            return lambda x, out: reduce(x, axis=axis, keepdims=True, out=out)
        made = np.empty_like(out)
        return lambda x, total, out: add(total, reduce(x, axis=axis, keepdims=True, out=made), out=out)

    return maker


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


def _fill(place: GraphNode) -> Function:
    op, out = place.op, place.arrays[-1]
    assert isinstance(op, Fill)
    low = -math.inf if out.dtype.kind == "f" else np.iinfo(out.dtype).min
    value = {"Zero": 0, "NegInf": low, "Min": np.finfo(out.dtype).min if out.dtype.kind == "f" else low}[op.value]

    def function(out: np.ndarray) -> np.ndarray:
        out.fill(value)
        return out

    return function


def _copy(place: GraphNode) -> Function:
    def function(x: np.ndarray, out: np.ndarray) -> np.ndarray:
        np.copyto(out, x)
        return out

    return function


def _divided(place: GraphNode) -> Function:
    return lambda by, x, out: np.divide(x, by, out)


class Numpy:
    """numpy, with scipy for erf."""

    calls: Mapping[type[Operation], Maker] = MappingProxyType(
        {
            Matmul: _matmul,
            Add: _same(np.add),
            Sub: _same(np.subtract),
            Mul: _same(np.multiply),
            Div: _same(np.divide),
            Maximum: _same(np.maximum),
            Minimum: _same(np.minimum),
            Relu: _with(np.maximum, lambda op: 0),
            Scale: _with(np.multiply, lambda op: op.factor),
            Shift: _with(np.add, lambda op: op.term),
            Tanh: _same(np.tanh),
            Exp: _same(np.exp),
            Rsqrt: _rsqrt,
            Sigmoid: _sigmoid,
            Silu: _silu,
            Gelu: _gelu,
            Softmax: _softmax,
            Sum: _reduction(np.sum, np.add),
            Mean: _reduction(np.mean, np.add),
            Max: _reduction(np.max, np.maximum),
            DivideVec: _divided,
            DivideVecScalar: _divided,
            Move: _copy,
            Broadcast: _copy,
            Fill: _fill,
        }
    )

    def check(self, logical: LogicalSpec) -> None:
        """Raise NotOffered for types that numpy has no arithmetic of, or would convert."""
        types = {state.dtype for state in logical.states}
        if BF16 in types:
            raise NotOffered("no bf16")
        if len(types) > 1:
            raise NotOffered("no operands of several types")

    def whole(self, op: Compose, arrays: Arrays) -> Function | None:
        """Return None: numpy has no call that is a graph."""
        return None

    def given(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array

    def plain(self, array: np.ndarray) -> np.ndarray:
        """Return the array itself."""
        return array
