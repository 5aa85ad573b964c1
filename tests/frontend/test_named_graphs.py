"""Named graphs, such as LayerNorm: alone and inside a Compose they are the graphs that they abbreviate."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import parse_signed, parse_spec
from morello.ir.dtypes import F32
from morello.kernels.target import Target

Arrays = Sequence[np.ndarray]


@attrs.frozen
class Named:
    """A named graph on b×m×n: its equations, of `out` and inputs `a`, `b`, ..., and its meaning in numpy.

    Those of graphs on more dimensions are empty.

    `shapes` are those of its inputs, in terms of (b, m, n), and of the output.
    """

    text: str
    equations: str
    shapes: Callable[[int, int, int], list[tuple[int, ...]]]
    meaning: Callable[..., np.ndarray]


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 0.5) * gamma + beta


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.exp(q @ k / np.sqrt(q.shape[-1]))
    return scores / scores.sum(-1, keepdims=True) @ v


def windows(x: np.ndarray) -> np.ndarray:
    """Return the sums of windows of 4 channels: the two before, the channel itself and the one after."""
    padded = np.pad(x, ((0, 0), (0, 0), (2, 1), (0, 0)))
    return sum((padded[:, :, at : at + x.shape[2]] for at in range(4)), np.zeros(()))


GRAPHS = {
    "LayerNorm": Named(
        "LayerNorm[eps=0.5]",
        "out = Add[over=[0, 1]](s, c), s = Mul[over=[0, 1]](n, b), n = Mul[over=[2]](d, r), r = Rsqrt(h), "
        "h = Shift[by=0.5](v), v = Mean(q), q = Mul(d, d), d = Sub[over=[2]](a, u), u = Mean(a)",
        lambda b, m, n: [(b, m, n), (1, 1, n), (1, 1, n), (b, m, n)],
        layer_norm,
    ),
    "RMSNorm": Named(
        "RMSNorm[eps=0.25]",
        "out = Mul[over=[0, 1]](n, b), n = Mul[over=[2]](a, r), r = Rsqrt(h), h = Shift[by=0.25](v), v = Mean(q), "
        "q = Mul(a, a)",
        lambda b, m, n: [(b, m, n), (1, 1, n), (b, m, n)],
        lambda x, gamma: x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.25) * gamma,
    ),
    "InstanceNorm": Named(
        "InstanceNorm[eps=0.5]",
        "out = Add[over=[0, 2]](s, c), s = Mul[over=[0, 2]](n, b), n = Mul[over=[2]](d, r), r = Rsqrt(h), "
        "h = Shift[by=0.5](v), v = Mean(q), q = Mul(d, d), d = Sub[over=[2]](a, u), u = Mean(a)",
        lambda b, m, n: [(b, m, n), (1, m, 1), (1, m, 1), (b, m, n)],
        layer_norm,
    ),
    "GroupNorm": Named(
        "GroupNorm[eps=0.5]",
        "out = Add[over=[0]](s, c), s = Mul[over=[0]](n, b), n = Mul[over=[2]](d, r), r = Rsqrt(h), "
        "h = Shift[by=0.5](v), v = Mean(q), q = Mul(d, d), d = Sub[over=[2]](a, u), u = Mean(a)",
        lambda b, m, n: [(b, m, n), (1, m, n), (1, m, n), (b, m, n)],
        layer_norm,
    ),
    "BatchNorm": Named(
        "BatchNorm[eps=0.5]",
        "out = Add[over=[0, 2]](s, c), s = Mul[over=[0, 2]](d, f), f = Mul(r, b), r = Rsqrt(h), h = Shift[by=0.5](e), "
        "d = Sub[over=[0, 2]](a, u)",
        lambda b, m, n: [(b, m, n), *[(1, m, 1)] * 4, (b, m, n)],
        lambda x, gamma, beta, mean, variance: (x - mean) / np.sqrt(variance + 0.5) * gamma + beta,
    ),
    "L2Normalize": Named(
        "L2Normalize[dim=1, eps=0.5]",
        "out = Mul[over=[1]](a, r), r = Rsqrt(h), h = Shift[by=0.5](v), v = Sum[dim=1](q), q = Mul(a, a)",
        lambda b, m, n: [(b, m, n), (b, m, n)],
        lambda x: x / np.sqrt((x**2).sum(1, keepdims=True) + 0.5),
    ),
    "LogSoftmax": Named(
        "LogSoftmax[dim=1]",
        "out = Sub[over=[1]](d, l), l = Log(t), t = Sum[dim=1](p), p = Exp(d), d = Sub[over=[1]](a, m), "
        "m = Max[dim=1](a)",
        lambda b, m, n: [(b, m, n), (b, m, n)],
        lambda x: x - np.log(np.exp(x).sum(1, keepdims=True)),
    ),
    "LocalResponseNorm": Named(
        "LocalResponseNorm[size=4, alpha=0.5, beta=0.75, k=2]",
        "",
        lambda b, m, n: [(1, b, m, n), (1, b, m, n)],
        lambda x: x / (2 + 0.5 / 4 * windows(x**2)) ** 0.75,
    ),
    "L1Norm": Named(
        "L1Norm",
        "out = Sum(p), p = Abs(a)",
        lambda b, m, n: [(b, m, n), (b, m, 1)],
        lambda x: np.abs(x).sum(-1, keepdims=True),
    ),
    "L2Norm": Named(
        "L2Norm[dim=[0, 1]]",
        "out = Sqrt(v), v = Sum[dim=[0, 1]](q), q = Mul(a, a)",
        lambda b, m, n: [(b, m, n), (1, 1, n)],
        lambda x: np.sqrt((x**2).sum((0, 1), keepdims=True)),
    ),
    "LogSumExp": Named(
        "LogSumExp[dim=1]",
        "out = Add(l, m), l = Log(t), t = Sum[dim=1](p), p = Exp(d), d = Sub[over=[1]](a, m), m = Max[dim=1](a)",
        lambda b, m, n: [(b, m, n), (b, 1, n)],
        lambda x: np.log(np.exp(x).sum(1, keepdims=True)),
    ),
    "Attention": Named(
        "Attention[scale=0.5]",
        "out = Matmul(p, c), p = Softmax(s), s = Scale[by=0.5](h), h = Matmul(a, b)",
        lambda b, m, n: [(b, m, 4), (b, 4, 3), (b, 3, n), (b, m, n)],
        attention,
    ),
}


def spelled(named: Named, out: str, inputs: Sequence[str], prefix: str) -> str:
    """The equations of a graph, with names that nothing else has."""
    names = {"out": out, **dict(zip("abcue", inputs, strict=False))}
    words = named.equations.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split(" ")
    return " ".join(names.get(word, prefix + word if len(word) == 1 and word.isalpha() else word) for word in words)


@given(seed=st.integers(0, 10**6))
def test_a_named_graph_is_its_equations(seed: int, avx2: Target) -> None:
    """In a random sequence of graphs and Relu, each on the output of the one before it."""
    rng = random.Random(seed)
    b, m, n = rng.randint(1, 2), rng.randint(1, 4), rng.randint(1, 4)
    short: list[str] = []
    long: list[str] = []
    operands: dict[str, tuple[int, ...]] = {"x0": (b, m, n)}
    for number in range(rng.randint(2, 4)):
        inputs, out = [f"x{number}"], f"x{number + 1}"
        kind = rng.choice(["Relu", *(each for each, one in GRAPHS.items() if one.equations)])
        if kind == "Relu":
            short.append(f"{out} = Relu({inputs[0]})")
            long.append(short[-1])
            continue
        named = GRAPHS[kind]
        others = named.shapes(b, m, n)[1:-1]
        if kind == "Attention":
            others = [(b, n, 3), (b, 3, n)]
        b, m, n = named.shapes(b, m, n)[-1]
        for at, shape in enumerate(others):
            inputs.append(f"w{number}_{at}")
            operands[inputs[-1]] = shape
        short.append(f"{out} = {named.text}({', '.join(inputs)})")
        long.append(spelled(named, out, inputs, f"t{number}"))
    operands[f"x{len(short)}"] = (b, m, n)
    listed = ", ".join(f"{name}: ({'×'.join(map(str, shape))}, GL)" for name, shape in operands.items())
    one, other = (
        parse_signed(f"Compose([{', '.join(reversed(equations))}], [{listed}])", avx2) for equations in (short, long)
    )
    assert one == other
    assert parse_spec(str(one[0]), avx2) == one[0]


@pytest.mark.parametrize("name", GRAPHS)
def test_its_meaning(name: str, avx2: Target) -> None:
    named, rng = GRAPHS[name], np.random.default_rng(0)
    shapes = named.shapes(2, 3, 8)
    dims = (2, 3, 3, 8, 4) if name == "Attention" else shapes[0]
    spec, signature = parse_signed(f"{named.text}({'×'.join(map(str, dims))}{', GL' * len(shapes)})", avx2)
    assert signature is not None
    logical = spec.logical
    assert [logical.operand(at).shape for at in signature.operands] == shapes
    inputs = [rng.uniform(0.1, 1.0, shape) for shape in shapes[:-1]]
    ordered = signature.in_spec_order([*inputs, np.zeros(0)])[:-1]
    (made,) = logical.op.evaluate(tuple(map(int, logical.shape)), ordered, [F32] * len(shapes))
    np.testing.assert_allclose(made, named.meaning(*inputs), rtol=1e-6, atol=1e-9)


def test_groups_of_images(avx2: Target) -> None:
    shape, rng = (2, 3, 2, 4, 5), np.random.default_rng(0)
    x, gamma, beta = rng.normal(size=shape), *rng.normal(size=(2, 1, 3, 2, 1, 1))
    spec, signature = parse_signed("GroupNorm[eps=0.5](2×3×2×4×5, GL, GL, GL, GL)", avx2)
    assert signature is not None
    (made,) = spec.op.evaluate(shape, signature.in_spec_order([x, gamma, beta, x])[:3], [F32] * 4)
    mean, variance = x.mean((2, 3, 4), keepdims=True), x.var((2, 3, 4), keepdims=True)
    np.testing.assert_allclose(made, (x - mean) / np.sqrt(variance + 0.5) * gamma + beta)


def test_rotary_has_two_outputs(avx2: Target) -> None:
    spec, signature = parse_signed("Rotary(2×3×4, GL, GL, GL, GL, GL, GL)", avx2)
    assert signature is not None
    assert signature.names == ("x0", "x1", "cos", "sin", "y0", "y1")
    assert parse_spec(str(spec), avx2) == spec
    assert spec.op.untiled(3) == ()
    angle, rng = np.linspace(0, 3, 12).reshape(1, 3, 4), np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4)) + 1j * rng.normal(size=(2, 3, 4))
    values = [x.real, x.imag, np.cos(angle), np.sin(angle), x.real, x.imag]
    made = spec.op.evaluate((2, 3, 4), signature.in_spec_order(values)[:4], [F32] * 6)
    turned = x * np.exp(1j * angle)
    np.testing.assert_allclose(made, [turned.real, turned.imag])
    long = (
        "Compose([r = Add(a, b), a = Mul[over=[0]](q, c), b = Mul[over=[0]](p, s), l = Sub(d, e), "
        "d = Mul[over=[0]](p, c), e = Mul[over=[0]](q, s)], [p: (2×3×4, GL), q: (2×3×4, GL), c: (1×3×4, GL), "
        "s: (1×3×4, GL), l: (2×3×4, GL), r: (2×3×4, GL)])"
    )
    assert parse_spec(long, avx2) == spec


def test_a_chain_lists_other_inputs_in_order(avx2: Target) -> None:
    spec, signature = parse_signed(
        "Compose([RMSNorm, Attention], [(1×1×8, GL), (1×2×4, GL), (1×4×3, GL), (1×3×8, GL), (1×2×8, GL)])", avx2
    )
    assert signature is not None
    assert signature.names == ("gamma0", "q1", "k1", "v1", "out")
    assert [spec.logical.operand(at).shape for at in signature.operands][:2] == [(1, 1, 8), (1, 2, 4)]
    assert "Scale[by=0.5]" in str(spec)


def test_attention_with_masks(avx2: Target) -> None:
    """A mask is added, and repeated as numpy does; positions are those of CausalMask."""
    operands = (
        "[q: (2×3×4, GL), k: (2×4×5, GL), v: (2×5×4, GL), m: (1×1×5, GL), r: (2×3×1, i32, GL), c: (1×1×5, i32, GL), "
        "y: (2×3×4, GL)])"
    )
    text = "Compose([y = Attention[mask, causal, window=2](q, k, v, m, r, c)], "
    long = (
        "Compose([y = Matmul(p, v), p = Softmax(x), x = CausalMask[window=2](a, r, c), a = Add[over=[0, 1]](s, m), "
        "s = Scale[by=0.5](h), h = Matmul(q, k)], "
    )
    assert parse_signed(text + operands, avx2) == parse_signed(long + operands, avx2)
    spec, signature = parse_signed("Attention[causal](2×3×5×4×4, GL, GL, GL, (i32, GL), (i32, GL), GL)", avx2)
    assert signature is not None
    assert signature.names == ("q", "k", "v", "rows", "columns", "out")
    assert [spec.logical.operand(at).shape for at in signature.operands][3:5] == [(2, 3, 1), (1, 1, 5)]
    wrongs = (("window=2", "not causal"), ("causal=2", "causal is true"), ("causal, window=0", "keys"))
    for wrong, message in (*wrongs, ("over=[0]", "over is for a mask")):
        with pytest.raises(SourceError, match=message):
            parse_spec(f"Attention[{wrong}](1×3×5×4×4, GL, GL, GL, GL, GL, GL)", avx2)
