"""Views, and other movement of data."""

from __future__ import annotations

import numpy as np

from morello.ir.dtypes import BOOL, I64
from morello.ir.ops.base import Value
from morello.models.building import Builder, Source, Unsupported, translates


@translates("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshape(make: Builder, node: Source) -> None:
    make.reshape(node.inputs[0], make.shape(node.outputs[0]), node.outputs[0])


@translates("Transpose")
def _transpose(make: Builder, node: Source) -> None:
    order = node.get("perm") or [*range(make.rank(node.inputs[0]))][::-1]
    make.view("transpose", node.inputs[0], order, node.outputs[0])


@translates("Slice")
def _slice(make: Builder, node: Source) -> None:
    shape = make.shape(node.inputs[0])
    if "starts" in node.attributes:
        starts, ends = node.get("starts"), node.get("ends")
        axes, steps = node.get("axes") or [*range(len(starts))], [1] * len(starts)
    else:
        values = [make.value(name, "a part of a slice").tolist() if name else None for name in node.inputs[1:]]
        starts, ends, axes, steps = [*values, None, None][:4]
        axes = [*range(len(starts))] if axes is None else axes
        steps = [1] * len(starts) if steps is None else steps
    given = [slice(0, size, 1) for size in shape]
    source = node.inputs[0]
    backward: dict[int, np.ndarray] = {}
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        part = slice(start, end, step).indices(shape[axis])
        given[axis % len(shape)] = slice(*part) if step > 0 else slice(0, shape[axis], 1)
        if step < 0:
            backward[axis % len(shape)] = np.arange(*part)
    source = make.view("slice", source, given, "" if backward else node.outputs[0])
    for dim, indices in backward.items():
        source = make.gathered(source, dim, indices, node.outputs[0] if dim == [*backward][-1] else "")


@translates("Split")
def _split(make: Builder, node: Source) -> None:
    axis, start = node.get("axis", 0), 0
    axis %= make.rank(node.inputs[0])
    sizes = node.get("split") or (make.value(node.inputs[1], "sizes").tolist() if node.input(1) else None)
    count = len(node.outputs)
    size = -(-make.shape(node.inputs[0])[axis] // count)
    # The last part of equal ones may be smaller.
    for output, each in zip(node.outputs, sizes or [size] * count, strict=True):
        stop = min(start + each, make.shape(node.inputs[0])[axis])
        if output:
            make.slice(node.inputs[0], axis, start, stop, output)
        start = stop


@translates("Expand")
def _expand(make: Builder, node: Source) -> None:
    make.view("expand", node.inputs[0], make.shape(node.outputs[0]), node.outputs[0])


@translates("Concat")
def _concat(make: Builder, node: Source) -> None:
    axis = node.get("axis", 1) % make.rank(node.outputs[0])
    if len(node.inputs) == 1:
        make.reshape(node.inputs[0], make.shape(node.outputs[0]), node.outputs[0])
    else:
        make.node("Concat", *node.inputs, to=node.outputs[0], given={"dim": axis})


@translates("Tile")
def _tile(make: Builder, node: Source) -> None:
    source, counts = node.inputs[0], make.value(node.inputs[1], "a list of repeats").tolist()
    shape = make.shape(source)
    apart = make.reshape(source, [one for size in shape for one in (1, size)])
    pairs = zip(counts, shape, strict=True)
    repeated = make.view("expand", apart, [one for pair in pairs for one in pair])
    make.reshape(repeated, make.shape(node.outputs[0]), node.outputs[0])


@translates("DepthToSpace")
def _depth_to_space(make: Builder, node: Source) -> None:
    (n, c, h, w), size = make.shape(node.inputs[0]), node.get("blocksize")
    deep = node.get("mode", "DCR") == "DCR"
    shape = (n, size, size, c // size**2, h, w) if deep else (n, c // size**2, size, size, h, w)
    moved = make.view(
        "transpose", make.reshape(node.inputs[0], shape), (0, 3, 4, 1, 5, 2) if deep else (0, 1, 4, 2, 5, 3)
    )
    make.reshape(moved, make.shape(node.outputs[0]), node.outputs[0])


@translates("SpaceToDepth")
def _space_to_depth(make: Builder, node: Source) -> None:
    (n, c, h, w), size = make.shape(node.inputs[0]), node.get("blocksize")
    blocks = make.reshape(node.inputs[0], (n, c, h // size, size, w // size, size))
    deep = node.get("mode", "DCR") == "DCR"
    moved = make.view("transpose", blocks, (0, 3, 5, 1, 2, 4) if deep else (0, 1, 3, 5, 2, 4))
    make.reshape(moved, make.shape(node.outputs[0]), node.outputs[0])


@translates("Pad")
def _pad(make: Builder, node: Source) -> None:
    source, rank = node.inputs[0], make.rank(node.inputs[0])
    pads = node.get("pads") or make.value(node.inputs[1], "sizes of padding").tolist()
    if (mode := node.get("mode", "constant")) not in ("constant", "edge", "reflect"):
        raise Unsupported(f"the mode {mode}")
    value = node.get("value", 0.0)
    if node.input(2):
        value = make.value(node.inputs[2], "a value of padding").item()
    axes = range(rank)
    if node.input(3):
        axes = [axis % rank for axis in make.value(node.inputs[3], "a list of dimensions").tolist()]
    low, high = [0] * rank, [0] * rank
    for number, axis in enumerate(axes):
        low[axis], high[axis] = pads[number], pads[len(pads) // 2 + number]
    sizes = make.shape(source)
    if min(*low, *high) < 0:
        ends = zip(sizes, low, high, strict=True)
        source = make.view("slice", source, [slice(max(0, -a), size + min(0, b), 1) for size, a, b in ends])
    low, high = [max(0, one) for one in low], [max(0, one) for one in high]
    if not any((*low, *high)):
        make.reshape(source, make.shape(source), node.outputs[0])
        return
    if mode == "reflect" and any(max(a, b) >= s for a, b, s in zip(low, high, make.shape(source), strict=True)):
        raise Unsupported("padding that reflects more than there is")
    dtype = make.tensors[source].dtype
    if dtype.is_bool:
        raise Unsupported("padding of truth values")
    given: dict[str, Value] = {"padding": (*low, *high), "value": float(value), "mode": mode}
    make.node("Pad", source, to=node.outputs[0], given=given)


@translates("Trilu")
def _trilu(make: Builder, node: Source) -> None:
    source = node.inputs[0]
    by = make.value(node.inputs[1], "a diagonal").item() if node.input(1) else 0
    rows, columns = make.shape(source)[-2:]
    mask = np.tri(rows, columns, int(by) - bool(node.get("upper", 1)), dtype=bool)
    kept = make.constant(mask != bool(node.get("upper", 1)))
    make.node("Where", kept, source, make.number(0, source), to=node.outputs[0])


@translates("OneHot")
def _one_hot(make: Builder, node: Source) -> None:
    indices, axis = node.inputs[0], node.get("axis", -1) % make.rank(node.outputs[0])
    depth = make.shape(node.outputs[0])[axis]
    rank = make.rank(node.outputs[0])
    column = make.reshape(indices, (*make.shape(indices)[:axis], 1, *make.shape(indices)[axis:]))
    places = np.arange(depth, dtype=make.tensors[indices].dtype.numpy).reshape(-1, *[1] * (rank - 1 - axis))
    found = [make.node("Equal", column, make.constant(each), dtype=BOOL) for each in (places, places - depth)]
    values = node.inputs[2]
    off, on = (make.reshape(make.slice(values, 0, at, at + 1), ()) for at in (0, 1))
    make.node("Where", make.node("Or", *found), on, off, to=node.outputs[0])


@translates("CumSum")
def _cum_sum(make: Builder, node: Source) -> None:
    source = node.inputs[0]
    given: dict[str, Value] = {"dim": make.value(node.inputs[1], "a dimension").item() % make.rank(source)}
    given |= {name: True for name in ("exclusive", "reverse") if node.get(name, 0)}
    make.node("CumSum", source, to=node.outputs[0], given=given)


@translates("Gather")
def _gather(make: Builder, node: Source) -> None:
    table, indices = node.inputs
    axis = node.get("axis", 0) % make.rank(table)
    found = make.tensors[indices].value
    if found is not None and found.size == 1:
        at = int(found.item()) % make.shape(table)[axis]
        make.reshape(make.slice(table, axis, at, at + 1), make.shape(node.outputs[0]), node.outputs[0])
        return
    rows = make.gathered(table, axis, make.reshape(indices, (-1,)))
    make.reshape(rows, make.shape(node.outputs[0]), node.outputs[0])


@translates("GatherElements")
def _gather_elements(make: Builder, node: Source) -> None:
    table, indices = node.inputs
    shape, axis = make.shape(table), node.get("axis", 0) % make.rank(table)
    where = np.indices(make.shape(indices), np.int64)
    strides = [int(np.prod(shape[dim + 1 :])) for dim in range(len(shape))]
    rest = sum(where[dim] * strides[dim] for dim in range(len(shape)) if dim != axis)
    flat = _placed(make, indices, shape[axis], strides[axis])
    flat = make.node("Add", flat, make.constant(np.asarray(rest, np.int64)))
    found = make.gathered(make.reshape(table, (-1,)), 0, make.reshape(flat, (-1,)))
    make.reshape(found, make.shape(node.outputs[0]), node.outputs[0])


@translates("GatherND")
def _gather_nd(make: Builder, node: Source) -> None:
    (table, indices), batch = node.inputs, node.get("batch_dims", 0)
    shape, count = make.shape(table), make.shape(indices)[-1]
    rows = int(np.prod(shape[: batch + count]))
    total = ""
    for number in range(count):
        stride = int(np.prod(shape[batch + number + 1 : batch + count]))
        column = make.slice(indices, make.rank(indices) - 1, number, number + 1)
        placed = _placed(make, column, shape[batch + number], stride)
        total = make.node("Add", total, placed) if total else placed
    if batch:
        where = np.arange(int(np.prod(shape[:batch])), dtype=np.int64) * int(np.prod(shape[batch : batch + count]))
        start = where.reshape(*shape[:batch], *[1] * (make.rank(indices) - batch))
        total = make.node("Add", total, make.constant(start))
    flat = make.reshape(table, (rows, *shape[batch + count :]))
    found = make.gathered(flat, 0, make.reshape(total, (-1,)))
    make.reshape(found, make.shape(node.outputs[0]), node.outputs[0])


def _placed(make: Builder, indices: str, size: int, stride: int) -> str:
    """Return indices, of which negative ones count from the end of a dimension, times its stride."""
    indices = make.node("Move", indices, dtype=I64) if make.tensors[indices].dtype != I64 else indices
    zero, end, step = (make.constant(np.array(one, np.int64)) for one in (0, size, stride))
    behind = make.node("Less", indices, zero, dtype=BOOL)
    whole = make.node("Where", behind, make.node("Add", indices, end), indices, dtype=I64)
    return make.node("Mul", whole, step)
