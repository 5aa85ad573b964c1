"""Passes over graphs, one a file: each takes a graph and returns one that computes the same."""

from morello.models.graph import Graph
from morello.models.passes.absorb import absorb
from morello.models.passes.dead import without_dead
from morello.models.passes.fuse import fuse
from morello.models.passes.join import join
from morello.models.passes.merge import merge, numbers
from morello.models.passes.norms import norms
from morello.models.passes.same import without_doubles
from morello.models.passes.scales import scales
from morello.models.passes.words import words

#: The passes in the order in which they run.
PASSES = (without_dead, without_doubles, scales, merge, absorb, numbers, words, norms, join, fuse)


def simplified(graph: Graph) -> Graph:
    """Return the graph of steps, each for one kernel, and views."""
    for one in PASSES:
        graph = one(graph)
    return graph
