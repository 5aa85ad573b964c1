"""Bounds: lower bounds on the cost of every Spec, without layouts and contiguity.

Input: `SearchTables`, and the goals as class tuples: of each operand only level, data type and vector size. Output:
`Bounds`, a lower bound for every class tuple, shape and value of the limits that matter. The *relaxed problem*
(`relaxed.py`) has the same steps as search, each with the least cost in its classes. Its optimum is therefore
admissible: no program costs less. `solve.py` computes it, space by space and smaller shapes first::

    kernels    cost of the kernel                        ┐
    loops      times · bound of each tile                ├─ least ──> bound
    pipelines  new tensors + bound of each part          │
    moves      both m + copies + bound after the move    ┘

Loops lead to smaller shapes and pipelines to other Specs, whose bounds are final by then. Moves form circles among the
Specs of one shape, and are repeated until nothing changes. This is in C: `bounds.c` iterates over shapes and computes
the bounds per level, `steps.c` and `moves.c` take the steps, which each kind returns as arrays (`fields` of its file,
`_bounds.h` for their meaning). `class_tuples.py` numbers class tuples and assigns their columns.

Where several limits are below the goals', the bound is the largest of those for one of these limits at a time: bounds
for combinations are hardly tighter, and take five times the memory. Limits of scalar registers, and of levels that no
operand has taken memory of yet, count as the goals'. A Spec without a program in the relaxed problem has none at all,
and costs infinity.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. Filling the product with zeros costs 7. Each of the
eight multiplications costs 16 with all operands in L1, and 12 with both factors in registers: 8 · 12 = 96. Moving a
factor there costs 2 for its line and 7 for each of 4 copies, 30 in all, and saves 8 · 2 = 16. So both stay in L1, and
7 + 8 · 16 = 135:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.solve.engine import Engine
>>> target = installed().target("x86_avx2")
>>> text = "Matmul(1×2×2×2, (u8, L1), (u8, L1), (u8, L1), serial)"
>>> bounds = Engine([parse_spec(text, target).logical], target).bounds
>>> def bound(op, *levels):
...     of_op = next(each for key, each in bounds.by_key.items() if str(key.op) == op)
...     names = [target.levels[cls.level].name for cls in bounds.states.classes]
...     classes = tuple(names.index(level) for level in levels)
...     return int(of_op.values[of_op.space.count - 1, of_op.full[of_op.tuples[classes]]])
>>> bound("MatmulAccum", "RF", "RF", "L1"), bound("Move", "L1", "RF"), bound("FillZero", "L1")
(96, 28, 7)
>>> bound("MatmulAccum", "L1", "L1", "L1"), bound("Matmul", "L1", "L1", "L1")
(128, 135)

```

Here the bound equals the cost of the cheapest program. It is lower where layouts matter, see the next folder.
"""
