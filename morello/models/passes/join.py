"""Joins products of one tensor, such as queries, keys and values, to one whose parts are views."""

from __future__ import annotations

import attrs
import numpy as np

from morello.models.building import Builder
from morello.models.graph import Graph, Node, View


@attrs.frozen
class _Branch:
    """A product with a constant, and the constant that is added to it; `output` is that of the last."""

    product: Node
    add: Node | None
    output: str


def join(graph: Graph) -> Graph:
    """Return the graph with one product for those of one tensor with constants that only views read.

    Others stay apart: the function of each value after a product would no longer be computed with it.
    """
    groups: dict[str, list[_Branch]] = {}
    for node in graph.nodes:
        if branch := _branch(graph, node):
            groups.setdefault(node.inputs[0], []).append(branch)
    several = [group for group in groups.values() if len(group) > 1]
    first = {id(group[0].product): group for group in several}
    replaced = {id(one) for group in several for branch in group for one in (branch.product, branch.add) if one}
    make = Builder(dict(graph.tensors))
    for part in graph.parts:
        make.source = part.name
        if id(part) in first:
            _add(make, first[id(part)])
        elif id(part) not in replaced:
            make.parts.append(part)
    return make.graph(graph.name, graph.inputs, graph.outputs)


def _branch(graph: Graph, node: Node) -> _Branch | None:
    if node.op != "Matmul" or not graph.is_constant(node.inputs[1]) or len(graph.tensors[node.inputs[1]].shape) != 2:
        return None
    output, add = node.outputs[0], None
    if graph.is_only_read(output) and isinstance(found := graph.readers[output][0], Node) and found.op == "Add":
        size = graph.tensors[output].shape[-1]
        other = graph.tensors[found.inputs[found.inputs[0] == output]]
        if other.value is None or other.shape[-1:] != (size,) or other.value.size != size:
            return None
        output, add = found.outputs[0], found
    read = graph.readers[output]
    is_seen = output not in graph.outputs and read and all(isinstance(one, View) for one in read)
    return _Branch(node, add, output) if is_seen else None


def _add(make: Builder, group: list[_Branch]) -> None:
    """Add the product of a group and the views of its parts."""
    source, sizes = group[0].product.inputs[0], [make.shape(one.output)[-1] for one in group]
    weights = np.concatenate([make.value(one.product.inputs[1], "weights") for one in group], 1)
    shape = (*make.shape(group[0].output)[:-1], sum(sizes))
    whole = make.node("Matmul", source, make.constant(weights), shape=shape)
    biases = [np.zeros(size, weights.dtype) for size in sizes]
    for number, one in enumerate(group):
        if one.add:
            constant = one.add.inputs[one.add.inputs[0] == one.product.outputs[0]]
            biases[number] = make.value(constant, "a bias").reshape(-1)
    if any(one.add for one in group):
        whole = make.node("Add", whole, make.constant(np.concatenate(biases)), shape=shape)
    start = 0
    for one, size in zip(group, sizes, strict=True):
        given = [*(slice(0, each, 1) for each in shape[:-1]), slice(start, start + size, 1)]
        make.view("slice", whole, given, one.output)
        start += size
