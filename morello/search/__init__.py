"""Search: find the cheapest program of a Spec and prove that it is optimal.

    Specs ──> tables ──> bounds ──> layout_bounds ──> solve ──> programs

    tables         shapes, operand states, and the expansions by every step
    bounds         lower bounds on costs, by level and data type of operands
    layout_bounds  lower bounds on copies that distinguish layouts, too
    solve          costs and programs: expands only nodes that the bounds leave open

Each folder opens with a page that works out one example: a product of two 2×2 matrices. In each of the first three, the
kinds of step, kernels, loops, pipelines and moves, have code of their own; `step_kinds.py` lists them. The entry point
is `session.py`.
"""
