"""Plans of attention: heads that share keys and values are further rows; masks are operands.

A mask is added to the scores; a boolean one chooses them. Positions of rows and keys mask them as `CausalMask` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np

from morello.api.functions.calls import FunctionPlan
from morello.api.functions.conversion import as_array
from morello.api.functions.views import ArrayView, result_like
from morello.errors import ArgumentError
from morello.ir.dtypes import F64
from morello.ir.ops import ComposeStage, Operation, arranged
from morello.ir.ops.binary import Add
from morello.ir.ops.causal import CausalMask
from morello.ir.ops.compare import Where
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.unary import Scale
from morello.run.dlpack import to_library_of

#: Groups of axes: the batch, rows and columns.
Groups = tuple[Sequence[int], Sequence[int], Sequence[int]]


def check_is_causal(q: Any, k: Any) -> None:
    """Raise ArgumentError where torch's `is_causal` is not `causal`."""
    rows, keys = np.shape(q)[-2:-1], np.shape(k)[-2:-1]
    if rows != keys:
        hint = "with causal=True the last row uses the last key; in torch the first row uses the first key"
        raise ArgumentError(f"attention: is_causal with q of shape {np.shape(q)} and k {np.shape(k)}", hint)


def attention_arrays(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, window: int, length: int | None
) -> dict[str, Any]:
    """Return the arrays of a call: q, k, v, a mask if there is one, and positions if they mask keys.

    A boolean mask chooses between the scores and `excluded`, −∞.

    In a cache with `length`, the number of keys that a kernel reads is `length` rounded up to one of four numbers in an
    octave: a growing `length` needs few kernels. Raises ArgumentError if the arguments do not fit.
    """
    mask = _without_halves(mask, as_array(q).dtype.itemsize == 2 and not causal and length is None)
    if window and not causal:
        raise ArgumentError(f"attention: window={window} of rows that are not causal", "pass causal=True")
    given = {"q": q, "k": k, "v": v, **({} if mask is None else {"mask": mask})}
    give = to_library_of(q) or (lambda array: array)
    if mask is not None and as_array(mask).dtype == np.bool_:
        given["excluded"] = give(np.full((1, 1, 1), -np.inf, np.float32))
    if not causal and length is None:
        return given
    shared = _shared_heads(np.shape(q), np.shape(k), np.shape(v))
    rows, keys = np.shape(q)[-2], np.shape(k)[-2]
    count = keys if length is None else int(length) if isinstance(length, Integral) else -1
    if not min(1, keys) <= count <= keys:
        raise ArgumentError(f"attention: length is {length!r}, and k has shape {np.shape(k)}", "it is a number of keys")
    step = max(32, (1 << count.bit_length()) // 8)
    used = keys if length is None else min(keys, -(-count // step) * step)
    if used < keys:
        if mask is not None and np.shape(mask)[-1:] == (keys,):
            given["mask"] = mask[..., :used]
        given |= {"k": k[..., :used, :], "v": v[..., :used, :]}
    at = np.arange(count - rows, count) if causal else np.full(rows, count - 1)
    rows_at, keys_at = np.tile(at.astype(np.int32), shared), np.arange(used, dtype=np.int32)
    return {**given, "rows": give(rows_at), "columns": give(keys_at)}


def _without_halves(mask: Any, narrow: bool) -> Any:
    """Return a mask that is boolean, or of floats of 32 bits or more, which are added to the scores.

    Without a mask and with `narrow` operands, this is 0: scores between operands of 16 bits alone would be of 16 bits.
    """
    if mask is None:
        return np.zeros((1, 1), np.float32) if narrow else None
    array = as_array(mask)
    return array.astype(np.float32) if array.dtype.itemsize == 2 else mask


def plan_attention(
    scale: float | None, window: int, names: tuple[str, ...], arrays: Sequence[np.ndarray], out: np.ndarray | None
) -> FunctionPlan:
    """Return the plan of `attention`; `names` are those of the arrays. Raises ArgumentError if they do not fit."""
    given = {name: ArrayView.of(array, f"attention: {name}") for name, array in zip(names, arrays, strict=True)}
    q, k, v = (given[name].shape for name in "qkv")
    shared = _shared_heads(q, k, v)
    factor = 1 / math.sqrt(q[-1]) if scale is None else scale
    if not isinstance(factor, Real) or not math.isfinite(factor):
        raise ArgumentError(f"attention: scale is {scale!r}", "it is a number")
    if not isinstance(window, Integral) or not 0 <= window < 2**31:
        raise ArgumentError(f"attention: window is {window!r}", "it is a number of keys, or 0 for all")
    y = result_like("attention", given["q"].dtype, (*q[:-1], v[-1]), out)
    batch, rows = range(len(q) - 2), [len(q) - 2]
    query, result = given["q"], y
    if shared > 1:
        query, result = (one.split(len(q) - 3, k[-3]) for one in (query, y))
        rows = [len(q) - 2, len(q) - 1]
    wide, narrow = (batch, rows, [rows[-1] + 1]), (batch, [len(q) - 2], [len(q) - 1])
    # The right operand of the first product is d×n, the transpose of k.
    operands = {
        "q": _operand("q", query, wide),
        "k": _operand("k", given["k"], (batch, narrow[2], narrow[1])),
        "v": _operand("v", given["v"], narrow),
    }
    made = _operand("out", result, wide)
    (batches, m, d), (_, n, e) = operands["q"].shape, operands["v"].shape
    steps: list[tuple[Operation, tuple[str, ...]]] = []  # "" stands for the scores
    if "mask" in given:
        operands["mask"] = mask = _mask(given["mask"], (*q[:-1], n), (*query.shape[:-1], n), wide)
        over = [dim for dim, (own, size) in enumerate(zip(mask.shape, (batches, m, n), strict=True)) if own < size]
        if "excluded" in given:
            operands["excluded"] = given["excluded"]
            steps.append((Where(over_condition=tuple(over), over=(0, 1, 2)), ("mask", "", "excluded")))
        else:
            steps.append((Add(over=tuple(over)), ("", "mask")))
    if "rows" in given:
        if F64 in (given["q"].dtype, given["k"].dtype):
            raise ArgumentError("attention: causal rows, or a length, of f64", "convert q, k, v to float32")
        operands["rows"] = given["rows"].grouped([[0], []]).repeated(batches)
        operands["columns"] = given["columns"].grouped([[], [], [0]])
        steps.append((CausalMask(window=int(window)), ("", "rows", "columns")))
    graph = arranged(_stages(Scale(by=float(factor)), steps, names))
    inputs = tuple((place, operands[name]) for place, name in enumerate(names))
    return FunctionPlan(
        "attention",
        graph.compose,
        (batches, m, n, e, d),
        inputs,
        made,
        y.shape,
        (*names, "y"),
        (*graph.inputs, len(names)),
    )


def _stages(
    scale: Operation, steps: Sequence[tuple[Operation, tuple[str, ...]]], names: tuple[str, ...]
) -> list[ComposeStage]:
    """Return the stages of attention, in which `steps` run one after another on the scores and further inputs.

    Rows are scaled, not scores: these are more.
    """
    q, k, v = map(names.index, "qkv")
    between = [
        ComposeStage(op, 3, tuple(names.index(one) if one else ~number for one in inputs))
        for number, (op, inputs) in enumerate(reversed(steps), start=3)
    ]
    head = [ComposeStage(Matmul(), 4, (~1, v)), ComposeStage(Softmax(), 3, (~2,)), *between]
    return [*head, ComposeStage(Matmul(), 4, (~(len(head) + 1), k)), ComposeStage(scale, 3, (q,))]


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
