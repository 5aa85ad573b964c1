"""The reference semantics of graphs equal those of ONNX, before and after passes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from morello.models.onnx import graph_of
from morello.models.passes import simplified
from morello.models.reference import evaluated

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
m (float[1, 3, 6, 6] x, float[4, 3, 3, 3] w, float[4] b) =>
(float[1, 4, 4] y, float[1, 8, 3, 3] z, float[1, 3, 6, 6] x2) {
    a = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)
    r = Relu(a)
    z = Concat<axis = 1>(r, a)
    shape = Constant<value = int64[3] {1, 4, 9}>()
    flat = Reshape(r, shape)
    turned = Transpose<perm = [0, 2, 1]>(flat)
    scores = MatMul(flat, turned)
    y = Softmax<axis = -1>(scores)
    x2 = Identity(x)
}
"""


def test_as_onnx_before_and_after_passes():
    model = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 3, 6, 6), "w": (4, 3, 3, 3), "b": (4,)}
    given = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    expected = dict(zip("y z x2".split(), ReferenceEvaluator(model).run(None, given), strict=True))
    graph = graph_of(model, "m", {}, "m.onnx")
    for one in (graph, simplified(graph)):
        found = evaluated(one, given)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], np.asarray(value), rtol=1e-4, atol=1e-5)


def case(body: str, inputs: Mapping[str, str], result: str = "float[d] y", opset: int = 21):
    """Return a model of nodes, with the types of its inputs; `w` are those of a constant."""
    constants = {name: kind for name, kind in inputs.items() if name.startswith("w")}
    given = ", ".join(f"{kind} {name}" for name, kind in inputs.items() if name not in constants)
    text = f'<ir_version: 10, opset_import: ["" : {opset}]>\nm ({given}) => ({result}) {{\n{body}\n}}'
    return pytest.param(text, constants, id=body.partition("\n")[0][:40])


GRU = 'y, h = GRU<hidden_size = 4, linear_before_reset = 1>(x, w, w2, "", "", h0)'
STATE = {"x": "float[3, 2, 5]", "h0": "float[1, 2, 4]", "w": "float[1, 12, 5]", "w2": "float[1, 12, 4]"}
QUANTIZE = "s = Abs(w)\nq = QuantizeLinear<axis = 1>(x, s)\ny = Cast<to = 1>(q)"
QLINEAR = """i = Constant<value_float = 0.5>()
z = Constant<value = uint8 {7}>()
n = Constant<value = int8 {0}>()
s = Abs(w2)
q = QLinearConv(x, i, z, w, s, n, i, z)
y = Cast<to = 1>(q)"""
GROUPS = "g = GroupNormalization<num_groups = 2>(x, w, w2)\ny = Relu(g)"
TABLES = {"x": "float[1, 2, 4, 8]", "w": "float[1, 4, 4]", "w2": "float[1, 4, 4]"}
SMALL = "c = Constant<value_float = 1e-39>()\na = Mul(x, c)\nb = Div(a, c)\ny = MatMul(b, w)"
HEADS = {"q": "float[1, 4, 2, 4]", "k": "float[1, 2, 2, 4]", "v": "float[1, 2, 2, 4]"}
PAST = {"pk": "float[1, 2, 3, 4]", "pv": "float[1, 2, 3, 4]"}


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        # As many channels as columns.
        case("y = PRelu(x, w)", {"x": "float[1, 4, 3, 4]", "w": "float[4]"}),
        case("y = PRelu(x, w)", {"x": "float[1, 4, 3, 5]", "w": "float[4, 1, 1]"}),
        case('y = Einsum<equation = "...ij,...jk->...ik">(x, z)', {"x": "float[1, 2, 3]", "z": "float[4, 3, 5]"}),
        case(GRU, STATE, "float[d] y, float[e] h"),
        case(QUANTIZE, {"x": "float[1, 4, 3]", "w": "float[4]"}),
        case(QLINEAR, {"x": "uint8[1, 2, 3, 3]", "w": "int8[4, 2, 1, 1]", "w2": "float[4]"}),
        # ONNX infers no shape, and constants are inputs of a body.
        case(GROUPS, {"x": "float[1, 4, 3]", "w": "float[4]", "w2": "float[4]"}),
        case("l, m, d = LayerNormalization(x, w)\ny = Mul(l, d)", {"x": "float[2, 3, 5]", "w": "float[5]"}),
        case("y = RotaryEmbedding(x, w, w2)", TABLES, opset=23),
        case("y = Attention<is_causal = 1>(q, k, v)", HEADS, opset=23),
        case('y, nk, nv = Attention(q, k, v, "", pk, pv)', HEADS | PAST, "float[d] y, float[e] nk, float[f] nv", 23),
        # Numbers that are not finite, and inverses that are not.
        case(SMALL, {"x": "float[2, 3]", "w": "float[3, 2]"}),
        case("c = Constant<value_float = -inf>()\ny = Max(x, c)", {"x": "float[2, 3]"}),
        case("c = Constant<value_float = inf>()\ny = Add(x, c)", {"x": "float[2, 3]"}),
    ],
)
def test_nodes(text: str, constants: dict[str, str]):
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)

    def drawn(kind: str) -> np.ndarray:
        dtype, _, shape = kind.removesuffix("]").partition("[")
        value = 3 * rng.standard_normal([*map(int, shape.split(", "))])
        return value.astype({"float": np.float32}.get(dtype, dtype))

    for name, kind in constants.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(drawn(kind), name))
    given = {
        one.name: drawn(f"{name}[{', '.join(str(dim.dim_value) for dim in one.type.tensor_type.shape.dim)}]")
        for one in model.graph.input
        for name in [onnx.helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type).name]
    }
    expected = ReferenceEvaluator(model).run(None, given)
    for one, value in zip(model.graph.output, expected, strict=True):
        one.CopyFrom(onnx.helper.make_tensor_value_info(one.name, onnx.TensorProto.FLOAT, np.shape(value)))
    graph = graph_of(model, "m", {}, "m.onnx")
    with np.errstate(invalid="ignore"):
        for stage in (graph, simplified(graph)):
            found = evaluated(stage, given)
            for name, value in zip(graph.outputs, expected, strict=True):
                np.testing.assert_allclose(found[name], np.asarray(value), rtol=1e-4, atol=1e-5)
