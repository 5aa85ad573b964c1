"""Programs that trade computing for memory: the Pareto front of these two costs ([Kaufman2025] §6).

The computing cost of a program is that of starting threads and of kernels that compute, with operands in registers and
the fastest cache. Its memory cost is the rest: that of moves and their kernels, and what operands farther away cost the
others. Both are affine, and so is their sum with any weights. Search proves which program has the least sum, and with
positive weights, no other program beats that one in both costs.

`front` searches for one weighted sum after another [Aneja1979]: two neighbouring points give the next weights, those
with which they cost the same. So it finds the points that are cheapest for some weights: corners of the convex hull.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import attrs

from morello.api.goals import Goal
from morello.db.default import DatabaseLike
from morello.db.searches import Searches
from morello.errors import MorelloError
from morello.ir.dtypes import F32
from morello.ir.impl import Impl, Leaf, cost_and_peak
from morello.ir.numbers import Num, choose
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.machine import Machine
from morello.kernels.microkernel import Combined, CostPart, Microkernel
from morello.kernels.target import Target
from morello.schedule import Position, apply, schedule_of
from morello.search.budget import SearchBudget

#: The largest weight of one cost, as a multiple of the other's.
STEEPEST = 1024
#: Larger weights are rounded: search refuses costs from 2^53.
_LARGEST = 1 << 18
_FIELDS = frozenset(field.name for field in attrs.fields(OperandState))
#: Costs of computing and memory, or their weights.
Pair = tuple[int, int]


@attrs.frozen
class FrontPoint:
    """A program, as a goal, that no other one beats in both costs."""

    goal: Goal
    compute: int
    memory: int

    @property
    def cost(self) -> int:
        return self.compute + self.memory


def front(goal: Goal, db: DatabaseLike = None, budget: SearchBudget | None = None) -> list[FrontPoint]:
    """Return the points found among the programs that a goal's schedule allows, the least computing first.

    `db` serves the search for the least cost; `budget` is that of `Goal.synthesize`. Raises MorelloError for a search
    that ends without a proof.
    """
    found: dict[Pair, FrontPoint] = {}

    def add(weights: Pair) -> None:
        impl = _replayed(_cheapest(goal, weights, db, budget), goal.target)
        point = compute, memory = costs_of(impl, goal.target)
        made = attrs.evolve(goal, position=Position(impl), before_search=goal.scheduled)
        found.setdefault(point, FrontPoint(made, compute, memory))

    for weights in ((1, 1), (STEEPEST, 1), (1, STEEPEST)):
        add(weights)
    searched: set[tuple[Pair, Pair]] = set()
    while pair := next((one for one in pairwise(sorted(found)) if one not in searched), None):
        searched.add(pair)
        add(_weights(*pair))
    return [found[point] for point in sorted(found)]


def costs_of(impl: Impl, target: Target) -> Pair:
    """Return the costs of computing and of memory of a finished program for a target."""
    cost = cost_and_peak(impl).cost
    compute = cost_and_peak(_replayed(impl, weighted(target, 2, 1))).cost - cost
    return compute, cost - compute


def weighted(target: Target, compute: int, memory: int) -> Target:
    """Return the target whose costs are sums of those of computing and memory with these weights."""
    fastest = next(level.name for level in target.levels if not level.is_register)
    near = {level.name: level.name if level.is_register else fastest for level in target.levels}

    def changed(kernel: Microkernel) -> Microkernel:
        count = len(kernel.cost_parts)
        computes = not all(op.moves_data or op.initializes for op in kernel.operations(target))

        def total(*parts: Num | tuple[Num, ...]) -> Num:
            cost, least = _combined(kernel, parts[:count]), _combined(kernel, parts[count:])
            computing = choose(least < cost, least, cost) if computes else 0
            return compute * computing + memory * (cost - computing)

        parts = [partial(_part, target, part, levels) for levels in ({}, near) for part in kernel.cost_parts]
        return attrs.evolve(kernel, cost=Combined(total, tuple(parts)))

    return attrs.evolve(
        target,
        levels=tuple(
            attrs.evolve(
                one,
                hit_cost=memory * one.hit_cost,
                miss_cost=memory * one.miss_cost,
                start_cost=memory * one.start_cost,
            )
            for one in target.levels
        ),
        weights=attrs.evolve(target.weights, sync=compute * target.weights.sync),
        kernels=tuple(map(changed, target.kernels)),
    )


def _part(target: Target, part: CostPart, levels: Mapping[str, str], spec: LogicalSpec, _: Machine) -> Any:
    """Return a part of a cost on a target, with operands in other levels if there are some."""
    states = tuple(_StateElsewhere.of(state, levels) for state in spec.states) if levels else spec.states
    return part(attrs.evolve(spec, states=states), target)


def _combined(kernel: Microkernel, parts: Sequence[Any]) -> Num:
    """Return the cost of a kernel from its parts."""
    return kernel.cost.combine(*parts) if isinstance(kernel.cost, Combined) else parts[0]


class _StateElsewhere(OperandState):
    """The state of an operand in another level. It reads fields only when asked: search shares costs by fields read."""

    __slots__ = ("_levels", "_state")
    _state: OperandState
    #: The level in place of each.
    _levels: Mapping[str, str]

    @classmethod
    def of(cls, state: OperandState, levels: Mapping[str, str]) -> OperandState:
        made = cls(F32, "", None)
        object.__setattr__(made, "_state", state)
        object.__setattr__(made, "_levels", levels)
        return made

    def __getattribute__(self, name: str) -> Any:
        if name in _FIELDS:
            value = getattr(object.__getattribute__(self, "_state"), name)
            return object.__getattribute__(self, "_levels")[value] if name == "level" else value
        # States made from it, and states compared with it, are plain ones.
        return OperandState if name == "__class__" else object.__getattribute__(self, name)


def _weights(left: Pair, right: Pair) -> Pair:
    """Return the weights with which two points cost the same, up to rounding and within STEEPEST."""
    compute, memory = left[1] - right[1], right[0] - left[0]
    compute, memory = min(compute, STEEPEST * memory), min(memory, STEEPEST * compute)
    shared = max(math.gcd(compute, memory), -(-max(compute, memory) // _LARGEST))
    return compute // shared, memory // shared


def _cheapest(goal: Goal, weights: Pair, db: DatabaseLike, budget: SearchBudget | None) -> Impl:
    """Return the program with the least weighted sum of costs. Raises MorelloError without a proof."""
    compute, memory = weights
    target, store = (goal.target, db) if compute == memory else (weighted(goal.target, *weights), False)
    position = Position(_replayed(goal.scheduled, target))
    open_goal = Goal(goal.name, goal.spec, target, position, Searches(target), signature=goal.signature)
    found = open_goal.synthesize(store, budget=budget)
    if found.low < cost_and_peak(found.impl).cost:
        raise MorelloError(
            f"{goal.name}: of {compute} · compute + {memory} · memory, search did not prove the least: {found.proof}",
            "raise its limit by --effort or --time-limit, let it go on by --prove, or make the Spec smaller",
        )
    return found.impl


def _replayed(impl: Impl, target: Target) -> Impl:
    """Return the program, or its beginning, of the same steps for another target."""
    return apply(Position(Leaf(impl.spec)), schedule_of(impl), target, Leaf).impl
