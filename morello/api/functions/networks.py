"""Plans of neural networks' operations. Adjacent axes that one stride steps through become one dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Literal

import attrs
import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.views import ArrayView, merged, result_like
from morello.errors import ArgumentError
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.named_graphs import NAMED_GRAPHS
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Gelu


def plan_softmax(axis: int, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    """Return the plan of `softmax`. Raises ArgumentError for an axis out of range."""
    x = ArrayView.of(arrays[0], "softmax: x")
    if not isinstance(axis, Integral) or not -len(x.shape) <= axis < len(x.shape):
        raise ArgumentError(
            f"softmax: axis is {axis!r}, and x has {len(x.shape)} axes", "count from 0, or back from -1"
        )
    y = result_like("softmax", x.dtype, x.shape, out)
    along = int(axis) % len(x.shape)
    groups = merged([x, y], lambda one: one == along)
    src, made = x.grouped(groups), y.grouped(groups)
    return FunctionPlan("softmax", Softmax(dim=groups.index([along])), made.shape, ((0, src),), made, x.shape)


def plan_gelu(
    form: Literal["erf", "tanh", "none"], arrays: Sequence[np.ndarray], out: np.ndarray | None
) -> FunctionPlan:
    """Return the plan of `gelu`. Raises ArgumentError for an unknown form."""
    if form not in ("erf", "tanh", "none"):
        raise ArgumentError(f"gelu: form is {form!r}", "it is 'erf' ('none' in torch) or 'tanh'")
    x = ArrayView.of(arrays[0], "gelu: x")
    y = result_like("gelu", x.dtype, x.shape, out)
    groups = merged([x, y])
    src, made = x.grouped(groups), y.grouped(groups)
    op = Gelu(form="erf" if form == "none" else form)
    return FunctionPlan("gelu", op, made.shape, ((0, src),), made, x.shape)


def plan_layer_norm(eps: float, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    """Return the plan of `layer_norm`. Raises ArgumentError for gamma or beta that do not fit, and for a wrong eps."""
    names = ("x", "gamma", "beta")
    x, *others = (ArrayView.of(array, f"layer_norm: {name}") for array, name in zip(arrays, names, strict=True))
    if not isinstance(eps, Real) or not 0 <= eps < math.inf:
        raise ArgumentError(f"layer_norm: eps is {eps!r}", "it is a number of at least 0, such as 1e-5")
    for one, name in zip(others, names[1:], strict=True):
        if one.shape != x.shape[-1:] or not x.shape:
            raise ArgumentError(
                f"layer_norm: {name} has shape {one.shape}, x {x.shape}", f"{name} is as long as x's rows"
            )
    y = result_like("layer_norm", x.dtype, x.shape, out)
    last = len(x.shape) - 1
    groups = merged([x, y], lambda one: one == last)
    groups = groups if len(groups) > 1 else [[], *groups]
    src, made = x.grouped(groups), y.grouped(groups)
    # Calls accept vectors without the leading dimensions of size 1.
    rows = [attrs.evolve(one.grouped([*[[]] * (len(groups) - 1), [0]]), steps=one.steps) for one in others]
    inputs = (src, *rows)
    norm = NAMED_GRAPHS["LayerNorm"].configured({"eps": float(eps)})
    graph = norm.arranged(len(groups))
    order = (*graph.inputs, len(inputs))
    return FunctionPlan(
        "layer_norm", graph.compose, made.shape, tuple(enumerate(inputs)), made, x.shape, norm.names, order
    )


def plan_conv2d(
    stride: object, padding: object, dilation: object, groups: int, arrays: Sequence[np.ndarray], out: np.ndarray | None
) -> FunctionPlan:
    """Return the plan of `conv2d`. Raises ArgumentError for shapes and parameters that do not fit."""
    x, w = (ArrayView.of(array, f"conv2d: {name}") for array, name in zip(arrays, ("x", "w"), strict=True))
    if (len(x.shape), len(w.shape)) != (4, 4):
        raise ArgumentError(
            f"conv2d: x has shape {x.shape} and w {w.shape}", "x is b×c×H×W and w f×c×fh×fw: add axes, as in x[None]"
        )
    strides, pads = _pair("stride", stride, 1), _pair("padding", padding, 0)
    dilations = _pair("dilation", dilation, 1)
    (b, channels, *image), (filters, c, *size) = x.shape, w.shape
    if 0 in size:
        raise ArgumentError(f"conv2d: w has shape {w.shape}", "its filters have at least one row and column")
    if not isinstance(groups, Integral) or groups < 1 or channels != c * groups or filters % groups:
        raise ArgumentError(
            f"conv2d: {channels} channels of x, {c} of each of {filters} filters and groups={groups!r}",
            "x needs groups times the channels of a filter, and the number of filters must be a multiple of groups",
        )
    reach = [each * (length - 1) + 1 for each, length in zip(dilations, size, strict=True)]
    sizes = [(n + 2 * pad - r) // step + 1 for n, pad, r, step in zip(image, pads, reach, strides, strict=True)]
    if min(sizes) < 1:
        raise ArgumentError(
            f"conv2d: filters of {_times(size)} leave no output of an image of {_times(image)}", "pass a larger padding"
        )
    # As in other frameworks, the last rows and columns that no filter reaches are ignored.
    ends = [step * (n - 1) + r - pad for step, n, r, pad in zip(strides, sizes, reach, pads, strict=True)]
    x = x.parted((slice(None), slice(None), *(slice(max(0, min(end, n))) for end, n in zip(ends, image, strict=True))))
    after = [max(0, end - n) for end, n in zip(ends, image, strict=True)]
    y = result_like("conv2d", x.dtype, (b, filters, *sizes), out)
    shape, made, kind = (b, filters, channels, *sizes, *size), y, Conv
    if groups > 1:
        x, w, made = x.split(1, groups), w.split(0, groups), y.split(1, groups)
        shape, kind = (b, groups, filters // groups, c, *sizes, *size), GroupedConv
    op = kind(stride=strides, padding=(*pads, *after), dilation=dilations)
    return FunctionPlan("conv2d", op, shape, ((0, x), (1, w)), made, y.shape)


def _pair(name: str, given: object, least: int) -> tuple[int, int]:
    """Return a parameter as a pair for rows and columns. Raises ArgumentError for other values."""
    pair = given if isinstance(given, tuple) else (given, given)
    found = tuple(int(one) for one in pair if isinstance(one, Integral))
    if len(pair) != 2 or len(found) != 2 or min(found) < least:
        raise ArgumentError(f"conv2d: {name} is {given!r}", f"it is a number of at least {least}, or a pair of them")
    return found


def _times(sizes: Sequence[int]) -> str:
    return "×".join(map(str, sizes))
