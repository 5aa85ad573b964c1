"""Joins a product or convolution and the functions of each value after it to one step."""

from __future__ import annotations

from morello.ir.ops import BY_NAME
from morello.ir.ops.binary import Binary
from morello.ir.ops.unary import Unary
from morello.models.graph import Graph, Node, Part, Step

#: The most nodes of a step: searches of more take long.
_MOST = 5
_PRODUCTS = ("Conv", "Conv1d", "Conv3d", "ConvTranspose", "Matmul")


def fuse(graph: Graph) -> Graph:
    """Return the graph with each node in a step; a step is where its last node was."""
    steps: dict[int, Step] = {}
    taken: set[int] = set()
    for part in graph.parts:
        if isinstance(part, Node) and id(part) not in taken:
            nodes = _followed(graph, part, taken)
            taken.update(map(id, nodes))
            steps[id(nodes[-1])] = Step.of(*nodes)
    parts: list[Part] = []
    for part in graph.parts:
        if not isinstance(part, Node):
            parts.append(part)
        elif id(part) in steps:
            parts.append(steps[id(part)])
    return graph.with_parts(tuple(parts))


# A softmax between two products is a step of its own. With 8 heads of 128 rows of 64 values in AVX-512, attention as
# one kernel takes 342 µs, as three 336; with 4 heads of 1024 rows 12.7 and 12.1 ms, with 12 of one row 7.9 and 7.5 µs.
def _followed(graph: Graph, first: Node, taken: set[int]) -> list[Node]:
    """Return a node, and those after it that compute functions of each of its values."""
    nodes = [first]
    if first.op not in _PRODUCTS and not is_elementwise(first.op):
        return nodes
    while len(nodes) < _MOST:
        made = nodes[-1].outputs[0]
        if not graph.is_only_read(made) or not isinstance(after := graph.readers[made][0], Node):
            break
        if id(after) in taken or not is_elementwise(after.op) or not _alike(graph, after, made):
            break
        nodes.append(after)
    return nodes


def _alike(graph: Graph, node: Node, made: str) -> bool:
    """Return whether a node computes floats of the shape and type of this input."""
    one, out = graph.tensors[made], graph.tensors[node.outputs[0]]
    types = {graph.tensors[name].dtype for name in (*node.inputs, *node.outputs)}
    return one.shape == out.shape and types == {one.dtype} and one.dtype.is_float


def is_elementwise(op: str) -> bool:
    """Return whether an operation computes each value of its output from one of each input."""
    return isinstance(BY_NAME.get(op), (Unary, Binary))
