"""The front: the corners of the hull of all programs, which no program beats."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise, product

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from morello_bounds.front import Pair, costs_of, front

import morello
from morello.api.goals import Goal
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Expansion, KernelCall, Loop, cost_and_peak, expand, leaves
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.testing.generate import RandomPrograms
from morello.testing.textbook import Textbook
from tools.fuzz.sweep import target_named

PRODUCT = "MatmulAccum(1×1×8×8, L2, L2, L2, serial)"


class Fronts(Textbook):
    """The recursion over single Specs, with all pairs of costs that no other program of a Spec beats."""

    def __init__(self, target: Target):
        super().__init__(target)
        self.known: dict[Spec, list[Pair]] = {}

    def of(self, spec: Spec) -> list[Pair]:
        if spec not in self.known:
            self.known[spec] = unbeaten(
                pair for one in self.expansions(spec.logical) for pair in self._beginning(spec, one)
            )
        return self.known[spec]

    def _beginning(self, spec: Spec, expansion: Expansion) -> Iterator[Pair]:
        node = expand(spec, expansion, self.target.grids)
        if node is None:
            return
        found = [own_costs(spec.logical, expansion, self.target)]
        for part, leaf in zip(expansion.parts, leaves(node), strict=True):
            times, below = int(part.times), self.of(leaf.spec)
            found = unbeaten((c + times * x, m + times * y) for (c, m), (x, y) in product(found, below))
        yield from found


def own_costs(logical: LogicalSpec, expansion: Expansion, target: Target) -> Pair:
    """The costs of computing and memory of a node without its parts."""
    cost = int(expansion.cost)
    if isinstance(expansion, Loop):
        return cost, 0
    if not isinstance(expansion, KernelCall) or logical.op.moves_data or logical.op.initializes:
        return 0, cost
    cache = next(level.name for level in target.levels if not level.is_register)
    near = (one if target.level(one.level).is_register else attrs.evolve(one, level=cache) for one in logical.states)
    called = target.kernels_by_name[expansion.kernel].call_cost(attrs.evolve(logical, states=tuple(near)), target)
    return min(int(called), cost), cost - min(int(called), cost)


def unbeaten(pairs: Iterable[Pair]) -> list[Pair]:
    kept: list[Pair] = []
    for compute, memory in sorted({*pairs}):
        if not kept or memory < kept[-1][1]:
            kept.append((compute, memory))
    return kept


def above(point: Pair, left: Pair, right: Pair) -> int:
    """Return a number that is positive above the line through two other points, and negative below it."""
    (x, y), (x0, y0), (x1, y1) = point, left, right
    return (x - x0) * (y0 - y1) + (y - y0) * (x1 - x0)


@pytest.mark.parametrize(
    "text",
    [
        "(MatmulAccum(1×2×1×8, C, C, (f32, C, col_major, ua, c1)), [8, 0, 32])",
        "(MatmulAccum(1×3×1×5, C, (f32, C, row_major, c0), R), [12, 32, 64])",
        "(Move(5×3, (f32, C, col_major, ua), (f32, MEM, row_major, c1)), [4, 32, 64])",
    ],
)
def test_points_are_the_corners_of_the_hull_of_all_programs(text: str) -> None:
    target = target_named("toy_cpu")
    spec = parse_spec(text, target)
    exact = Fronts(target).of(spec)
    points = [(one.compute, one.memory) for one in front(Goal.of(spec, target), db=False)]
    assert {*points} <= {*exact}
    assert len(exact) > 2
    corners = [
        one
        for one in exact
        if all(above(one, left, right) < 0 for left in exact if left < one for right in exact if right > one)
    ]
    assert {*corners} <= {*points}


@cache
def product_front() -> tuple[Goal, list[Pair]]:
    goal = morello.goal(PRODUCT, target="x86_avx2")
    return goal, [(one.compute, one.memory) for one in front(goal, db=False)]


def test_the_cheapest_point_is_the_program_of_search() -> None:
    goal, points = product_front()
    cost = cost_and_peak(goal.synthesize(db=False).impl).cost
    assert min(map(sum, points)) == cost
    assert len(points) > 1


@settings(max_examples=20)
@given(seed=st.integers(0, 10**9))
def test_no_program_is_below_the_front(seed: int) -> None:
    goal, points = product_front()
    drawn = RandomPrograms(goal.target, random.Random(seed)).draw(goal.spec)
    if drawn is not None:
        found = costs_of(drawn, goal.target)
        assert sum(found) == cost_and_peak(drawn).cost
        assert all(above(found, *pair) >= 0 for pair in pairwise(points))


def test_points_have_the_steps_of_a_schedule() -> None:
    goal = morello.goal(PRODUCT, target="x86_avx2").tile(1, 1, 4)
    for point in front(goal, db=False):
        assert point.goal.schedule.startswith(goal.schedule)
        assert cost_and_peak(point.goal.impl).cost == point.cost


def test_a_search_without_a_proof_is_an_error() -> None:
    goal = morello.goal(PRODUCT.replace("1×8×8", "64×64×64"), target="x86_avx2")
    with pytest.raises(MorelloError, match=r"1 · compute \+ 1 · memory, search did not prove the least.*\n.*--prove"):
        front(goal, db=False, budget=SearchBudget(expansions=1))
