"""Tables: all that is known before any cost, as arrays.

In go the logical Specs of some goals and a target. Out comes `SearchTables`: the shapes that Specs below the goals can
have, the operand states that there are, and one table per step, made by calling the rewrites' and kernels' own
functions on whole batches::

    goals ──> shapes ──┬── loops ──────┐
                       ├── pipelines ──┼──> operand_states ──> kernels
                       └── moves ──────┘

`shapes` asks each kind of step which sizes it leads to, until there are no new ones; `operand_states` asks each which
states it makes of a state, until there are no new ones. `step_tables.py` says what a kind has to answer; `limits.py`
numbers memory limits, and `priorities.py` the places of steps in the target's order, which break ties.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. A Matmul becomes a FillZero and a MatmulAccum, and
its operands are copied by Moves. Matmul keeps its sum whole, so only MatmulAccum has all eight shapes of sizes 1 and 2:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.step_kinds import KINDS
>>> from morello.search.tables.kernels import KernelTables
>>> from morello.search.tables.loops import LoopTables
>>> from morello.search.tables.search_tables import SearchTables
>>> target = installed().target("x86_avx2")
>>> goal = parse_spec("Matmul(1×2×2×2, (u8, L1), (u8, L1), (u8, L1), serial)", target).logical
>>> tables = SearchTables([goal], target, [kind.tables for kind in KINDS])
>>> {str(key.op): space.count for key, space in tables.spaces.by_key.items()}
{'Matmul': 4, 'FillZero': 4, 'MatmulAccum': 8, 'Move': 4}

```

Matrices, their rows, columns and values have eight states, in L1 and in scalar registers: four bytes fill no vector.

```pycon
>>> len(tables.states), [target.levels[cls.level].name for cls in tables.states.classes]
(8, ['L1', 'RF'])

```

Three loops take the MatmulAccum apart, each into two halves. One kernel does what is left, a single multiplication:
it costs 10, and 2 for each of three operands that it finds in L1.

```pycon
>>> accum = next(key for key in tables.spaces.by_key if str(key.op) == "MatmulAccum")
>>> [(str(loop.step), int(loop.parts[0].times.max())) for loop in tables.of(LoopTables).by_key[accum]]
[('tile [0, 1, 0, 0]', 2), ('tile [0, 0, 0, 1]', 2), ('split 1', 2)]
>>> kernels = tables.of(KernelTables).by_key[accum]
>>> costs = [kernel.costs[kernel.which, 0] for kernel in kernels]
>>> {str(kernel.step) for kernel in kernels}, sorted(int(cost) for each in costs for cost in each)
({'select MultAdd'}, [10, 12, 12, 12, 14, 14, 14, 16])

```
"""
