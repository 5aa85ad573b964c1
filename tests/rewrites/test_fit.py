"""fit: tiles of several sizes that cover a dimension exactly."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import morello
from morello.errors import Inapplicable
from morello.frontend.parser import parse_schedule, parse_spec
from morello.ir.impl import Impl, Loop, Node, Part, figures, walk
from morello.kernels.target import Target
from morello.rewrites import ExactFit
from morello.search.block_search import BlockSearch


def matmul(shape: str = "1×34×8×16", op: str = "MatmulAccum", operands: str = "GL, GL, GL") -> morello.Goal:
    return morello.goal(f"{op}({shape}, {operands}, serial)", target="x86_avx2")


def parts(goal: morello.Goal) -> tuple[Part, ...]:
    assert isinstance(goal.impl, Node)
    assert isinstance(goal.impl.expansion, Loop)
    return goal.impl.expansion.parts


def covered(goal: morello.Goal, dim: int) -> list[tuple[int, int, int]]:
    regions = [part.region[dim] for part in parts(goal) if part.region]
    return [(int(one.start), int(one.size), int(one.trips)) for one in regions]


def test_34_rows_are_two_tiles_of_11_and_one_of_12() -> None:
    goal = matmul().fit(1, 11, 12)
    assert covered(goal, 1) == [(0, 11, 2), (22, 12, 1)]
    assert covered(goal, 3) == [(0, 16, 1)] * 2
    assert [(part.role, part.times, part.logical.shape) for part in parts(goal)] == [
        ("body", 2, (1, 11, 8, 16)),
        ("body", 1, (1, 12, 8, 16)),
    ]
    assert goal.schedule == "fit 1 [11, 12]"
    assert parse_schedule(goal.schedule, goal.target) == (ExactFit(1, (11, 12)),)


@given(st.integers(1, 60), st.lists(st.integers(1, 12), min_size=1, max_size=3, unique=True))
def test_tiles_cover_the_dimension_and_are_as_few_as_possible(extent: int, sizes: list[int]) -> None:
    assume(extent > max(sizes))
    trips = [
        one
        for one in itertools.product(*(range(1, extent // size + 1) for size in sizes))
        if sum(size * times for size, times in zip(sizes, one, strict=True)) == extent
    ]
    goal = matmul(f"1×{extent}×2×2")
    if not trips:
        with pytest.raises(Inapplicable, match="no number of tiles"):
            goal.fit(1, sizes)
        return
    by_size = sorted(range(len(sizes)), key=lambda at: -sizes[at])
    best = min(trips, key=lambda one: (sum(one), [-one[at] for at in by_size]))
    found = covered(goal.fit(1, sizes), 1)
    assert [(size, times) for _, size, times in found] == list(zip(sizes, best, strict=True))
    starts = itertools.accumulate((size * times for _, size, times in found), initial=0)
    assert [start for start, _, _ in found] == list(starts)[:-1]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda goal: goal.fit(4, 2), "no dimension 4"),
        (lambda goal: goal.fit(1, 11, 11), "each is given once"),
        (lambda goal: goal.fit(1, 0, 34), "are positive"),
        (lambda goal: goal.fit(1, 34), "as large as it is: m is 34"),
        (lambda goal: goal.fit(1, 10, 20), "no number of tiles of 10 and 20 makes 34, the size of m"),
        (lambda goal: goal.fit(1, 12, 34), "as large as it is"),
    ],
)
def test_steps_that_do_not_apply_say_why(step: Callable[[morello.Goal], morello.Goal], message: str) -> None:
    with pytest.raises(Inapplicable, match=message):
        step(matmul())


def test_what_tile_keeps_whole_is_kept_whole() -> None:
    with pytest.raises(Inapplicable, match="needs k whole"):
        matmul("1×4×12×16", op="Matmul").fit(2, 6)
    assert covered(matmul("1×4×12×16").fit(2, 6), 2) == [(0, 6, 2)]
    packed = "L1, (f32, L1, layout[0, 2, 1, 2p16]), L1"
    with pytest.raises(Inapplicable, match="breaks up strips"):
        matmul("1×4×8×48", operands=packed).fit(3, 12)
    with pytest.raises(Inapplicable, match="breaks up strips"):
        matmul("1×4×8×48", operands=packed).fit(3, 4, 16, 8)  # Those of 16 would start at 8.
    assert covered(matmul("1×4×8×48", operands=packed).fit(3, 16, 8, 4), 3) == [(0, 16, 2), (32, 8, 1), (40, 4, 2)]
    with pytest.raises(Inapplicable, match="split its vectors of 8"):
        matmul("1×4×8×24", operands="L1, L1, (f32, VRF, row_major, v8)").fit(3, 12)


def test_tiles_are_aligned_only_where_they_start_so(avx2: Target) -> None:
    strict = attrs.evolve(avx2, levels=tuple(attrs.evolve(level, alignment=16) for level in avx2.levels))

    def aligned(goal: morello.Goal) -> list[bool]:
        return [part.logical.states[0].aligned for part in parts(goal)]

    row = morello.Goal.of(parse_spec("FillZero(1×22, GL, serial)", strict), strict)
    assert aligned(row.fit(1, 7, 8)) == [False, False]
    assert aligned(row.fit(1, 8, 7)) == [True, False]
    row = morello.Goal.of(parse_spec("FillZero(1×33, GL, serial)", strict), strict)
    assert aligned(row.tile(1, 17)) == [False, False]


def test_search_tries_it_where_sizes_are_no_powers_of_two() -> None:
    def tried(shape: str) -> list[str]:
        goal = matmul(shape)
        return [str(step) for step in ExactFit.steps(goal.spec.logical, goal.target)]

    assert tried("1×64×34×16") == []
    assert tried("1×34×64×64") == ["fit 1 [12, 11]", "fit 1 [8, 9]", "fit 1 [6, 7]", "fit 1 [6, 5]", "fit 1 [4, 5]"]
    assert tried("1×4×64×30") == ["fit 3 [15]", "fit 3 [10]", "fit 3 [8, 7]", "fit 3 [6]", "fit 3 [4, 5]", "fit 3 [5]"]


@pytest.mark.slow
def test_the_model_prefers_it_where_few_accumulators_fit(avx2: Target) -> None:
    """34 rows in eight vector registers: tiles of 4 and 2 load each value of rhs nine times, those of 5 and 4 seven."""
    without = attrs.evolve(avx2, rewrites=tuple(one for one in avx2.rewrites if one is not ExactFit))
    text = "(MatmulAccum(1×34×16×8, L1, L1, L1, serial), [8, 256, 0, 0])"
    found = BlockSearch(avx2).synthesize(parse_spec(text, avx2))
    plain = BlockSearch(without).synthesize(parse_spec(text, without))
    assert figures(found).cost < figures(plain).cost
    assert isinstance(found, Node)
    assert str(found.expansion.step) == "fit 1 [4, 5]"
    assert [(part.role, part.times) for part in found.expansion.parts] == [("body", 1), ("body", 6)]
    assert boundaries_with_accumulators(found) == 0 < boundaries_with_accumulators(plain)


def boundaries_with_accumulators(impl: Impl) -> int:
    """Count the remainder kernels: boundaries that move their output to registers of their own."""
    return sum(
        any(str(below.expansion.step).startswith("move 2 to VRF") for below in walk(child) if isinstance(below, Node))
        for node in walk(impl)
        if isinstance(node, Node)
        for part, child in zip(node.expansion.parts, node.children, strict=True)
        if part.role == "boundary"
    )
