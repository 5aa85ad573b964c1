"""XNNPACK, by LiteRT (TensorFlow Lite): models of one convolution each; filters are packed before the first run."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from morello.ir.ops.conv import Conv, GroupedConv
from morello_baselines.native.base import NotInstalled, NotOffered, Prepared
from morello_baselines.native.problems import Problem, images


class Xnnpack:
    """Models that LiteRT delegates to XNNPACK, as is its default."""

    def __init__(self) -> None:
        try:
            self._schema: Any = importlib.import_module("ai_edge_litert.schema_py_generated")
            self._interpreter: Any = importlib.import_module("ai_edge_litert.interpreter")
        except ImportError as error:
            raise NotInstalled("ai-edge-litert is not installed") from error

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        op = problem.logical.op
        if not isinstance(op, Conv | GroupedConv) or not problem.channels_last:
            raise NotOffered("only convolutions of f32, channels last")
        if isinstance(op, GroupedConv) and problem.shapes[1][2] > 1:
            raise NotOffered("no groups of several channels")
        image, filters = images(inputs[0]), inputs[1].reshape(-1, *inputs[1].shape[-3:])
        model = _Model(self._schema).convolution(op, image, filters, problem.shape)
        made = self._interpreter.Interpreter(model_content=model, num_threads=threads)
        made.allocate_tensors()
        made.set_tensor(made.get_input_details()[0]["index"], np.moveaxis(image, 1, -1))
        clock: Callable[[], float] = time.perf_counter if threads > 1 else time.thread_time

        def run(count: int) -> float:
            start = clock()
            for _ in range(count):
                made.invoke()
            return clock() - start

        def output() -> np.ndarray:
            result = made.get_tensor(made.get_output_details()[0]["index"])
            return np.moveaxis(result, -1, 1).reshape(problem.shape)

        return Prepared(run, output)


@attrs.define
class _Model:
    """A model in the making: its tensors, their values, and its operators."""

    schema: Any
    tensors: list[Any] = attrs.field(factory=list[Any])
    values: list[Any] = attrs.field(factory=list[Any])
    operators: list[Any] = attrs.field(factory=list[Any])
    codes: list[Any] = attrs.field(factory=list[Any])

    def convolution(
        self, op: Conv | GroupedConv, image: np.ndarray, filters: np.ndarray, shape: Sequence[int]
    ) -> bytes:
        """Return the model of a convolution as bytes. Padding is an operator of its own, which XNNPACK fuses."""
        schema, deep = self.schema, isinstance(op, GroupedConv)
        self.values.append(schema.BufferT())
        batch, channels, height, width = image.shape
        start = given = self._tensor((batch, height, width, channels))
        top, left, bottom, right = op.pads
        if any(op.pads):
            around = np.array([[0, 0], [top, bottom], [left, right], [0, 0]], np.int32)
            padded = self._tensor((batch, height + top + bottom, width + left + right, channels))
            self._operator("PAD", "PadOptions", [given, self._constant(around)], padded)
            given = padded
        held = np.moveaxis(filters, 1, -1)
        held = np.moveaxis(held, 0, -1).reshape(1, *filters.shape[2:], -1) if deep else held
        sums = self._tensor((batch, *shape[-2:], len(filters)))
        name = "DepthwiseConv2DOptions" if deep else "Conv2DOptions"
        options = self._operator(
            "DEPTHWISE_CONV_2D" if deep else "CONV_2D",
            name,
            [given, self._constant(held), self._constant(np.zeros(len(filters), np.float32))],
            sums,
        )
        if deep:
            options.depthMultiplier = len(filters) // channels
        options.padding = schema.Padding.VALID
        (options.strideH, options.strideW), (options.dilationHFactor, options.dilationWFactor) = (
            op.strides,
            op.dilations,
        )
        return self._packed(start, sums)

    def _tensor(self, shape: Sequence[int], kind: str = "FLOAT32", buffer: int = 0) -> int:
        made = self.schema.TensorT()
        made.shape, made.type, made.buffer = [*map(int, shape)], getattr(self.schema.TensorType, kind), buffer
        made.name = f"t{len(self.tensors)}".encode()
        self.tensors.append(made)
        return len(self.tensors) - 1

    def _constant(self, array: np.ndarray) -> int:
        made = self.schema.BufferT()
        made.data = np.frombuffer(array.tobytes(), np.uint8)
        self.values.append(made)
        return self._tensor(array.shape, "INT32" if array.dtype == np.int32 else "FLOAT32", len(self.values) - 1)

    def _operator(self, code: str, options: str, inputs: Sequence[int], output: int) -> Any:
        """Add an operator; return its options, to be filled in."""
        opcode, made = self.schema.OperatorCodeT(), self.schema.OperatorT()
        opcode.builtinCode = opcode.deprecatedBuiltinCode = getattr(self.schema.BuiltinOperator, code)
        opcode.version = 1
        self.codes.append(opcode)
        made.opcodeIndex, made.inputs, made.outputs = len(self.codes) - 1, [*inputs], [output]
        made.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        made.builtinOptions = getattr(self.schema, f"{options}T")()
        self.operators.append(made)
        return made.builtinOptions

    def _packed(self, given: int, result: int) -> bytes:
        graph, model = self.schema.SubGraphT(), self.schema.ModelT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = self.tensors, self.operators, [given], [result]
        model.version, model.description, model.subgraphs = 3, "convolution", [graph]
        model.operatorCodes, model.buffers = self.codes, self.values
        builder = importlib.import_module("flatbuffers").Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
