"""Joins nodes and views that compute the same."""

from __future__ import annotations

import attrs

from morello.models.graph import Graph, Node, Part, Step, View


def without_doubles(graph: Graph) -> Graph:
    """Return the graph with one of all nodes, or views, that have the same inputs and parameters."""
    first: dict[object, Part] = {}
    names: dict[str, str] = {}
    parts: list[Part] = []
    for part in graph.parts:
        part = _renamed(part, names)
        other = first.setdefault(_key(graph, part), part)
        if other is part or set(part.outputs).intersection(graph.outputs):
            parts.append(part)
        else:
            names.update(zip(part.outputs, other.outputs, strict=True))
    return graph.with_parts(tuple(parts))


def _renamed(part: Part, names: dict[str, str]) -> Part:
    if isinstance(part, View):
        return attrs.evolve(part, source=names.get(part.source, part.source))
    if isinstance(part, Step):
        nodes = (attrs.evolve(one, inputs=tuple(names.get(name, name) for name in one.inputs)) for one in part.nodes)
        return Step.of(*nodes, outputs=part.outputs)
    return attrs.evolve(part, inputs=tuple(names.get(name, name) for name in part.inputs))


def _key(graph: Graph, part: Part) -> object:
    """Return what determines the values of a part's outputs."""
    kinds = tuple((graph.tensors[name].shape, graph.tensors[name].dtype) for name in part.outputs)
    if isinstance(part, Node):
        return part.op, part.inputs, tuple(sorted(part.parameters.items())), part.groups, kinds
    return id(part) if isinstance(part, Step) else (part.kind, part.source, str(part.given), kinds)
