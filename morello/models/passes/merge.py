"""Merges additions and multiplications of constants that follow one another."""

from __future__ import annotations

import numpy as np

from morello.models.building import Builder
from morello.models.graph import Graph, Node
from morello.models.passes.rewriting import by_of, rewritten, with_constant


def merge(graph: Graph) -> Graph:
    """Return the graph with at most one Mul and one Add of constants in place of several, and of Sub, Div and Neg."""
    return rewritten(graph, _merged)


def numbers(graph: Graph) -> Graph:
    """Return the graph with numbers as parameters: Scale and Shift in place of Mul and Add of one value."""
    return rewritten(graph, _number)


def _merged(graph: Graph, node: Node, make: Builder) -> bool:
    link = line_of(graph, node)
    readers = graph.readers[node.outputs[0]]
    if not link or (
        graph.is_only_read(node.outputs[0]) and isinstance(readers[0], Node) and line_of(graph, readers[0])
    ):
        # The last one stands for all, and the others become dead.
        return False
    source, by, add = link
    while graph.is_only_read(source) and isinstance(before := graph.makers.get(source), Node):
        if not (link := line_of(graph, before)):
            break
        source, add, by = link[0], add + by * link[2], by * link[1]
    (output,) = node.outputs
    dtype, shape = graph.tensors[source].dtype.numpy, make.shape(output)
    if not _are_finite(dtype, by, add):
        return False
    scales, shifts = np.any(by != 1), np.any(add != 0)
    if not scales and not shifts:
        make.reshape(source, shape, output)
    if scales:
        source = make.node("Mul", source, make.constant(by.astype(dtype)), to="" if shifts else output, shape=shape)
    if shifts:
        make.node("Add", source, make.constant(add.astype(dtype)), to=output)
    return True


def line_of(graph: Graph, node: Node) -> tuple[str, np.ndarray, np.ndarray] | None:
    """Return a tensor x, b and a for a node that computes x·b + a with finite constants; None for another."""
    found, dtype = _line(graph, node), graph.tensors[node.outputs[0]].dtype.numpy
    return found if found and _are_finite(dtype, *found[1:]) else None


def _are_finite(dtype: np.dtype, *values: np.ndarray) -> bool:
    """Return True if all values are finite in a type."""
    with np.errstate(over="ignore"):
        return all(np.isfinite(one.astype(dtype)).all() for one in values)


def _line(graph: Graph, node: Node) -> tuple[str, np.ndarray, np.ndarray] | None:
    one, none = np.ones(()), np.zeros(())
    if not graph.tensors[node.outputs[0]].dtype.is_float:
        return None
    if node.op == "Neg":
        return node.inputs[0], -one, none
    if node.op == "Scale":
        return node.inputs[0], one * by_of(node), none
    if node.op == "Shift":
        return node.inputs[0], one, one * by_of(node)
    if node.op not in ("Mul", "Add", "Sub", "Div") or not (found := with_constant(graph, node)):
        return None
    source, constant = found
    value = graph.tensors[constant].value
    assert value is not None
    value = value.astype(np.float64)
    if graph.tensors[source].shape != graph.tensors[node.outputs[0]].shape:
        return None
    first = source == node.inputs[0]
    if node.op == "Mul":
        return source, value, none
    if node.op == "Add":
        return source, one, value
    if node.op == "Sub":
        return (source, one, -value) if first else (source, -one, value)
    return (source, 1 / value, none) if first and np.all(value != 0) else None


def _number(graph: Graph, node: Node, make: Builder) -> bool:
    if node.op not in ("Mul", "Add") or not (found := with_constant(graph, node)):
        return False
    source, constant = found
    value, kind = graph.tensors[constant].value, graph.tensors[source]
    assert value is not None
    if (
        value.size != 1
        or not kind.dtype.is_float
        or not np.isfinite(value).all()
        or kind.shape != make.shape(node.outputs[0])
    ):
        return False
    given = {"by": float(value.item())}
    make.node("Scale" if node.op == "Mul" else "Shift", source, to=node.outputs[0], given=given)
    return True
