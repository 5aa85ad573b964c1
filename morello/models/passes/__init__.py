"""Passes over graphs, one a file: each takes a graph and returns one that computes the same."""

from morello.models.graph import Graph
from morello.models.passes.absorb import absorb
from morello.models.passes.dead import without_dead
from morello.models.passes.fuse import fuse

#: The passes in the order in which they run.
PASSES = (without_dead, absorb, fuse)


def simplified(graph: Graph) -> Graph:
    """Return the graph of steps, each for one kernel, and views."""
    for one in PASSES:
        graph = one(graph)
    return graph
