"""ONNX Runtime, with its own kernels (MLAS): models of one problem each, on memory that is bound beforehand.

Inputs that a model holds as initializers it packs before the first run.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.gather import Gather
from morello.ir.ops.pool import AvgPool, MaxPool
from morello.ir.ops.views import Concat, Transpose
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem, empty, images, placed

#: An operator with its inputs and attributes.
_Node = tuple[str, tuple[str, ...], dict[str, Any]]
#: The nodes of a problem. `y` is the result of the previous node.
_NODES: dict[str, list[_Node]] = {
    "matmul": [("MatMul", ("0", "1"), {})],
    "chain": [("MatMul", ("1", "2"), {}), ("MatMul", ("y", "0"), {})],
    "linear gelu": [("MatMul", ("1", "2"), {}), ("Add", ("y", "0"), {}), ("Gelu", ("y",), {})],
    "attention": [
        ("MatMul", ("1", "2"), {}),
        ("Mul", ("y", "scale"), {}),
        ("Softmax", ("y",), {"axis": -1}),
        ("MatMul", ("y", "0"), {}),
    ],
    "softmax": [("Softmax", ("0",), {"axis": -1})],
    "layer norm": [("LayerNormalization", ("2", "1", "0"), {"axis": -1, "epsilon": 1e-5})],
    "gelu": [("Gelu", ("0",), {})],
    "sums": [("ReduceSum", ("0",), {"keepdims": 1})],
    "relu": [("Relu", ("0",), {})],
    "copy": [("Identity", ("0",), {})],
    "add": [("Add", ("0", "1"), {})],
    "transpose": [("Transpose", ("0",), {})],
}
#: The inputs that are weights in networks.
_WEIGHTS = {"matmul": (1,), "linear gelu": (0, 2), "conv": (1,)}
_OPSET = 20
#: Functions that both name alike.
_FUNCTIONS = ("Erf", "Sin", "Mish", "HardSwish")


def _nodes(problem: Problem) -> list[_Node]:
    """Return the nodes of a problem. Raises NotOffered for one that is not listed."""
    op = problem.logical.op
    match op:
        case Conv() | GroupedConv():
            groups = problem.shapes[1][0] if isinstance(op, GroupedConv) else 1
            given = {"strides": op.strides, "pads": op.pads, "dilations": op.dilations, "group": groups}
            return [("Conv", ("0", "1"), given)]
        case MaxPool() | AvgPool():
            attributes: dict[str, Any] = {"kernel_shape": [*map(int, problem.logical.shape[-2:])]}
            attributes |= {"strides": op.strides, "pads": op.pads, "dilations": op.dilations}
            if isinstance(op, AvgPool):
                attributes["count_include_pad"] = int(op.count_include_pad)
            return [(type(op).__name__.replace("Avg", "Average"), ("0",), attributes)]
        case Concat():
            names = tuple(map(str, range(len(op.sizes))))
            return [("Concat", names, {"axis": op.axis(len(problem.shape))})]
        case Transpose():
            return [("Transpose", ("0",), {"perm": op.order_of(len(problem.shape))})]
        case Gather():
            return [("Gather", ("0", "1"), {"axis": op.dim})]
        case _ if str(op) in _FUNCTIONS:
            return [(str(op), ("0",), {})]
    if problem.what in _NODES and problem.f32:
        return _NODES[problem.what]
    raise NotOffered("only row-major f32, and not every operation")


class OnnxRuntime:
    """Models; with `weights=initializers` weights are part of them, so that they are packed beforehand."""

    def __init__(self, weights: str = "inputs"):
        self._constant = weights == "initializers"
        try:
            self._onnx: Any = importlib.import_module("onnx")
            self._runtime: Any = importlib.import_module("onnxruntime")
        except ImportError as error:
            raise NotInstalled("onnx and onnxruntime are not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        nodes = _nodes(problem)
        out = problem.output()
        if problem.what == "conv":
            # Its images are row major.
            image, filters = inputs
            inputs = [placed(np.ascontiguousarray(images(image))), filters.reshape(-1, *filters.shape[-3:])]
            out = empty(images(out).shape, out.dtype)
        weights = _WEIGHTS.get(problem.what, ()) if self._constant else ()
        if self._constant and not weights:
            raise NotOffered("no weights")
        options = self._runtime.SessionOptions()
        options.intra_op_num_threads = threads
        model = self._model(problem, nodes, inputs, weights).SerializeToString()
        session = self._runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        memory = out.T if problem.what == "transpose" else out
        for place, array in enumerate(inputs):
            if place in weights:
                continue
            binding.bind_input(str(place), "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        binding.bind_output("out", "cpu", 0, np.float32, memory.shape, out.ctypes.data)

        def run(count: int, _bound: Sequence[np.ndarray] = inputs) -> float:
            clock: Callable[[], float] = time.perf_counter if threads > 1 else time.thread_time
            start = clock()
            for _ in range(count):
                session.run_with_iobinding(binding)
            return clock() - start

        return Prepared(run, lambda: out.reshape(problem.shape))

    def _model(self, problem: Problem, steps: list[_Node], inputs: Sequence[np.ndarray], weights: Sequence[int]) -> Any:
        helper, kinds = self._onnx.helper, self._onnx.TensorProto
        kind = kinds.FLOAT
        nodes, last = list[Any](), ""
        for number, (op, names, attributes) in enumerate(steps):
            made = "out" if number == len(steps) - 1 else f"y{number}"
            nodes.append(helper.make_node(op, [last if one == "y" else one for one in names], [made], **attributes))
            last = made
        if problem.what == "sums":
            axes = helper.make_tensor("axes", self._onnx.TensorProto.INT64, [1], [-1])
            nodes.insert(0, helper.make_node("Constant", [], ["axes"], value=axes))
            nodes[-1].input.append("axes")
        given = [
            helper.make_tensor_value_info(str(at), kinds.INT32 if dtype == "i32" else kind, array.shape)
            for at, (array, dtype) in enumerate(zip(inputs, problem.types, strict=False))
            if at not in weights
        ]
        found = helper.make_tensor_value_info("out", kind, None)
        held = [self._onnx.numpy_helper.from_array(inputs[place], str(place)) for place in weights]
        if problem.what == "attention":
            held.append(self._onnx.numpy_helper.from_array(np.float32(problem.shapes[1][-1] ** -0.5), "scale"))
        graph = helper.make_graph(nodes, "problem", given, [found], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=10)
