"""Replaces norms that are spelled out by those of the language: LayerNorm, RMSNorm."""

from __future__ import annotations

import numpy as np

from morello.models.building import Builder
from morello.models.graph import Graph, Node
from morello.models.passes.rewriting import by_of, maker, rewritten, with_constant


def norms(graph: Graph) -> Graph:
    """Return the graph with LayerNorm and RMSNorm in place of what computes them, with scale and bias."""
    return rewritten(graph, _norm)


def _norm(graph: Graph, node: Node, make: Builder) -> bool:
    name, biased = node.outputs[0], False
    beta, gamma = np.zeros(()), np.ones(())
    for op in ("Add", "Mul"):
        found = maker(graph, name, op)
        pair = found and with_constant(graph, found)
        if pair:
            value, width = graph.tensors[pair[1]].value, graph.tensors[name].shape[-1]
            assert value is not None
            if value.shape[-1:] == (width,) and value.size == width:
                name, beta, gamma = pair[0], *((value, gamma) if op == "Add" else (beta, value))
                biased = biased or op == "Add"
    if not (core := _core(graph, name)):
        return False
    x, eps, centred = core
    if biased and not centred:
        return False
    shape = (*[1] * (make.rank(x) - 1), make.shape(x)[-1])
    kind = make.tensors[x].dtype.numpy
    parameters = [gamma, beta] if centred else [gamma]
    constants = [make.constant(np.ascontiguousarray(np.broadcast_to(one, shape), kind)) for one in parameters]
    make.node("LayerNorm" if centred else "RMSNorm", x, *constants, to=node.outputs[0], given={"eps": eps})
    return True


def _core(graph: Graph, name: str) -> tuple[str, float, bool] | None:
    """Return x, eps and whether the mean is subtracted, for a tensor that is x divided by its deviation."""
    if node := maker(graph, name, "Div"):
        above, root = node.inputs[0], maker(graph, node.inputs[1], "Sqrt")
        found = root and _square(graph, above, root.inputs[0])
    elif node := maker(graph, name, "Mul"):
        above, found = "", None
        for above, other in (node.inputs, node.inputs[::-1]):
            if root := _inverse_root(graph, other):
                found = _square(graph, above, root)
                break
    else:
        return None
    if not found:
        return None
    rank = len(graph.tensors[above].shape)
    sub = maker(graph, above, "Sub")
    if sub and _mean(graph, sub.inputs[1], rank) == sub.inputs[0]:
        return sub.inputs[0], found, True
    return above, found, False


def _inverse_root(graph: Graph, name: str) -> str | None:
    """Return the tensor of which another is 1/√."""
    if node := maker(graph, name, "Rsqrt"):
        return node.inputs[0]
    one = maker(graph, name, "Reciprocal")
    if not one and (div := maker(graph, name, "Div")) and graph.is_constant(div.inputs[0]):
        value = graph.tensors[div.inputs[0]].value
        one = div if value is not None and np.all(value == 1) else None
    root = one and maker(graph, one.inputs[-1], "Sqrt")
    return root.inputs[0] if root else None


def _square(graph: Graph, x: str, name: str) -> float | None:
    """Return eps for a tensor that is the mean of the squares of x, plus eps."""
    shift = maker(graph, name, "Shift")
    squares = shift and _mean(graph, shift.inputs[0], len(graph.tensors[x].shape))
    node = squares and maker(graph, squares, "Mul", "Pow")
    if not shift or not node or node.inputs[0] != x:
        return None
    exponent = graph.tensors[node.inputs[1]].value
    is_square = node.inputs[1] == x if node.op == "Mul" else exponent is not None and np.all(exponent == 2)
    return by_of(shift) if is_square else None


def _mean(graph: Graph, name: str, rank: int) -> str | None:
    """Return the tensor of which another is the mean along the last dimension."""
    node = maker(graph, name, "Mean")
    return node.inputs[0] if node and node.parameters["dim"] == (rank - 1,) else None
