"""Tables: all steps of the reachable Specs, as arrays, before any cost is compared.

The input is the logical Specs of some goals and a target. The output is `SearchTables`: the reachable shapes, the
operand states, and one table per step, built by calling the rewrites' and kernels' own functions on whole batches::

    goals ──> shapes ──┬── loops ──────┐
                       ├── pipelines ──┼──> operand_states ──> kernels
                       └── moves ──────┘

`shapes` and `operand_states` compute closures: each kind of step lists the sizes and states it leads to, until none is
new. `step_tables.py` defines the interface of a kind, and the priorities of steps, which break ties; `limits.py`
numbers memory limits.

*A product of two 2×2 matrices* of u8 in the L1 cache of x86_avx2. A Matmul expands to a FillZero and a
MatmulAccum, and Moves copy its operands. Only MatmulAccum may split the sum, so it alone has all eight shapes of sizes
1 and 2:

```pycon
>>> from morello.frontend.parser import parse_spec
>>> from morello.plugins.registry import installed
>>> from morello.search.step_kinds import KINDS
>>> from morello.search.tables.kernels import KernelTables
>>> from morello.search.tables.loops import LoopTables
>>> from morello.search.tables.step_tables import SearchTables
>>> target = installed().target("x86_avx2")
>>> goal = parse_spec("Matmul(1×2×2×2, (u8, L1), (u8, L1), (u8, L1), serial)", target).logical
>>> tables = SearchTables([goal], target, [kind.tables for kind in KINDS])
>>> {str(key.op): space.count for key, space in tables.spaces.by_key.items()}
{'Matmul': 4, 'FillZero': 4, 'MatmulAccum': 8, 'Move': 4}

```

Matrices, rows, columns and single values have eight states, in L1 and in scalar registers: four bytes fill no vector.

```pycon
>>> len(tables.states), [target.levels[cls.level].name for cls in tables.states.classes]
(8, ['L1', 'RF'])

```

Three loops split the MatmulAccum into halves. One kernel implements the single multiplication that remains: it costs
10, plus 2 for each of its three operands that is in L1.

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
