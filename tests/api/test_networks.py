"""Functions of neural networks equal numpy's, for all layouts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

import morello
from morello.errors import MorelloError
from morello.host import missing_features
from morello.plugins.registry import installed

from .conftest import PLAIN, laid_out, values

#: For calls that types forbid.
ANY: Any = morello
#: The reference implements no graphs. Search is short for small sizes on one thread.
FAST: dict[str, Any] = {"target": "x86_avx2", "progress": False, "threads": 1}


@pytest.fixture
def runs() -> None:
    if missing := missing_features(installed().target("x86_avx2").info.cpu_features):
        pytest.skip(f"this machine lacks {', '.join(missing)}")


@pytest.mark.slow
@settings(max_examples=12)
@given(st.data(), st.sampled_from([(3,), (2, 3), (2, 3, 4)]), st.sampled_from(["erf", "tanh"]), st.booleans())
def test_gelu(data: st.DataObject, shape: tuple[int, ...], form: Any, given_out: bool) -> None:
    x = data.draw(laid_out(shape))
    out = data.draw(laid_out(shape, writes=True)) if given_out else None
    bends = {
        "erf": lambda v: math.erf(v / math.sqrt(2)),
        "tanh": lambda v: math.tanh(0.79788456 * (v + 0.044715 * v**3)),
    }
    made = morello.gelu(x, form, out=out, **PLAIN)
    np.testing.assert_allclose(made, x / 2 * (1 + np.vectorize(bends[form])(x)), atol=1e-5)
    assert made is out or out is None


def convolved(x: np.ndarray, w: np.ndarray, stride: Any, padding: Any, dilation: Any, groups: int) -> np.ndarray:
    """Return the convolution in numpy: windows of the padded image, times filters."""
    (down, right), (top, left), (apart, aside) = (
        each if isinstance(each, tuple) else (each, each) for each in (stride, padding, dilation)
    )
    padded = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)))
    reach = apart * (w.shape[2] - 1) + 1, aside * (w.shape[3] - 1) + 1
    windows = sliding_window_view(padded, reach, (2, 3))[:, :, ::down, ::right, ::apart, ::aside]
    pairs = zip(np.split(windows, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("bchwyx,fcyx->bfhw", *pair) for pair in pairs], 1)


CONVOLUTIONS = [(1, 0, 1, 1), (2, 1, 1, 1), (2, 0, 1, 1), ((2, 1), (0, 1), (1, 2), 1), (1, 1, 1, 2), (3, 1, 1, 4)]


@pytest.mark.slow
@settings(max_examples=12)
@given(st.data(), st.sampled_from(CONVOLUTIONS), st.booleans())
def test_conv2d(data: st.DataObject, parameters: tuple[Any, Any, Any, int], given_out: bool) -> None:
    stride, padding, dilation, groups = parameters
    x, w = data.draw(laid_out((2, 4, 6, 5))), data.draw(laid_out((4, 4 // groups, 3, 2), 1))
    expected = convolved(x, w, stride, padding, dilation, groups)
    out = data.draw(laid_out(expected.shape, writes=True)) if given_out else None
    made = morello.conv2d(x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, out=out, **PLAIN)
    np.testing.assert_array_equal(made, expected)


@pytest.mark.parametrize(("stride", "padding"), [(20, 5), ((20, 1), (5, 0)), (14, 5)])
def test_filters_that_reach_padding_alone(stride: Any, padding: Any) -> None:
    x, w = values(1, 1, 2, 2), values(1, 1, 2, 2, seed=1)
    made = morello.conv2d(x, w, stride=stride, padding=padding, **PLAIN)
    np.testing.assert_array_equal(made, convolved(x, w, stride, padding, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("groups", "layout"), [(1, "nchw"), (2, "nhwc")])
def test_conv2d_with_bias_residual_and_activation(groups: int, layout: str, runs: None) -> None:
    x, w, bias, more = values(1, 4, 5, 5), values(4, 4 // groups, 3, 3, seed=1), values(4, seed=2), values(1, 4, 3, 3)
    expected = convolved(np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), w, 2, 0, 1, groups) + bias[:, None, None]
    if layout == "nhwc":
        x, more, expected = (one.transpose(0, 2, 3, 1) for one in (x, more, expected))
    options: dict[str, Any] = {"stride": 2, "padding": "same", "groups": groups, "layout": layout, **FAST}
    np.testing.assert_allclose(morello.conv2d(x, w, bias, **options), expected, atol=1e-4)
    made = morello.conv2d(x, w, bias, residual=more, activation="relu6", **options)
    np.testing.assert_allclose(made, np.clip(expected + more, 0, 6), atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
def test_conv2d_of_channels_last(groups: int) -> None:
    def last(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))

    x, w = values(2, 4, 7, 5), values(6, 4 // groups, 3, 3, seed=1)
    options: dict[str, Any] = {"stride": 2, "padding": 1, "groups": groups, "layout": "nhwc", **PLAIN}
    made, expected = morello.conv2d(last(x), w, **options), last(convolved(x, w, 2, 1, 1, groups))
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, expected)
    out = np.zeros((*expected.shape[:3], 12), np.float32)[..., ::2]
    assert morello.conv2d(last(x)[:, ::-1], w, out=out, **options) is out
    np.testing.assert_array_equal(out, last(convolved(x[:, :, ::-1], w, 2, 1, 1, groups)))


def test_padding_in_words() -> None:
    x, w = values(1, 1, 4, 5), values(1, 1, 2, 4, seed=1)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 1), (1, 2)))
    np.testing.assert_array_equal(morello.conv2d(x, w, padding="same", **PLAIN), convolved(padded, w, 1, 0, 1, 1))
    np.testing.assert_array_equal(morello.conv2d(x, w, padding="VALID", **PLAIN), convolved(x, w, 1, 0, 1, 1))
    np.testing.assert_array_equal(
        morello.conv2d(x, w, stride=[1, 1], layout="NCHW", **PLAIN), convolved(x, w, 1, 0, 1, 1)
    )


@pytest.mark.slow
def test_layer_norm(runs: None) -> None:
    x, gamma, beta = values(2, 4, seed=1), values(4, seed=2), values(4, seed=3)
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-3) * gamma + beta
    for _ in range(2):
        np.testing.assert_allclose(morello.layer_norm(x, gamma, beta, 1e-3, **FAST), expected, atol=1e-4)
    np.testing.assert_allclose(morello.layer_norm(x[:, None], gamma, beta, 1e-3, **FAST)[:, 0], expected, atol=1e-4)


@pytest.mark.slow
def test_attention(runs: None) -> None:
    q, k, v = (values(2, 2, 4, seed=seed) / 4 for seed in range(3))
    powers = np.exp(q @ k.swapaxes(1, 2) / 2)
    expected = powers / powers.sum(-1, keepdims=True) @ v
    out = np.zeros((2, 2, 4), np.float32)
    for _ in range(2):
        assert morello.attention(q, k, v, out=out, **FAST) is out
        np.testing.assert_allclose(out, expected, atol=1e-5)
        np.testing.assert_allclose(
            morello.attention(q[:, None], k[:, None], v[:, None], **FAST), expected[:, None], atol=1e-5
        )


@pytest.mark.slow
def test_attention_copies_a_scattered_batch(runs: None) -> None:
    q, k, v = (values(2, 1, 2, 2, seed=seed).transpose(0, 2, 1, 3) / 4 for seed in range(3))
    assert np.array_equal(morello.attention(q, k, v, **FAST), morello.attention(*map(np.copy, (q, k, v)), **FAST))


def test_axes_of_size_0() -> None:
    x = values(2, 0, 4)
    for made in (
        morello.softmax(x, **PLAIN),
        morello.gelu(x, **PLAIN),
        morello.layer_norm(x, values(4), values(4), **PLAIN),
        morello.attention(x, values(2, 3, 4), values(2, 3, 4), **PLAIN),
    ):
        assert made.shape == x.shape
    assert np.array_equal(morello.attention(values(2, 4), values(0, 4), values(0, 3), **PLAIN), np.zeros((2, 3)))
    assert morello.conv2d(values(0, 1, 3, 3), values(2, 1, 2, 2), **PLAIN).shape == (0, 2, 2, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ANY.gelu(x, "erg"), "form is 'erg'"),
        (lambda x: ANY.gelu(x.astype(np.int32)), "for floats"),
        (lambda x: ANY.softmax(x, [0]), "unhashable"),
        (lambda x: [ANY.softmax(x, axis, **PLAIN) for axis in (1, 1.0)], "axis is 1.0"),
        (lambda x: ANY.layer_norm(x, x[0], x[:, 0]), r"beta has shape \(2,\), x \(2, 4\)"),
        (lambda x: ANY.layer_norm(x, x[0], x[0], -1), "eps is -1"),
        (lambda x: ANY.conv2d(x, x), "b×c×H×W"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], stride=0), "stride is 0"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], padding=(1, 2, 3)), "padding is"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], padding="full"), "padding is 'full'"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], activation="rely"), "activation is 'rely'"),
        (lambda x: ANY.conv2d(x, x, layout="nhwc"), "b×H×W×c"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], layout="chwn"), "layout is 'chwn'"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], x), r"bias has shape \(2, 4\)"),
        (lambda x: ANY.conv2d(x[None, None, :1], x[None, None]), "leave no output"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], dilation=2), "filters over 3×7 pixels leave no output"),
        (lambda x: ANY.conv2d(None, x[None, None]), "got NoneType"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None], groups=2), "1 channels of x"),
        (lambda x: ANY.attention(x, x, x[:1]), "with one batch for all"),
        (lambda x: ANY.attention(x, x, x, scale="d"), "scale is 'd'"),
        (
            lambda x: ANY.attention(*[x[None, None].repeat(3, 0).repeat(2, 1)[:, :, ::2][::-1]] * 3, copy=False),
            "no single stride",
        ),
        (lambda x: ANY.attention(x[:, :0], x[:, :0], x), "at least one value"),
        (lambda x: ANY.conv2d(x[None, None], x[None, None, :0]), "at least one row and column"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(call: Any, message: str) -> None:
    with pytest.raises(MorelloError, match=message) as caught:
        call(values(2, 4))
    assert caught.value.hint


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    x, w = torch.tensor(values(1, 4, 6, 6)), torch.tensor(values(4, 2, 3, 3, seed=1))
    for images in (x, x.to(memory_format=torch.channels_last)):
        made = morello.conv2d(images, w, stride=2, padding=1, groups=2, **PLAIN)
        assert torch.equal(made, torch.conv2d(images, w, stride=2, padding=1, groups=2))
    made = morello.conv2d(x.permute(0, 2, 3, 1), w, stride=2, padding=1, groups=2, layout="nhwc", **PLAIN)
    assert torch.equal(made, torch.conv2d(x, w, stride=2, padding=1, groups=2).permute(0, 2, 3, 1))
    assert isinstance(morello.gelu(x, **PLAIN), torch.Tensor)
