"""Layout bounds: lower bounds that take account of the layouts of tensors.

Input: `Bounds`. Output: bounds that search uses together with those: the larger of two lower bounds is one as well.
A *pattern* (`patterns.py`) is an abstraction class of operand states: their class, the innermost dimension of their
layout, and the arrangement of values along it: apart, in runs, in runs a page apart, in one run, in strips, odd-even,
or unknown. Limits of memory are ignored, except that no operand moves to a level that it does not fit.

Copies come first: a `Grid` holds the bounds of a space of Moves, one per shape and pair of patterns, smaller shapes
first. From these follow the patterns that any number of moves can give an operand of any other Spec, and their least
costs (`TransitionClosure`). Threads that share a copy take at least their share of the time of one thread. The
abstract search bounds the steps after these moves, where search is about to expand a Spec (`solve/abstract.c`)::

    Bounds ──> Grids: kernels, loops, moves ──> TransitionClosure of operands ──> the abstract problem of `solve`

No bound is below that of `Bounds` under full limits.

*A product of two 2×2 matrices* in the L1 cache of x86_avx2 may need one of them transposed. Without layouts that costs
12: 2 for the line in L1, and with vectors of four values one load and one store, 5 each. But a vector that is loaded
from rows cannot be stored to columns. Values have to be copied one by one, 9 each:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.session import SearchSession
>>> from morello.search.solve.engine import Engine
>>> target = installed().target("x86_avx2")
>>> spec = parse_spec("Move(2×2, (f32, L1, row_major), (f32, L1, col_major), serial)", target)
>>> engine = Engine([spec.logical], target).refined()
>>> (key, by_class), = engine.bounds.by_key.items()
>>> last = by_class.space.count - 1
>>> int(by_class.values[last, by_class.full[0]])
12
>>> rows, columns = (int(engine.layouts.patterns.of[state]) for state in (0, 1))
>>> grid = engine.layouts.by_key[key]
>>> int(grid.bound(last, rows, columns))
36
>>> SearchSession(target).solve(spec).cost
36

```
"""
