"""Removes parts whose outputs nothing uses."""

from __future__ import annotations

from morello.models.graph import Graph, Part


def without_dead(graph: Graph) -> Graph:
    """Return the graph without parts whose outputs nothing uses."""
    used, kept = {*graph.outputs}, list[Part]()
    for part in reversed(graph.parts):
        if used.intersection(part.outputs):
            kept.append(part)
            used.update(part.inputs)
    return graph.with_parts(tuple(reversed(kept)))
