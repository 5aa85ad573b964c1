"""Views, and other movement of data."""

from __future__ import annotations

import numpy as np

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
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise Unsupported(f"a slice of step {step}")
        given[axis] = slice(*slice(start, end, step).indices(shape[axis]))
    make.view("slice", node.inputs[0], given, node.outputs[0])


@translates("Split")
def _split(make: Builder, node: Source) -> None:
    axis, start = node.get("axis", 0), 0
    axis %= make.rank(node.inputs[0])
    for output in node.outputs:
        size = make.shape(output)[axis]
        given = [slice(0, each, 1) for each in make.shape(node.inputs[0])]
        given[axis] = slice(start, start + size, 1)
        make.view("slice", node.inputs[0], given, output)
        start += size


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


@translates("Gather")
def _gather(make: Builder, node: Source) -> None:
    table, indices = node.inputs
    axis = node.get("axis", 0) % make.rank(table)
    found = make.tensors[indices].value
    if found is not None and found.size == 1:
        at = int(found.item()) % make.shape(table)[axis]
        given = [slice(0, each, 1) for each in make.shape(table)]
        given[axis] = slice(at, at + 1, 1)
        make.reshape(make.view("slice", table, given), make.shape(node.outputs[0]), node.outputs[0])
        return
    shape = make.shape(table)
    count = int(np.prod(make.shape(indices)))
    flat = make.reshape(indices, (count,))
    rows = make.node("Gather", table, flat, shape=(*shape[:axis], count, *shape[axis + 1 :]), given={"dim": axis})
    make.reshape(rows, make.shape(node.outputs[0]), node.outputs[0])
