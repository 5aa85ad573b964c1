"""Bounds: the least that every Spec can cost, with layouts and contiguity forgotten.

In go `SearchTables` and the goals as class tuples: of each operand only level, data type and vector size. Out comes
`Bounds`: a lower bound for every class tuple, shape and value of the limits that matter. The *relaxed problem*
(`relaxed.py`) has the same steps as search, each at its cheapest in the classes, so that its optimum is admissible:
never more than any program costs. `solve.py` finds that optimum, space by space and smaller shapes first::

    kernels    what the kernel costs                        ┐
    loops      times · bound of each tile                   ├─ least ──> bound
    pipelines  new tensors + bound of each part             │
    moves      both m + copies + bound after the move       ┘

Loops lead to smaller shapes and pipelines to other Specs, whose bounds are known by then; moves go round among Specs
of one shape until nothing changes. That is in C: `bounds.c` goes through the shapes, `steps.c` and `moves.c` take the
steps that each kind has handed over in arrays (`pack` of its file; `_bounds.h` says what they hold), and `per_level.c`
goes through all limits of a level at once. `class_tuples.py` numbers class tuples and lays out the limits of each.
Where limits of several levels are less than the goals', the bound is the largest of those for one of them at a time:
together they hardly tell more, and take five times the memory. Limits of scalar registers, and of levels that nothing
has been taken of yet, are taken to be the goals'. What has no program in the relaxed problem has none at all, and costs
infinity.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. To fill the product with zeros costs 7. Each of the
eight multiplications costs 16 with all its operands in L1, and 12 with both factors in registers: 8 · 12 = 96. To move
a factor there costs 2 for its line and 4 copies of 7 each, 30 in all, and saves 8 · 2 = 16. So both stay in L1, and
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

Here that is what the cheapest program costs. It is less where layouts matter, as the next folder shows.
"""
