"""Rules that replace single nodes, and what they look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from morello.models.building import Builder
from morello.models.graph import Graph, Node
from morello.models.passes.dead import without_dead

#: Adds parts that make the output of a node, and returns True; or False for a node that it leaves.
Rule: TypeAlias = Callable[[Graph, Node, Builder], bool]


def rewritten(graph: Graph, rule: Rule) -> Graph:
    """Return the graph with the nodes that a rule replaces, without those that nothing uses after that."""
    make = Builder(dict(graph.tensors))
    for part in graph.parts:
        make.source = part.name
        if not (isinstance(part, Node) and rule(graph, part, make)):
            make.parts.append(part)
    return without_dead(make.graph(graph.name, graph.inputs, graph.outputs))


def maker(graph: Graph, name: str, *ops: str) -> Node | None:
    """Return the node that makes a tensor, if it is one of these operations."""
    node = graph.makers.get(name)
    return node if isinstance(node, Node) and node.op in ops else None


def with_constant(graph: Graph, node: Node) -> tuple[str, str] | None:
    """Return the tensor and the constant that a node of two inputs reads; None if not exactly one is constant."""
    first, second = node.inputs
    if graph.is_constant(first) == graph.is_constant(second):
        return None
    return (second, first) if graph.is_constant(first) else (first, second)


def by_of(node: Node) -> float:
    """Return the number that a Scale or Shift has."""
    by = node.parameters["by"]
    assert isinstance(by, int | float)
    return float(by)
