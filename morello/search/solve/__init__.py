"""Solve: find the costs and programs of the goals, and expand as few Specs as possible.

Input: tables, bounds and goals. Output: the cost, peaks and program of each goal, or the proof that it has no program.
A *node* is a Spec, by number: operation and operand states (its *subproblem table*), shape, limits. Its bounds are
`low` and `high`. A step is a *hyperedge* from a node to those of its parts. Search is an AND-OR search: it follows the
hyperedge with the lowest bound to the part that adds the most, within a budget, which is the bound at which another
hyperedge is better. It returns with tighter bounds::

    solve(node, budget):                    # ends when low == high, or when low > budget
        while low < high and low <= budget:
            edge = the hyperedge with the lowest bound
            low  = that bound
            part = its unsolved part that adds the most to that bound
            solve(part, the cost up to which no other hyperedge is better)
            high = min(high, the cost of the programs of its parts)

Before a node is expanded, an *abstract* search raises its bound: the same problem with patterns for operand states and
without limits of memory, which is smaller and never costs more [Holte1996] (`abstract.c`, `abstraction.py`). It stops
as soon as the bound exceeds the budget, and keeps its bounds for later. The nodes of both searches begin with the
bounds of a still smaller problem, which considers the pattern of one operand at a time. It is solved beforehand
(`operand_bounds.c`, `operand_bounds.py`).

This is recursive best-first search with memory [Korf1993], in C:

| file | content |
|---|---|
| `state.h` | the state of a search |
| `nodes.c` | numbers nodes, stores their bounds, and recalls answers of earlier searches |
| `generate.c`, `pipelines.c` | generate the hyperedges of a node within a budget; limits of memory |
| `solve.c` | the recursion above |
| `choose.c` | chooses among the cheapest steps of each solved node the first in the target's order |

In Python, `marshal.py` converts tables and bounds to C, `core.py` wraps the functions of C, `solver.py` runs a search
and serves its requests, among others for the steps of generic rewrites, which have no tables (`generic_rewrites.py`).
`engine.py` assembles all parts, `directory.py` maps Specs to nodes and back, and `export.py` extracts solved nodes.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. Its bound is 135, and there is a program of that
cost, so its optimality is proven at once. Steps with higher bounds are never expanded, such as a move of a factor to
registers, 149:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.solve.engine import Engine
>>> from morello.search.solve.solver import Solver
>>> target = installed().target("x86_avx2")
>>> spec = parse_spec("Matmul(1×2×2×2, (u8, L1), (u8, L1), (u8, L1), serial)", target)
>>> engine = Engine([spec.logical], target)
>>> (goal,) = engine.directory.nodes_of([spec])
>>> engine.core.costs(goal)
(135.0, inf)
>>> solver = Solver(engine)
>>> solver.solve([goal])
>>> engine.core.costs(goal)
(135.0, 135.0)
>>> solver.choose([goal])
>>> str(engine.step(goal, engine.core.chosen(goal).priority))
'to_accum'

```
"""
