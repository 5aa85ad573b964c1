"""Solve: costs and programs, of as few Specs as it takes.

In go Specs. Out come the cost of each, its peaks of memory and its program, or the certainty that there is none. A
*node* is a Spec: operation and operand states, shape, limits, by number; it is known between which costs its own must
be. Search goes down the step of a node that seems cheapest, to the part that weighs most, within a budget: until the
step has become dearer than the next one. Then it comes back, with better bounds or with a program::

    solve(node, budget):                    # after it, cost <= budget is known, or low > budget
        while low < high and low <= budget:
            step = the one that costs least by the bounds of its parts
            low  = that cost
            part = the one of its parts, not solved, that adds most to that cost
            solve(part, what it may cost until another step is cheaper)
            high = the cost of the step, if its parts have programs and it is less

Before it takes steps on a node, it asks an *abstract* search whether the node may cost so little at all: one of the
same problem with patterns for operand states and no limits of memory, which is smaller, and never costs more
[Holte1996] (`abstract.c`, `abstraction.py`). That looks no further than the question goes, and remembers, too. Before
it takes steps itself, it asks a third search in turn about each operand, of whose pattern alone that one knows: there
are far fewer combinations of one pattern with classes than of all, and mostly one operand is what makes a Spec dear.

That is recursive best-first search with memory [Korf1993], and it is in C: `state.h` has what is kept, `nodes.c`
numbers nodes, `generate.c` and `pipelines.c` take steps on a node as far as bounds let them, `solve.c` is the above,
`choose.c` chooses the step of each solved node that comes first among the cheapest, `recall.c` knows answers from
earlier, and `limits.c` reckons with limits of memory. Python hands over tables and bounds (`marshal.py`), starts it and
is asked now and then (`core.py`, `solver.py`), among other things for the steps of rewrites that there are no tables
for (`generic_rewrites.py`). `engine.py` puts it all together, `directory.py` leads from Specs to nodes and back, and
`export.py` gives out what is solved.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. Its bound is 135. There is a program that costs no
more, so it is proven cheapest at once, and what costs more is never looked at, such as the 149 of moving a factor to
registers before it is multiplied:

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
