"""Passes make graphs of fewer nodes that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import onnx.parser
import pytest

from morello.models.graph import Graph, Node
from morello.models.onnx import graph_of
from morello.models.passes import PASSES, fuse
from morello.models.reference import evaluated


def graph_with(body: str, head: str = "float[2, 3, 8] x", outputs: str = "float[2, 3, 8] y") -> Graph:
    """Return the graph of a model in ONNX's text, whose constants are written as `float {0.5}`."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> m ({head}) => ({outputs}) {{ {body} }}'
    return graph_of(onnx.parser.parse_model(text), "m", {}, "m.onnx")


def constants(**values: float | Sequence[float]) -> str:
    """Return nodes that make constants."""
    lines = []
    for name, value in values.items():
        listed = [value] if isinstance(value, int | float) else [*value]
        dims = f"[{len(listed)}]" if not isinstance(value, int | float) else ""
        lines.append(f"{name} = Constant<value = float{dims} {{{', '.join(map(str, listed))}}}>()\n")
    return "".join(lines)


def passed(graph: Graph, passes: Sequence[Callable[[Graph], Graph]] = PASSES[: PASSES.index(fuse)]) -> list[str]:
    """Return the operations after passes, those before steps by default, and compare what they compute."""
    made = graph
    for one in passes:
        made = one(made)
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(graph.tensors[name].shape).astype(np.float32) for name in graph.inputs}
    found, expected = evaluated(made, inputs), evaluated(graph, inputs)
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)
    return [part.op for part in made.parts if isinstance(part, Node)]


def test_constants_one_after_another():
    given = constants(a=[1, 2, 3, 4, 5, 6, 7, 8], b=0.5, c=4, d=[1, 0, 1, 0, 1, 0, 1, 0])
    chain = "p = Mul(x, a) q = Sub(b, p) r = Div(q, c) s = Add(d, r) t = Neg(s) y = Relu(t)"
    assert passed(graph_with(given + chain)) == ["Mul", "Add", "Relu"]
    assert passed(graph_with(constants(b=0.5, c=2) + "p = Mul(x, b) q = Div(p, c) y = Add(q, b)")) == ["Scale", "Shift"]
    assert passed(graph_with(constants(b=0.5, c=2) + "p = Mul(x, b) y = Mul(p, c)")) == []
    assert passed(graph_with(constants(b=0.5) + "p = Mul(x, b) q = Add(p, b) y = Add(p, q)")) == [
        "Scale",
        "Shift",
        "Add",
    ]


def test_the_same_twice():
    assert passed(graph_with("p = Exp(x) q = Exp(x) r = Relu(p) s = Relu(q) y = Add(r, s)")) == ["Exp", "Relu", "Add"]


ERF = constants(half=0.5, one=1, root=2**0.5) + "d = Div(x, root) e = Erf(d) f = Add(e, one)\n"
TANH = (
    constants(half=0.5, one=1, a=0.044715, b=0.7978845608) + "g = Add(x, w) h = Mul(g, b) e = Tanh(h) f = Add(e, one)\n"
)


@pytest.mark.parametrize(
    ("word", "body"),
    [
        ("Gelu", ERF + "g = Mul(x, f) y = Mul(g, half)"),
        ("Gelu", ERF + "g = Mul(x, half) y = Mul(g, f)"),
        ("Gelu", ERF + "g = Mul(half, f) y = Mul(g, x)"),
        ("Gelu", constants(three=3) + "v = Pow(x, three) w = Mul(a, v)" + TANH + "i = Mul(half, x) y = Mul(i, f)"),
        ("Gelu", "u = Mul(x, x) v = Mul(u, x) w = Mul(v, a)" + TANH + "i = Mul(f, half) y = Mul(x, i)"),
        ("Silu", "s = Sigmoid(x) y = Mul(x, s)"),
        ("HardSwish", "s = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(s, x)"),
        (
            "HardSwish",
            constants(three=3, six=6, zero=0)
            + "s = Add(x, three) c = Clip(s, zero, six) d = Div(c, six) y = Mul(d, x)",
        ),
    ],
)
def test_functions_that_are_spelled_out(word, body):
    # Constants first.
    lines = body.replace(")", ")\n").splitlines()
    ordered = sorted(lines, key=lambda line: "Constant" not in line)
    assert passed(graph_with("\n".join(ordered))) == [word]


def test_products_that_are_no_function():
    assert passed(graph_with("s = Sigmoid(x) t = Mul(s, x) y = Mul(t, s)")) == ["Sigmoid", "Silu", "Mul"]
    assert passed(graph_with(constants(a=1.7) + "p = Mul(x, a) s = Sigmoid(p) y = Mul(x, s)")) == [
        "Scale",
        "Sigmoid",
        "Mul",
    ]


OF_NORM = constants(eps=1e-5, one=1, two=2, g=range(8), b=range(1, 9))
CENTRED = "m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) s = Pow(d, two) v = ReduceMean<axes = [-1]>(s)"


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["LayerNorm"], CENTRED + "w = Add(v, eps) r = Sqrt(w) n = Div(d, r) p = Mul(n, g) y = Add(p, b)"),
        (["LayerNorm"], CENTRED + "w = Add(v, eps) r = Sqrt(w) y = Div(d, r)"),
        (
            ["RMSNorm"],
            "s = Mul(x, x) v = ReduceMean<axes = [2]>(s) w = Add(v, eps) q = Sqrt(w) r = Div(one, q)"
            "n = Mul(x, r) y = Mul(n, g)",
        ),
        (["RMSNorm"], "s = Mul(x, x) v = ReduceMean<axes = [2]>(s) w = Add(v, eps) q = Sqrt(w) y = Div(x, q)"),
        (
            ["Mean", "Sub", "Mul", "Mean", "Shift", "Sqrt", "Div"],
            "m = ReduceMean<axes = [1]>(x) d = Sub(x, m) s = Mul(d, d) v = ReduceMean<axes = [1]>(s)"
            "w = Add(v, eps) r = Sqrt(w) y = Div(d, r)",
        ),
    ],
)
def test_norms_that_are_spelled_out(words, body):
    assert passed(graph_with(OF_NORM + body)) == words


def test_numbers_before_a_product():
    chain = "t = Transpose<perm = [0, 2, 1]>(x) q = Mul(x, a) k = Mul(a, t) p = MatMul(q, k) y = Mul(p, b)"
    body = constants(a=0.5, b=3) + chain
    assert passed(graph_with(body, outputs="float[2, 3, 3] y")) == ["Matmul", "Scale"]


def test_f16_is_scaled_before_a_product_whose_sums_would_be_infinite():
    kinds = {"head": "float16[4, 8] x, float16[8, 4] z", "outputs": "float16[4, 4] y"}
    body = constants(a=0.125) + "c = Cast<to = 10>(a) p = Mul(x, c) q = Mul(z, c) y = MatMul(p, q)"
    assert passed(graph_with(body, **kinds)) == ["Scale", "Scale", "Matmul"]


def test_products_of_one_tensor():
    given = "".join(constants(**{name: np.random.default_rng(ord(name)).random(32).tolist()}) for name in "abc")
    shapes = "s = Constant<value = int64[2] {8, 4}>() t = Constant<value = int64[4] {2, 3, 2, 2}>()"
    weights = "".join(f"w{name} = Reshape({name}, s)\n" for name in "abc")
    products = "q = MatMul(x, wa) k = MatMul(x, wb) v = MatMul(x, wc) qb = Add(q, d) kb = Add(e, k)\n"
    heads = "".join(f"{name}h = Reshape({name}, t)\n" for name in ("qb", "kb", "v"))
    body = given + constants(d=range(4), e=range(4, 8)) + shapes + weights + products + heads
    heads_y = body + "r = Mul(qbh, kbh) y = Add(r, vh)"
    assert passed(graph_with(heads_y, outputs="float[2, 3, 2, 2] y")) == ["Matmul", "Add", "Mul", "Add"]
    # Each of these is computed with the function after it.
    apart = body + "r = Relu(qb) u = Tanh(kb) y = Mul(r, u)"
    ops = passed(graph_with(apart, outputs="float[2, 3, 4] y"))
    assert ops == ["Matmul", "Matmul", "Add", "Add", "Relu", "Tanh", "Mul"]
    # An output of the model is no view of the joined product.
    assert passed(graph_with(heads_y, outputs="float[2, 3, 2, 2] y, float[2, 3, 4] q")).count("Matmul") == 2
