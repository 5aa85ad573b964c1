"""Plans of random models compute what ONNX's reference does, in an arena of which each byte is NaN before its use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from morello.frontend.parser import parse_signed
from morello.ir.signature import Signature
from morello.models.arena import placed
from morello.models.model import default_budget
from morello.models.onnx import graph_of
from morello.models.passes import simplified
from morello.models.places import Buffer, Place
from morello.models.plan import Plan, plan_of
from morello.verify.reference import reference_target


def run(plan: Plan, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a plan of float32 in an arena, as its C does; return the outputs by name."""
    lives, graph = plan.buffers, plan.graph
    arena = placed({one: one.bytes for one in lives}, lives)
    memory = np.full(arena.size // 4 + 1, np.nan, np.float32)
    own: dict[str, np.ndarray] = {}

    def flat(buffer: Buffer) -> np.ndarray:
        if not buffer.kind:
            start = arena.starts[buffer] // 4
            return memory[start : start + buffer.size]
        if buffer.name not in own:
            value = inputs[buffer.name] if buffer.kind == "input" else graph.tensors[buffer.name].value
            own[buffer.name] = np.full(buffer.size, np.nan, np.float32) if value is None else value.reshape(-1).copy()
        return own[buffer.name]

    def array(place: Place) -> np.ndarray:
        values = flat(place.buffer)
        steps = [(size - 1) * stride for size, stride in zip(place.shape, place.strides, strict=True)]
        assert 0 <= place.start <= place.start + sum(steps) < len(values)
        return place.values(values)

    for number, call in enumerate(plan.calls):
        for buffer, (first, _) in lives.items():
            if first == number:
                flat(buffer)[:] = np.nan
                clear_border(buffer, flat(buffer))
        spec, signature = parse_signed(call.written.text, reference_target())
        logical = spec.logical
        places = (signature or Signature.of(logical)).in_spec_order(call.written.places)
        operands = logical.op.operands(len(logical.shape))
        shaped = [(array(one), tensor.shape) for one, tensor in zip(places, logical.operands, strict=True)]
        read = [one.reshape(shape) for (one, shape), each in zip(shaped, operands, strict=True) if each.reads]
        made = iter(logical.op.evaluate(tuple(map(int, logical.shape)), read, [s.dtype for s in logical.states]))
        for (one, _), each in zip(shaped, operands, strict=True):
            if each.writes:
                one[...] = next(made).reshape(one.shape)
    return {name: own[name].reshape(graph.tensors[name].shape) for name in graph.outputs}


def clear_border(buffer: Buffer, values: np.ndarray) -> None:
    image = buffer.image
    if image is not None:
        pixels = values.reshape(image.outer, image.rows, image.columns, image.pixel)
        kept = pixels[:, image.top : image.rows - image.bottom, image.left : image.columns - image.right]
        inside = kept.copy()
        pixels[:] = 0
        kept[...] = inside


class Model:
    """An ONNX model in the making; `shapes` are those of the tensors that nodes may read."""

    def __init__(self, shape: tuple[int, ...]):
        self.shapes = {"x": shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def add(self, op: str, inputs: list[str], shape: tuple[int, ...], **given: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **given))
        self.shapes[name] = shape
        return name

    def constant(self, *shape: int) -> str:
        return self._constant(self.random.standard_normal(shape).astype(np.float32))

    def sizes(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def finished(self, outputs: list[str]) -> onnx.ModelProto:
        def info(name: str) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name])

        graph = helper.make_graph(self.nodes, "m", [info("x")], [info(one) for one in outputs], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Draw a model of up to nine nodes on images of few channels, and their flat forms."""
    model = Model((1, draw(st.sampled_from((2, 4))), draw(st.integers(3, 6)), draw(st.integers(3, 6))))
    for _ in range(draw(st.integers(2, 9))):
        recent = [*model.shapes][-4:]
        name = draw(st.sampled_from(recent))
        shape = model.shapes[name]
        alike = [one for one in recent if model.shapes[one] == shape]
        if len(shape) == 4:
            _add_to_image(draw, model, name, alike)
        else:
            kind = draw(st.sampled_from(("Gemm", "Relu", "Add", "Image")))
            if kind == "Gemm":
                model.add("Gemm", [name, model.constant(shape[1], 6), model.constant(6)], (shape[0], 6))
            elif kind == "Image":
                full = (1, shape[0] * shape[1], 1, 1)
                model.add("Reshape", [name, model.sizes(*full)], full)
            else:
                model.add(kind, [name] if kind == "Relu" else [name, draw(st.sampled_from(alike))], shape)
    unread = [one for one in model.shapes if not any(one in node.input for node in model.nodes)]
    return model.finished(list(dict.fromkeys([*unread, draw(st.sampled_from([*model.shapes][1:]))])))


def _add_to_image(draw: st.DrawFn, model: Model, name: str, alike: list[str]) -> None:
    shape = model.shapes[name]
    _, channels, height, width = shape
    kinds = ["Conv", "Conv", "Conv", "Depthwise", "Relu", "Add", "Concat", "Turn", "Flatten"]
    kinds += ["Slice"] * (channels > 1 and height > 1) + ["Pool"] * (min(height, width) > 1)
    kinds += ["Shuffle", "Grouped"] * (channels % 2 == 0)
    kind = draw(st.sampled_from(kinds))
    if kind in ("Conv", "Depthwise", "Grouped"):
        low, high = draw(st.sampled_from(((0, 0), (1, 1), (0, 1), (1, 2))))
        window = draw(st.sampled_from((1, 3)))
        if min(height, width) + low + high < window:
            low = high = 1
        filters = channels if kind == "Depthwise" else draw(st.sampled_from((2, 4)))
        groups = {"Conv": 1, "Depthwise": channels, "Grouped": 2}[kind]
        weights = model.constant(filters, channels // groups, window, window)
        sizes = [size + low + high - window + 1 for size in (height, width)]
        given = {"pads": [low, low, high, high], "group": groups}
        model.add("Conv", [name, weights, model.constant(filters)], (1, filters, *sizes), **given)
    elif kind in ("Relu", "Add"):
        model.add(kind, [name] if kind == "Relu" else [name, draw(st.sampled_from(alike))], shape)
    elif kind == "Concat":
        axis = draw(st.sampled_from((1, 1, 1, 2)))
        model.add(
            "Concat",
            [name, draw(st.sampled_from(alike))],
            tuple(size * (1 + (dim == axis)) for dim, size in enumerate(shape)),
            axis=axis,
        )
    elif kind == "Turn":
        model.add("Transpose", [name], (1, channels, width, height), perm=[0, 1, 3, 2])
    elif kind == "Flatten":
        model.add("Flatten", [name], (1, channels * height * width))
    elif kind == "Slice":
        axis = draw(st.sampled_from((1, 2)))
        start = draw(st.integers(0, shape[axis] - 1))
        sizes = [*shape]
        sizes[axis] -= start
        given = [model.sizes(start), model.sizes(shape[axis]), model.sizes(axis)]
        model.add("Slice", [name, *given], tuple(sizes))
    elif kind == "Pool":
        op = draw(st.sampled_from(("MaxPool", "AveragePool")))
        model.add(op, [name], (1, channels, height - 1, width - 1), kernel_shape=[2, 2])
    else:
        halves = (1, 2, channels // 2, height, width)
        split = model.add("Reshape", [name, model.sizes(*halves)], halves)
        turned = model.add("Transpose", [split], (1, channels // 2, 2, height, width), perm=[0, 2, 1, 3, 4])
        model.add("Reshape", [turned, model.sizes(*shape)], shape)
        del model.shapes[split], model.shapes[turned]


@given(models())
@settings(max_examples=100, deadline=None)
def test_random_models(model):
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    x = x.astype(np.float32)
    expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
    plan = plan_of(simplified(graph_of(model, "m", {}, "m.onnx")))
    found = run(plan, {"x": x})
    for name, value in zip(plan.graph.outputs, expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4 * np.abs(value).max())


@pytest.mark.parametrize(
    ("op", "gates", "given", "calls"),
    [("LSTM", 4, {}, 6), ("GRU", 3, {"linear_before_reset": 1}, 6), ("GRU", 3, {}, 10)],
)
def test_steps_of_recurrent_networks(op, gates, given, calls):
    """One product is of all inputs; a step with a state is a product of that and one kernel, in GRU two of each."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, gates * 4, 3), "r": (1, gates * 4, 4), "b": (1, 2 * gates * 4)}
    constants = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), name) for name, s in shapes.items()]
    node = helper.make_node(op, ["x", "w", "r", "b"], ["", "h"], hidden_size=4, **given)
    x, h = (helper.make_tensor_value_info(name, 1, shape) for name, shape in {"x": (3, 2, 3), "h": (1, 2, 4)}.items())
    model = helper.make_model(helper.make_graph([node], "m", [x], [h], constants), ir_version=8)
    model.opset_import[0].version = 17
    inputs = {"x": rng.normal(size=(3, 2, 3)).astype(np.float32)}
    expected: Any = ReferenceEvaluator(model).run(None, inputs)
    plan = plan_of(simplified(graph_of(model, "m", {}, "m.onnx")))
    np.testing.assert_allclose(run(plan, inputs)["h"], expected[0], rtol=1e-4, atol=1e-5)
    assert len(plan.calls) == calls


def test_pixels_by_group_are_products_of_matrices() -> None:
    """A 1×1 convolution of groups is a product for each of them; not the first one, whose output has a border."""
    model = Model((1, 4, 3, 5))
    wide = model.add("Conv", ["x", model.constant(8, 2, 1, 1), model.constant(8)], (1, 8, 3, 5), group=2)
    model.add("Conv", [wide, model.constant(8, 4, 1, 1)], (1, 8, 5, 7), group=2, pads=[1, 1, 1, 1])
    plan = plan_of(simplified(graph_of(model.finished(["t1"]), "m", {}, "m.onnx")))
    texts = [call.written.text for call in plan.calls]
    assert [sum(op in one for one in texts) for op in ("Matmul", "GroupedConv")] == [1, 1]
    assert "Matmul(2×35×4×4, (f32, GL, layout[1, 0, 2]), (f32, GL, layout[0, 2, 1], constant)" in texts[-1]


def test_searches_of_a_model_share_four_gibibytes() -> None:
    assert 0 < (default_budget().memory or 0) <= 4 << 30


@pytest.mark.parametrize(("channels", "filters", "op"), [(576, 160, "Matmul"), (2048, 512, "Conv")])
def test_odd_numbers_of_pixels_are_rows_where_a_cache_holds_the_weights(channels: int, filters: int, op: str) -> None:
    """Of 49 rows one is left alone: reading all weights again for it takes long from memory."""
    model = Model((1, channels, 7, 7))
    model.add("Conv", ["x", model.constant(filters, channels, 1, 1)], (1, filters, 7, 7))
    plan = plan_of(simplified(graph_of(model.finished(["t0"]), "m", {}, "m.onnx")))
    assert [op for call in plan.calls for op in ("Matmul", "Conv") if call.written.text.startswith(op)] == [op]
