"""Reductions, softmax, norms of rows."""

from __future__ import annotations

from math import prod

import numpy as np

from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates

_REDUCTIONS = {"ReduceMean": "Mean", "ReduceSum": "Sum", "ReduceMax": "Max", "ReduceMin": "Min", "ReduceProd": "Prod"}


@translates(*_REDUCTIONS)
def _reduce(make: Builder, node: Source) -> None:
    source, rank = node.inputs[0], make.rank(node.inputs[0])
    axes = node.get("axes")
    if node.input(1):
        axes = make.value(node.inputs[1], "a list of dimensions").tolist()
    if not axes and node.get("noop_with_empty_axes", 0):
        make.reshape(source, make.shape(source), node.outputs[0])
        return
    dims = tuple(sorted(axis % rank for axis in axes)) if axes else tuple(range(rank))
    kept = tuple(1 if dim in dims else size for dim, size in enumerate(make.shape(source)))
    if make.shape(node.outputs[0]) == kept:
        make.node(_REDUCTIONS[node.op], source, to=node.outputs[0], given={"dim": dims})
    else:
        found = make.node(_REDUCTIONS[node.op], source, shape=kept, given={"dim": dims})
        make.reshape(found, make.shape(node.outputs[0]), node.outputs[0])


@translates("Softmax", "LogSoftmax")
def _softmax(make: Builder, node: Source) -> None:
    source, rank = node.inputs[0], make.rank(node.inputs[0])
    if node.version >= 13:
        make.node(node.op, source, to=node.outputs[0], given={"dim": node.get("axis", -1) % rank})
        return
    # Before, the tensor was a matrix, with rows of all dimensions from `axis` on.
    axis, shape = node.get("axis", 1) % rank, make.shape(source)
    rows = 1
    for size in shape[:axis]:
        rows *= size
    flat = make.reshape(source, (rows, -1))
    found = make.node(node.op, flat, shape=make.shape(flat), given={"dim": 1})
    make.reshape(found, shape, node.outputs[0])


@translates("LayerNormalization", "RMSNormalization")
def _norm(make: Builder, node: Source) -> None:
    """Translate a norm of the last dimensions, which are rows of one."""
    source, *parameters = filter(None, node.inputs)
    if any(node.outputs[1:]):
        raise Unsupported("mean and deviation as outputs")
    shape = make.shape(source)
    axis = node.get("axis", -1) % len(shape)
    width = prod(shape[axis:])
    if node.op == "LayerNormalization" and len(parameters) == 1:
        parameters.append(make.constant(np.zeros(width, make.tensors[source].dtype.numpy)))
    flat = [make.reshape(one, (1, width)) for one in parameters]
    rows = make.reshape(source, (-1, width))
    op = "LayerNorm" if node.op == "LayerNormalization" else "RMSNorm"
    given: dict[str, Value] = {"eps": float(node.get("epsilon", 1e-5))}
    made = make.node(op, rows, *flat, shape=make.shape(rows), given=given)
    make.reshape(made, shape, node.outputs[0])
