"""torch: what its users call for each operation, by its own kernels and MKL's, or on tensors of oneDNN."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from morello.ir.ops import Compose, Operation
from morello.ir.ops.binary import Add, Div, Maximum, Minimum, Mul, Pow, Sub
from morello.ir.ops.broadcast import Broadcast
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.divide import DivideVec, DivideVecScalar
from morello.ir.ops.fill import Fill
from morello.ir.ops.functions import Function as Named
from morello.ir.ops.gather import Gather
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.max import Max
from morello.ir.ops.move import Move
from morello.ir.ops.named_graphs import named_graph
from morello.ir.ops.pool import AvgPool, MaxPool, Pool
from morello.ir.ops.reduce import Mean, Sum
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Exp, Gelu, Relu, Rsqrt, Scale, Shift, Sigmoid, Silu, Tanh
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.ir.spec import LogicalSpec
from morello_baselines.calls import Arrays, CallLibrary, Function, GraphNode, Maker, NotOffered

#: Names of torch's functions that take inputs and then `out`.
_PLAIN: Mapping[type[Operation], str] = MappingProxyType(
    {
        Add: "add",
        Sub: "sub",
        Mul: "mul",
        Div: "div",
        Maximum: "maximum",
        Minimum: "minimum",
        Sigmoid: "sigmoid",
        Tanh: "tanh",
        Exp: "exp",
        Rsqrt: "rsqrt",
        Pow: "pow",
    }
)


class Torch(CallLibrary):
    """torch on ordinary tensors, with its kernels and those of MKL and oneDNN that it picks itself."""

    def __init__(self) -> None:
        # Not imported by name, as it need not be there.
        self.torch: Any = importlib.import_module("torch")
        super().__init__(self.torch)
        self.functions: Any = self.torch.nn.functional
        self.calls: Mapping[type[Operation], Maker] = {
            **{kind: self.same(name) for kind, name in _PLAIN.items()},
            Matmul: self._matmul,
            Relu: self.constant("clamp_min", lambda op: 0),
            Scale: self.constant("mul", lambda op: op.factor),
            Shift: self.constant("add", lambda op: op.term),
            Silu: lambda place: lambda x, out: self.functions.silu(x),
            Gelu: self._gelu,
            Softmax: self._softmax,
            Sum: self.reduction("sum", "add"),
            Mean: self.reduction("mean", "add"),
            Max: self.reduction("amax", "maximum"),
            Conv: self._conv,
            GroupedConv: self._conv,
            DivideVec: self.divided,
            DivideVecScalar: self.divided,
            Move: self._move,
            MaxPool: self._pool,
            AvgPool: self._pool,
            Transpose: self._transpose,
            Slice: self._slice,
            Concat: self._concat,
            Gather: self._gather,
            Named: self._named,
            Broadcast: lambda place: lambda x, out: out.copy_(x),
            Fill: self._fill,
        }

    def whole(self, op: Compose, arrays: Arrays) -> Function | None:
        """Return the call that is a norm, attention or a linear layer."""
        return self._norm(op, arrays) or self._attention(op, arrays) or self._linear(op, arrays)

    def given(self, array: np.ndarray) -> Any:
        """Return a tensor on the same memory."""
        if array.dtype == ml_dtypes.bfloat16:
            return self.torch.from_numpy(array.view(np.uint16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def plain(self, array: Any) -> np.ndarray:
        """Return the values, those of bf16 in f32."""
        low = array.dtype == self.torch.bfloat16
        return (array.float() if low else array).numpy()

    def _matmul(self, place: GraphNode) -> Function:
        op, torch, out = place.op, self.torch, place.arrays[-1]
        assert isinstance(op, Matmul)
        if op.saturating or not out.is_floating_point():
            raise NotOffered("no fast products of integers")
        if op.accumulate:
            return lambda lhs, rhs, total, out: torch.baddbmm(total, lhs, rhs, out=out)
        if len(out) > 1:
            return lambda lhs, rhs, out: torch.bmm(lhs, rhs, out=out)
        # A batch of one is a product of matrices, which another kernel computes.
        return lambda lhs, rhs, out: torch.mm(lhs[0], rhs[0], out=out[0])[None]

    def _gelu(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Gelu)
        form = "tanh" if place.op.form == "tanh" else "none"
        return lambda x, out: self.functions.gelu(x, approximate=form)

    def _softmax(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Softmax)
        axis = place.op.axis(place.arrays[-1].ndim)
        return lambda x, out: self.torch.softmax(x, axis, out=out)

    def _conv(self, place: GraphNode) -> Function:
        op, pads = place.op, self.functions.pad
        assert isinstance(op, Conv | GroupedConv)
        if op.accumulate:
            raise NotOffered(f"no call for {op.name}")
        top, left, bottom, right = op.pads
        even = (top, left) == (bottom, right)
        groups = place.arrays[1].shape[0] if isinstance(op, GroupedConv) else 1
        options = {"stride": op.strides, "dilation": op.dilations, "groups": groups}
        options["padding"] = (top, left) if even else 0
        shape = tuple(place.arrays[-1].shape)

        def function(image: Any, filters: Any, out: Any) -> Any:
            if groups > 1:
                image, filters = image.flatten(1, 2), filters.flatten(0, 1)
            image = image if even else pads(image, (left, right, top, bottom))
            return self.functions.conv2d(image, filters, **options).view(shape)

        return function

    def _named(self, place: GraphNode) -> Function:
        name = place.op.name.lower()
        # torch.selu takes no `out`.
        if call := getattr(self.functions, name, None):
            return lambda x, out: call(x)
        call = getattr(self.torch, name)
        return lambda x, out: call(x, out=out)

    def _pool(self, place: GraphNode) -> Function:
        op, image, out = place.op, *place.arrays
        assert isinstance(op, Pool)
        top, left, bottom, right = op.pads
        spans = (image.shape[2] + top + bottom, image.shape[3] + left + right)
        size = [
            (span - 1 - stride * (count - 1)) // apart + 1
            for span, stride, count, apart in zip(spans, op.strides, out.shape[2:], op.dilations, strict=True)
        ]
        down, across = op.strides
        if not (0 <= top - bottom < down and 0 <= left - right < across):
            raise NotOffered("no padding that is larger at the end, or smaller by a stride")
        if isinstance(op, MaxPool):
            return lambda x, out: self.functions.max_pool2d(x, size, op.strides, (top, left), op.dilations)
        assert isinstance(op, AvgPool)
        counts = op.count_include_pad
        return lambda x, out: self.functions.avg_pool2d(x, size, op.strides, (top, left), False, counts)

    def _transpose(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Transpose)
        order = place.op.order_of(place.arrays[-1].ndim)
        return lambda x, out: out.copy_(x.permute(order))

    def _concat(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Concat)
        axis = place.op.axis(place.arrays[-1].ndim)
        return lambda *arrays: self.torch.cat(arrays[:-1], axis, out=arrays[-1])

    def _gather(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Gather)
        dim = place.op.dim
        return lambda table, indices, out: self.torch.index_select(table, dim, indices, out=out)

    def _slice(self, place: GraphNode) -> Function:
        op, (x, _) = place.op, place.arrays
        assert isinstance(op, Slice)
        starts, steps, rests = op.lists(x.ndim)
        places = tuple(
            slice(start, size - rest, step)
            for start, step, rest, size in zip(starts, steps, rests, x.shape, strict=True)
        )
        return lambda x, out: out.copy_(x[places])

    def _move(self, place: GraphNode) -> Function:
        if place.arrays[-1].is_contiguous():
            return lambda x, out: out.copy_(x)
        # Torch transposes by blocks only into arrays that are contiguous.
        return lambda x, out: out.mT.copy_(x.mT).mT

    def _fill(self, place: GraphNode) -> Function:
        value = self.value(place)
        return lambda out: out.fill_(value)

    def _norm(self, op: Compose, arrays: Arrays) -> Function | None:
        shift = next((stage.op.by for stage in op.stages if isinstance(stage.op, Shift)), None)
        rank = arrays[-1].ndim
        if shift is None:
            return None
        sizes = arrays[-1].shape[-1:]
        if op == named_graph("LayerNorm", rank, eps=shift):
            norm = self.functions.layer_norm
            return lambda beta, gamma, x, out: norm(x, sizes, gamma.view(sizes), beta.view(sizes), shift)
        if op == named_graph("RMSNorm", rank, eps=shift):
            norm = self.functions.rms_norm
            return lambda gamma, x, out: norm(x, sizes, gamma.view(sizes), shift)
        return None

    def _attention(self, op: Compose, arrays: Arrays) -> Function | None:
        stages = [stage.op for stage in op.stages]
        scales = [one.factor for one in stages if isinstance(one, Scale)]
        if [type(one) for one in stages if not isinstance(one, Scale)] != [Matmul, Softmax, Matmul]:
            return None
        plain = op.is_chain and stages[0] == stages[-1] == Matmul() and stages[1] == Softmax()
        if not plain or len(scales) > 1:
            return None
        call, scale = self.functions.scaled_dot_product_attention, (scales or [1.0])[0]
        return lambda v, q, k, out: call(q[None], k.transpose(-1, -2)[None], v[None], scale=scale)[0]

    def _linear(self, op: Compose, arrays: Arrays) -> Function | None:
        """Return the call of a product with a bias and an activation."""
        after: dict[Operation, Function] = {Gelu(): self.functions.gelu, Relu(): self.torch.relu}
        *heads, add, product = (stage.op for stage in op.stages)
        plain = op.is_chain and (add, product) == (Add(over=(0, 1)), Matmul()) and len(arrays[-1]) == 1
        addmm = self.torch.addmm
        if plain and not heads:
            return lambda bias, x, weights, out: addmm(bias[0], x[0], weights[0])[None]
        if plain and len(heads) == 1 and heads[0] in after:
            last = after[heads[0]]
            return lambda bias, x, weights, out: last(addmm(bias[0], x[0], weights[0]))[None]
        return None


class OneDnn(Torch):
    """oneDNN through torch: its own tensors, with the right-hand side of a product laid out for it beforehand."""

    def __init__(self) -> None:
        super().__init__()
        functions = self.functions
        self.calls: Mapping[type[Operation], Maker] = {
            Matmul: self._matmul,
            Conv: self._conv,
            Relu: lambda place: lambda x, out: functions.relu(x),
            Gelu: self._gelu,
            Sigmoid: lambda place: lambda x, out: self.torch.sigmoid(x),
            Tanh: lambda place: lambda x, out: self.torch.tanh(x),
            Softmax: self._softmax,
            Add: self._values("add"),
            Mul: self._values("mul"),
        }

    def check(self, logical: LogicalSpec) -> None:
        """Raise NotOffered for anything but f32."""
        if {state.dtype.name for state in logical.states} != {"f32"}:
            raise NotOffered("only f32")

    def whole(self, op: Compose, arrays: Arrays) -> Function | None:
        """Return None: its calls are of one operation each."""
        return None

    def given(self, array: np.ndarray) -> Any:
        """Return a tensor of oneDNN."""
        return super().given(np.ascontiguousarray(array)).to_mkldnn()

    def plain(self, array: Any) -> np.ndarray:
        """Return the values."""
        return super().plain(array.to_dense())

    def _matmul(self, place: GraphNode) -> Function:
        op, rhs = place.op, place.arrays[1]
        assert isinstance(op, Matmul)
        if op.accumulate or rhs.shape[0] > 1 or not place.known[1]:
            raise NotOffered("only products with a matrix that is there beforehand")
        weights = rhs.to_dense()[0].t().contiguous().to_mkldnn()
        return lambda lhs, rhs, out: self.functions.linear(lhs, weights)

    def _gelu(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Gelu)
        if place.op.form != "erf":
            raise NotOffered("no Gelu[form=tanh]")
        return lambda x, out: self.functions.gelu(x)

    def _softmax(self, place: GraphNode) -> Function:
        assert isinstance(place.op, Softmax)
        axis = place.op.axis(place.arrays[-1].ndim)
        return lambda x, out: self.torch.softmax(x, axis)

    def _conv(self, place: GraphNode) -> Function:
        op = place.op
        assert isinstance(op, Conv)
        if op.pads[:2] != op.pads[2:] or op.accumulate:
            raise NotOffered("no such padding, and no sums that go on")
        options = {"stride": op.strides, "dilation": op.dilations, "padding": op.pads[:2]}
        return lambda image, filters, out: self.functions.conv2d(image, filters, **options)

    def _values(self, name: str) -> Maker:
        function = getattr(self.torch, name)

        def maker(place: GraphNode) -> Function:
            if place.arrays[0].shape != place.arrays[1].shape:
                raise NotOffered("no values used for whole rows")
            return lambda lhs, rhs, out: function(lhs, rhs)

        return maker
