"""Search: finds the cheapest program of a Spec, with a proof that there is none cheaper.

    Specs ──> tables ──> bounds ──> layout_bounds ──> solve ──> programs

    tables         what there is: shapes, operand states, and what every step makes of them
    bounds         lower bounds on costs, by level and data type of operands
    layout_bounds  lower bounds of copies that know layouts, too
    solve          costs and programs, looking only at what the bounds leave open

Each folder opens with a page of its own, with one worked example: a product of two 2×2 matrices. In each of the first
three a kind of step has a file of its own: kernels, loops, pipelines, moves; `step_kinds.py` lists them. The entry
point is `session.py`.
"""
