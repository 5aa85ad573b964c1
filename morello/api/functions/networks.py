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
