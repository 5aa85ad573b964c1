"""Multiplies products by numbers, in place of what they multiply."""

from __future__ import annotations

import numpy as np

from morello.ir.dtypes import F16
from morello.models.building import Builder
from morello.models.graph import Graph, Node
from morello.models.passes.merge import line_of
from morello.models.passes.rewriting import rewritten


def scales(graph: Graph) -> Graph:
    """Return the graph with multiplications by a number after products of matrices, whose kernels include them."""
    return rewritten(graph, _after)


def _after(graph: Graph, node: Node, make: Builder) -> bool:
    total, inputs = 1.0, list[str]()
    for name in node.inputs if node.op == "Matmul" else ():
        before = graph.makers.get(name)
        line = line_of(graph, before) if isinstance(before, Node) and graph.is_only_read(name) else None
        if line and line[1].size == 1 and not line[2].any():
            total *= float(line[1].item())
            name = line[0]
        inputs.append(name)
    if node.op != "Matmul" or tuple(inputs) == node.inputs or abs(total) > np.finfo(np.float32).max:
        return False
    if make.tensors[node.outputs[0]].dtype == F16:
        # Without the scale, sums may exceed its range.
        return False
    made = make.node("Matmul", *inputs, shape=make.shape(node.outputs[0]))
    make.node("Scale", made, to=node.outputs[0], given={"by": total})
    return True
