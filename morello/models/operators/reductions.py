"""Reductions, softmax, sorted values."""

from __future__ import annotations

import numpy as np

from morello.ir.dtypes import BOOL, I64
from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates

#: The operations one after another; the second has the parameter `dim`.
_REDUCTIONS = {
    "ReduceMean": ("", "Mean", ""),
    "ReduceSum": ("", "Sum", ""),
    "ReduceMax": ("", "Max", ""),
    "ReduceMin": ("", "Min", ""),
    "ReduceProd": ("", "Prod", ""),
    "ReduceL1": ("Abs", "Sum", ""),
    "ReduceL2": ("Square", "Sum", "Sqrt"),
    "ReduceLogSum": ("", "Sum", "Log"),
    "ReduceLogSumExp": ("", "LogSumExp", ""),
    "ReduceSumSquare": ("Square", "Sum", ""),
}


def _of_each(make: Builder, op: str, source: str, to: str = "") -> str:
    if op == "Square":
        return make.node("Mul", source, source, to=to)
    return make.node(op, source, to=to) if op else source


@translates(*_REDUCTIONS)
def _reduce(make: Builder, node: Source) -> None:
    before, op, after = _REDUCTIONS[node.op]
    source, to = node.inputs[0], node.outputs[0]
    none = node.get("noop_with_empty_axes", 0)
    dims = make.dims(node, () if none else range(make.rank(source)))
    if not dims:
        found = _of_each(make, after, _of_each(make, before, source))
        make.reshape(found, make.shape(to), to)
        return
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(make.shape(source)))
    if op in ("Mean", "LogSumExp") and not make.tensors[source].dtype.is_float:
        raise Unsupported("integers")
    last = to if make.shape(to) == kept else ""
    source = _of_each(make, before, source)
    found = make.node(op, source, to="" if after else last, shape=kept, given={"dim": dims})
    if after:
        found = _of_each(make, after, found, last)
    if not last:
        make.reshape(found, make.shape(to), to)


@translates("ArgMax", "ArgMin")
def _arg(make: Builder, node: Source) -> None:
    source, dim = node.inputs[0], node.get("axis", 0) % make.rank(node.inputs[0])
    shape = make.shape(source)
    last = node.get("select_last_index", 0)
    if last:
        source = make.gathered(source, dim, np.arange(shape[dim])[::-1])
    kept = (*shape[:dim], 1, *shape[dim + 1 :])
    found = make.node(node.op, source, shape=kept, dtype=I64, given={"dim": dim})
    if last:
        found = make.node("Sub", make.constant(np.array(shape[dim] - 1, np.int64)), found)
    make.reshape(found, make.shape(node.outputs[0]), node.outputs[0])


@translates("TopK")
def _top_k(make: Builder, node: Source) -> None:
    source, dim = node.inputs[0], node.get("axis", -1) % make.rank(node.inputs[0])
    values, indices = (
        name or make.tensor(make.shape(next(filter(None, node.outputs))), dtype)
        for name, dtype in zip(node.outputs, (make.tensors[source].dtype, I64), strict=True)
    )
    if node.get("largest", 1):
        make.nodes("TopK", [source], [values, indices], {"dim": dim, "k": make.shape(values)[dim]})
        return
    least = make.tensor(make.shape(values), make.tensors[source].dtype)
    make.nodes("TopK", [make.node("Neg", source)], [least, indices], {"dim": dim, "k": make.shape(values)[dim]})
    make.node("Neg", least, to=values)


@translates("Softmax", "LogSoftmax", "Hardmax")
def _softmax(make: Builder, node: Source) -> None:
    source, rank = node.inputs[0], make.rank(node.inputs[0])
    if node.version >= 13:
        _of_rows(make, node.op, source, node.get("axis", -1) % rank, node.outputs[0])
        return
    # Before, the tensor was a matrix, with rows of all dimensions from `axis` on.
    axis, shape = node.get("axis", 1) % rank, make.shape(source)
    flat = make.reshape(source, (int(np.prod(shape[:axis])), -1))
    make.reshape(_of_rows(make, node.op, flat, 1), shape, node.outputs[0])


def _of_rows(make: Builder, op: str, source: str, dim: int, to: str = "") -> str:
    given: dict[str, Value] = {"dim": dim}
    if op != "Hardmax":
        return make.node(op, source, to=to, given=given)
    shape = make.shape(source)
    found = make.node("ArgMax", source, shape=(*shape[:dim], 1, *shape[dim + 1 :]), dtype=I64, given=given)
    places = make.constant(np.arange(shape[dim]).reshape(-1, *[1] * (len(shape) - 1 - dim)))
    one = make.node("Equal", found, places, dtype=BOOL)
    return make.node("Move", one, to=to, dtype=make.tensors[source].dtype)
