"""Solve: costs and programs, of as few Specs as it takes.

In go Specs. Out come the cost of each, its peaks of memory and its program, or the certainty that there is none. A
*cell* is a Spec: operation and operand states, shape, limits, by number (`cells.py`). `deepening.py` solves cells in
rounds. Budgets go down from the goals, a little more than the bounds at first, and more after each failure; costs come
up, until the goal's bounds from below and above meet::

    goal ──> expand ──> edges ──> cells of parts ──> expand ──> ...     budgets
     ^                    │
     └──── propagate <────┴──────────────────────────────────────       costs

`expand.py` takes all steps on many cells at once, as far as they can be within the budgets; rewrites of no kind that
there are arrays for are taken Spec by Spec (`one_by_one.py`). `propagate.py` adds up; `extraction.py` chooses the step
of each solved cell that comes first among the cheapest; `export.py` gives it all to the database. `engine.py` puts
tables, bounds and cells together, and `directory.py` leads from Specs to cells and back.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. Its bound is 135. Within that budget there is a
program, so it is proven cheapest in one round, and what costs more is never looked at, such as the 149 of moving a
factor to registers before it is multiplied:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.solve.deepening import Rounds
>>> from morello.search.solve.engine import Engine
>>> target = installed().target("x86_avx2")
>>> spec = parse_spec("Matmul(1×2×2×2, (u8, L1), (u8, L1), (u8, L1), serial)", target)
>>> engine = Engine([spec.logical], target)
>>> goal = engine.directory.cells_of([spec])
>>> engine.cells.low.values[goal], engine.cells.high.values[goal]
(array([135.]), array([inf]))
>>> rounds = Rounds(engine)
>>> rounds.solve(goal)
>>> rounds.count, engine.cells.low.values[goal], engine.cells.high.values[goal]
(1, array([135.]), array([135.]))
>>> rounds.choices.make(goal)
>>> str(engine.step(int(goal[0]), rounds.choices.priority(int(goal[0]))))
'to_accum'

```
"""
