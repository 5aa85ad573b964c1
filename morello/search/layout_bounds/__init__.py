"""Layout bounds: lower bounds that know which way tensors lie in memory.

In go `Bounds`. Out comes `LayoutBounds`, which search takes together with those: of two lower bounds the larger is as
true. Operands are told apart by *pattern* (`patterns.py`): their class, the innermost dimension of their layout, and
the way values lie along it: apart, in runs, in one run, in strips or odd-even. Limits of memory are forgotten instead.
A `Grid` holds the bounds of a space, one per shape and combination of patterns, for Moves and for operations that are
taken apart with only some operands in registers. Where all go to registers at once, as in a Matmul, limits mostly
matter more, and grids are large: search asks for them (`everywhere`) where it takes long without, as it does for some
products with a matrix that lies in columns::

    Bounds ──> Grids: by class, under full limits
                 │   kernels, loops, pipelines, moves, smaller shapes first
                 └──────────────────────────────────> LayoutBounds

No bound is below that of `Bounds` under full limits, and nothing is moved to a level that it does not fit. Moves of one
operand are relaxed by their closure, so that one pass finds what any number of them comes to.

*A product of two 2×2 matrices* in the L1 cache of x86_avx2 may want one of them the other way round. With layouts
forgotten that costs 12: 2 for the line in L1, and with vectors of four values one load and one store, 5 each. But a
vector that is loaded from rows cannot be stored to columns. Values have to be copied one by one, 9 each:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.block_search import BlockSearch
>>> from morello.search.solve.engine import Engine
>>> target = installed().target("x86_avx2")
>>> spec = parse_spec("Move(2×2, (f32, L1, row_major), (f32, L1, col_major), serial)", target)
>>> engine = Engine([spec.logical], target)
>>> (key, by_class), = engine.bounds.by_key.items()
>>> last = by_class.space.count - 1
>>> int(by_class.values[last, by_class.full[0]])
12
>>> rows, columns = (int(engine.layouts.patterns.of[state]) for state in (0, 1))
>>> grid = engine.layouts.by_key[key]
>>> int(grid.values[last, grid.place[0][rows], grid.place[1][columns]])
36
>>> BlockSearch(target).solve(spec).cost
36

```
"""
