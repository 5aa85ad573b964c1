"""Plans of attention: heads that share keys and values are further rows, and a mask is added to the scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any

import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.conversion import as_array
from morello.api.functions.views import ArrayView, result_like
from morello.errors import ArgumentError
from morello.ir.ops import ComposeStage, arranged
from morello.ir.ops.binary import Add
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Scale

#: Groups of axes: the batch, rows and columns.
Groups = tuple[Sequence[int], Sequence[int], Sequence[int]]


def added(mask: Any) -> Any:
    """Return what a mask adds to the scores: 0 where a boolean one is true, else −∞; other masks unchanged."""
    array = as_array(mask)
    return np.where(array, np.float32(0), np.float32(-np.inf)) if array.dtype == np.bool_ else mask


def plan_attention(scale: float | None, arrays: Sequence[np.ndarray], out: np.ndarray | None) -> FunctionPlan:
    """Return the plan of `attention` for q, k, v and perhaps a mask. Raises ArgumentError if they do not fit."""
    names = ("q", "k", "v", "mask")[: len(arrays)]
    seen = [ArrayView.of(array, f"attention: {name}") for array, name in zip(arrays, names, strict=True)]
    q, k, v = (one.shape for one in seen[:3])
    shared = _shared_heads(q, k, v)
    factor = 1 / math.sqrt(q[-1]) if scale is None else scale
    if not isinstance(factor, Real) or not math.isfinite(factor):
        raise ArgumentError(f"attention: scale is {scale!r}", "it is a number")
    y = result_like("attention", seen[0].dtype, (*q[:-1], v[-1]), out)
    batch = range(len(q) - 2)
    rows = [len(q) - 2]
    query, result = seen[0], y
    if shared > 1:
        query, result = (one.split(len(q) - 3, k[-3]) for one in (query, y))
        rows = [len(q) - 2, len(q) - 1]
    wide, narrow = (batch, rows, [rows[-1] + 1]), (batch, [len(q) - 2], [len(q) - 1])
    # The right operand of the first product is d×n, the transpose of k.
    inputs = [
        _operand("q", query, wide),
        _operand("k", seen[1], (batch, narrow[2], narrow[1])),
        _operand("v", seen[2], narrow),
    ]
    made = _operand("out", result, wide)
    (batches, m, d), (_, n, e) = inputs[0].shape, inputs[2].shape
    stages = [(Matmul(), 4, (~1, 2)), (Softmax(), 3, (~2,)), (Scale(by=float(factor)), 3, (~3,)), (Matmul(), 4, (0, 1))]
    if len(seen) > 3:
        scores = (*query.shape[:-1], n)
        inputs.append(_mask(seen[3], (*q[:-1], n), scores, wide))
        over = [dim for dim, (own, size) in enumerate(zip(inputs[3].shape, (batches, m, n), strict=True)) if own < size]
        stages[2:] = [(Add(over=tuple(over)), 3, (~3, 3)), (stages[2][0], 3, (~4,)), stages[3]]
    graph = arranged([ComposeStage(*stage) for stage in stages])
    return FunctionPlan(
        "attention",
        graph.compose,
        (batches, m, n, e, d),
        tuple(enumerate(inputs)),
        made,
        y.shape,
        (*names, "y"),
        (*graph.inputs, len(seen)),
    )


def _shared_heads(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> int:
    """Return the number of heads of q that share one of k and v. Raises ArgumentError for shapes that do not fit."""
    fits = len(q) == len(k) == len(v) > 1 and k[:-1] == v[:-1] and q[-1] == k[-1]
    heads = (q[-3], k[-3]) if fits and len(q) > 2 else (1, 1)
    if not fits or q[:-3] != k[:-3] or (heads[0] != heads[1] and (0 in heads or heads[0] % heads[1])):
        raise ArgumentError(
            f"attention: q has shape {q}, k {k} and v {v}",
            "they are …×m×d, …×n×d and …×n×e, with one batch for all; only q may have a multiple of the heads, axis -3",
        )
    if 0 in q[-1:]:
        raise ArgumentError(f"attention: q has shape {q}", "its rows have at least one value")
    return heads[0] // heads[1] if heads[1] else 1


def _operand(name: str, one: ArrayView, groups: Groups) -> ArrayView:
    """Return a view with three dimensions, each a group of axes; a copy if no single stride steps through a group."""
    if not all(map(one.joins, groups)):
        remedy = f"pass a copy of {name}: numpy.ascontiguousarray(...)" if name != "out" else "leave out `out`"
        shape = tuple(one.shape[axis] for axis in groups[0])
        why = f"attention: the batch or the heads of {name}, of shape {shape}, have no single stride"
        one = one.copy(ArgumentError(why, remedy))
    return one.ordered([axis for group in groups for axis in group]).grouped(_places(groups))


def _mask(mask: ArrayView, shape: tuple[int, ...], scores: tuple[int, ...], groups: Groups) -> ArrayView:
    """Return a mask as three dimensions: those of the scores, or 1. Raises ArgumentError if it does not fit.

    `shape` is that of the scores as the caller sees them, `scores` that with the heads split where groups share a key.
    """
    missing = len(shape) - len(mask.shape)
    wide = (1,) * missing + mask.shape
    if missing < 0 or any(own not in (1, size) for own, size in zip(wide, shape, strict=True)):
        raise ArgumentError(f"attention: mask has shape {mask.shape}", f"it is broadcast to {shape}, like the scores")
    axes = [[]] * missing + [[axis] for axis in range(len(mask.shape))]
    if len(scores) > len(shape) and wide[-3] > 1:
        head = len(shape) - 3
        one = mask.grouped(axes).split(head, scores[head])
    else:
        one = mask.grouped(axes[:-2] + [[]] * (len(scores) - len(shape)) + axes[-2:])
    full = list(one.shape)
    for group in groups:
        sizes = [scores[axis] for axis in group]
        if any(one.shape[axis] > 1 for axis in group) and [one.shape[axis] for axis in group] != sizes:
            for axis in group:
                full[axis] = scores[axis]
    if full != list(one.shape):
        why = f"attention: mask has shape {mask.shape}, and repeats along some axes of its batch or rows"
        one = one.copy(ArgumentError(why, f"pass a copy: numpy.broadcast_to(mask, {shape}).copy()"), full)
    return _operand("mask", one, groups)


def _places(groups: Groups) -> list[range]:
    """Return the groups of axes after these were put in their order."""
    ends = accumulate(map(len, groups), initial=0)
    return [range(*each) for each in pairwise(ends)]
