"""Norms of rows, groups and channels."""

from __future__ import annotations

from math import prod

import ml_dtypes
import numpy as np

from morello.models.building import Builder, Source, Unsupported, translates


@translates("LayerNormalization", "RMSNormalization")
def _of_rows(make: Builder, node: Source) -> None:
    source, to = node.inputs[0], node.outputs[0]
    shape, axis = make.shape(source), node.get("axis", -1) % make.rank(source)
    columns = prod(shape[axis:])
    flat = make.reshape(source, (prod(shape[:axis]), columns))
    of_columns = [_repeated(make, name, shape[axis:]) for name in node.inputs[1:] if name]
    op = "RMSNorm" if node.op == "RMSNormalization" else "LayerNorm"
    if op == "LayerNorm" and len(of_columns) == 1:
        of_columns.append(make.constant(np.zeros((1, columns), make.tensors[source].dtype.numpy)))
    given = {"eps": float(node.get("epsilon", 1e-5))}
    make.reshape(make.node(op, flat, *of_columns, given=given), shape, to)


def _repeated(make: Builder, name: str, shape: tuple[int, ...]) -> str:
    """Return the row of values of a tensor, repeated to a shape."""
    if make.shape(name) != shape:
        name = make.view("expand", name, shape)
    return make.reshape(name, (1, -1))


@translates("InstanceNormalization")
def _of_channels(make: Builder, node: Source) -> None:
    source, *by = node.inputs
    shape = (1, -1, *[1] * (make.rank(source) - 2))
    given = {"eps": float(node.get("epsilon", 1e-5))}
    make.node("InstanceNorm", source, *(make.reshape(one, shape) for one in by), to=node.outputs[0], given=given)


@translates("GroupNormalization")
def _of_groups(make: Builder, node: Source) -> None:
    source, *by = node.inputs
    (n, c, *_), groups = make.shape(source), node.get("num_groups")
    if node.version < 21:
        # Scale and bias are those of groups.
        by = [make.view("expand", make.reshape(one, (groups, 1)), (groups, c // groups)) for one in by]
    of_groups = (make.reshape(one, (1, groups, c // groups, 1)) for one in by)
    split = make.reshape(source, (n, groups, c // groups, -1))
    given = {"eps": float(node.get("epsilon", 1e-5))}
    make.reshape(make.node("GroupNorm", split, *of_groups, given=given), make.shape(source), node.outputs[0])


@translates("LpNormalization")
def _lp(make: Builder, node: Source) -> None:
    source, dim, order = node.inputs[0], node.get("axis", -1) % make.rank(node.inputs[0]), node.get("p", 2)
    if order not in (1, 2):
        raise Unsupported(f"a norm of order {order}")
    shape = tuple(1 if each == dim else size for each, size in enumerate(make.shape(source)))
    norm = make.node(f"L{order}Norm", source, shape=shape, given={"dim": dim})
    # Rows of zeros stay zeros.
    tiny = make.number(float(ml_dtypes.finfo(make.tensors[source].dtype.numpy).tiny), source)
    make.node("Div", source, make.node("Maximum", norm, tiny), to=node.outputs[0])


@translates("MeanVarianceNormalization")
def _mean_variance(make: Builder, node: Source) -> None:
    source, dims = node.inputs[0], make.dims(node, (0, 2, 3))
    shape = [1 if dim in dims else size for dim, size in enumerate(make.shape(source))]
    centred = make.node("Sub", source, make.node("Mean", source, shape=shape, given={"dim": dims}))
    variance = make.node("Mean", make.node("Mul", centred, centred), shape=shape, given={"dim": dims})
    deviation = make.node("Shift", make.node("Sqrt", variance), given={"by": 1e-9})
    make.node("Div", centred, deviation, to=node.outputs[0])
