"""Functions on arrays that compile the kernel they need: matmul, einsum, softmax and others.

The first call for arrays of some shapes, types and layouts compiles a kernel, which later calls use. The default
database stores the results of searches and the cache stores libraries, so that other processes need not repeat either.
Arrays may be of any library, as for `Kernel`, or lists. They are copied only if no kernel takes them in place. Results
are new row-major arrays of the first array's library, or `out`. Functions may be called from several threads.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, Unpack

import numpy as np

from morello.api.functions.attention_plan import attention_arrays, check_is_causal, plan_attention
from morello.api.functions.calls import Function, FunctionOptions, FunctionPlan, call
from morello.api.functions.conversion import from_lists
from morello.api.functions.convolutions import plan_conv2d
from morello.api.functions.networks import plan_gelu, plan_layer_norm, plan_softmax
from morello.api.functions.products import plan_product
from morello.api.functions.quantized import plan_qmatmul, quantize_weights
from morello.errors import ArgumentError

__all__ = [
    "FunctionOptions",
    "attention",
    "conv2d",
    "einsum",
    "gelu",
    "layer_norm",
    "matmul",
    "qmatmul",
    "quantize_weights",
    "softmax",
]

Sizes = int | tuple[int, int] | list[int]


class SoftmaxOptions(FunctionOptions, total=False):
    """`dim` is torch's name of `axis`."""

    dim: int


class GeluOptions(FunctionOptions, total=False):
    """`approximate` is torch's name of `form`."""

    approximate: Literal["none", "tanh"]


class AttentionOptions(FunctionOptions, total=False):
    """Options of torch: `attn_mask` is `mask`, `is_causal` is `causal` for as many rows as keys."""

    attn_mask: Any
    enable_gqa: bool
    dropout_p: Literal[0]
    is_causal: bool


def einsum(expression: str, /, *arrays: Any, out: Any = None, **options: Unpack[FunctionOptions]) -> Any:
    """Return the product of two arrays by an expression such as `bmk,bkn->bmn`, as numpy's `einsum` does.

    It is a product of matrices, a batch of them, or an elementwise product; axes of size 1 are broadcast. Raises
    ArgumentError for another expression.
    """
    return call(_EINSUM, (expression,), arrays, out, options)


def matmul(a: Any, b: Any, *, out: Any = None, **options: Unpack[FunctionOptions]) -> Any:
    """Return the product a · b of matrices …×m×k and …×k×n, as numpy's `matmul` does; a vector is a row or a column.

    Axes before the last two are a batch; where one operand lacks them, or has size 1 there, it is the same for all of
    the batch. Raises ArgumentError for shapes that do not fit.
    """
    return call(_MATMUL, (), (a, b), out, options)


def softmax(x: Any, axis: int = -1, *, out: Any = None, **options: Unpack[SoftmaxOptions]) -> Any:
    """Return e^(x − max) / Σ e^(x − max) along an axis, of floats."""
    return call(_SOFTMAX, (axis,), (x,), out, options)


def gelu(x: Any, form: Literal["erf", "tanh"] = "erf", *, out: Any = None, **options: Unpack[GeluOptions]) -> Any:
    """Return x/2 · (1 + erf(x/√2)) of floats, or its approximation by tanh."""
    return call(_GELU, (form,), (x,), out, options)


def layer_norm(
    x: Any, gamma: Any, beta: Any, eps: float = 1e-5, *, out: Any = None, **options: Unpack[FunctionOptions]
) -> Any:
    """Return (x − mean) / √(variance + eps) · gamma + beta along the last axis, whose length gamma and beta have."""
    return call(_LAYER_NORM, (eps,), (x, gamma, beta), out, options)


def qmatmul(
    x: Any,
    weights: Any,
    scales: Any,
    zeros: Any,
    bits: int = 4,
    group: int = 32,
    *,
    out: Any = None,
    **options: Unpack[FunctionOptions],
) -> Any:
    """Return x · (scales · (weights − zeros)) for rows x …×k of floats and what `quantize_weights` returns.

    Scales and zero points are those of `group` rows of a column, or with 0 of all of them. Raises ArgumentError for
    shapes that do not fit.
    """
    return call(_QMATMUL, (bits, group), (x, weights, scales, zeros), out, options)


def conv2d(
    x: Any,
    w: Any,
    bias: Any = None,
    *,
    stride: Sizes = 1,
    padding: Sizes | Literal["same", "valid", "SAME", "VALID"] = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    residual: Any = None,
    activation: str | None = None,
    layout: Literal["nchw", "nhwc", "NCHW", "NHWC"] = "nchw",
    out: Any = None,
    **options: Unpack[FunctionOptions],
) -> Any:
    """Return the convolution, as neural networks have it, of images b×c×H×W with filters f×(c/groups)×fh×fw.

    The result is b×f×h×w, h = (H + 2·padding − dilation·(fh − 1) − 1) // stride + 1 and w likewise. Parameters are a
    number or a pair for rows and columns. The padding "same" makes h = ⌈H / stride⌉, "valid" is none. With
    layout="nhwc", images are b×H×W×c, and residual and result b×h×w×f.

    A bias of f values and a residual b×f×h×w are added, then the activation is applied, in the same kernel: "relu",
    "relu6", "gelu", "silu", "sigmoid", "tanh", "hardsigmoid", "hardswish" or "mish".
    """
    parameters = tuple(tuple(each) if isinstance(each, list) else each for each in (stride, padding, dilation))
    added = {"bias": bias, "residual": residual}
    given = {"x": x, "w": w} | {name: one for name, one in added.items() if one is not None}
    return call(_CONV2D, (*parameters, groups, activation, layout, tuple(given)), tuple(given.values()), out, options)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    window: int = 0,
    length: int | None = None,
    out: Any = None,
    **options: Unpack[AttentionOptions],
) -> Any:
    """Return softmax(q · kᵀ · scale + mask) · v for q …×m×d, k …×n×d and v …×n×e; `scale` is 1/√d by default.

    Along axis -3, the heads, q may have a multiple of k and v: heads in a row then share one of them. A mask is
    broadcast to …×m×n. A boolean one is true where a row uses a key. A row that masks all of its keys is NaN; without
    any keys, n = 0, results are 0.

    If `causal`, the rows are the last m positions of keys, and use the keys up to their own, or with `window` the last
    of these. With `length`, the first `length` keys are all there are, as in a cache; values of others are finite.
    """
    mask = options.pop("attn_mask", None) if mask is None else mask
    options.pop("enable_gqa", None)
    copy = options.get("copy", True)
    q, k, v = from_lists((q, k, v), copy)
    mask = None if mask is None else from_lists((q, mask), copy)[1]
    if options.pop("is_causal", False):
        check_is_causal(q, k)
        causal = True
    given = attention_arrays(q, k, v, mask, causal, window, length)
    return call(_ATTENTION, (scale, window, tuple(given)), tuple(given.values()), out, options)


def _plan_matmul(arrays: list[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    a, b = (array.ndim for array in arrays)
    if not a or not b:
        raise ArgumentError("matmul: an operand without axes", "multiply by it: it is a number")
    lhs, rhs = "k" if a == 1 else "...mk", "k" if b == 1 else "...kn"
    rows, columns = "m" if a > 1 else "", "n" if b > 1 else ""
    dots = "..." if max(a, b) > 2 else ""
    return plan_product("matmul", f"{lhs},{rhs}->{dots}{rows}{columns}", arrays, out)


_EINSUM = Function("einsum", partial(plan_product, "einsum"))
_MATMUL = Function("matmul", _plan_matmul)
_SOFTMAX = Function("softmax", plan_softmax, ("axis",), torch={"dim": "axis"})
_GELU = Function("gelu", plan_gelu, ("form",), torch={"approximate": "form"})
_LAYER_NORM = Function("layer_norm", plan_layer_norm, ("eps",))
_QMATMUL = Function("qmatmul", plan_qmatmul, ("bits", "group"))
_CONV2D = Function("conv2d", plan_conv2d, ("stride", "padding", "dilation", "groups", "activation", "layout"))
_ATTENTION = Function("attention", plan_attention, ("scale", "window"), lacking=("dropout_p",))
