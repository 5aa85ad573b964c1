"""Bounds: the least that every Spec can cost, with layouts and contiguity forgotten.

In go `SearchTables` and the goals as class tuples: of each operand only level, data type and vector size. Out comes
`Bounds`: a lower bound for every class tuple, shape and value of the limits that matter. The *relaxed problem*
(`relaxed.py`) has the same steps as search, each at its cheapest in the classes, so that its optimum is admissible:
never more than any program costs. `solve.py` finds that optimum by asking each kind of step, smaller shapes first::

    kernels    what the kernel costs                        ┐
    loops      times · bound of each tile                   ├─ least ──> bound
    pipelines  new tensors + bound of each part             │
    moves      both m + copies + bound after the move       ┘

Loops lead to smaller shapes and pipelines to other Specs, whose bounds are known by then; moves go round among Specs
of one shape until nothing changes. Parallel loops are many and are looked at together (`parallel.py`). Limits of
scalar registers, and of levels that nothing has been taken of yet, are taken to be all there is. What has no program in
the relaxed problem has none at all, and costs infinity.

*A product of two 2×2 matrices* in the L1 cache of x86_avx2. A multiplication costs 7 with all its operands in L1 and
3 with both factors in registers: 8 · 3 = 24. To move a factor to registers costs 2 for its line and 4 copies of 3
each: 14. To fill the product with zeros costs 2. So the factors are moved, and 2 + 14 + 14 + 24 = 54:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.solve.engine import Engine
>>> target = installed().target("x86_avx2")
>>> bounds = Engine([parse_spec("Matmul(1×2×2×2, L1, L1, L1, serial)", target).logical], target).bounds
>>> def bound(op, *levels):
...     of_op = next(each for key, each in bounds.by_key.items() if str(key.op) == op)
...     names = [target.levels[cls.level].name for cls in bounds.states.classes]
...     classes = tuple(names.index(level) for level in levels)
...     return int(of_op.values[of_op.space.count - 1, of_op.full[of_op.tuples[classes]]])
>>> bound("MatmulAccum", "RF", "RF", "L1"), bound("Move", "L1", "RF"), bound("FillZero", "L1")
(24, 12, 2)
>>> bound("MatmulAccum", "L1", "L1", "L1"), bound("Matmul", "L1", "L1", "L1")
(52, 54)

```

Here that is what the cheapest program costs. It is less where layouts matter, as the next folder shows.
"""
