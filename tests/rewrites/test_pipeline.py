"""Laws of pipeline rewrites: lifetimes of new tensors, and unchanged results."""

from __future__ import annotations

import pytest

import morello
from morello.errors import Inapplicable
from morello.ir.impl import Node
from morello.rewrites.pipeline import lifetimes


@pytest.mark.parametrize(
    ("args", "held"),
    [
        ([(0, 2), (2, 3), (3, 1)], [(0,), (0, 1), (1,)]),
        ([(0, 2), (0, 3), (2, 3, 1)], [(0,), (0, 1), (0, 1)]),
        ([(0, 2), (2, 1), (0, 1)], [(0,), (0,), ()]),
        ([(0, 2), (0, 1), (2, 1)], [(0,), (0,), (0,)]),
        ([(0, 1)], [()]),
    ],
)
def test_new_tensors_are_held_from_their_first_use_to_their_last(
    args: list[tuple[int, ...]], held: list[tuple[int, ...]]
) -> None:
    """Operands 0 and 1 are the Spec's own, 2 and 3 the new tensors 0 and 1."""
    assert lifetimes(args, 2) == held


@pytest.mark.slow
def test_a_mean_is_a_sum_that_is_scaled(prove) -> None:
    goal = morello.goal("Mean(3×4, L1, L1, serial)", target="x86_avx2").apply("to_sum to L1\nsynthesize").synthesize()
    prove(goal.impl, goal.target)


def test_each_part_of_a_pipeline_runs_once() -> None:
    impl = morello.goal("Mean(3×4, L1, L1, serial)", target="x86_avx2").apply("to_sum to L1").impl
    assert isinstance(impl, Node)
    assert [part.times for part in impl.expansion.parts] == [1, 1]


@pytest.mark.slow
def test_intermediates_of_several_ranks_get_no_place_that_suits_one_rank_alone(prove) -> None:
    spec = "Compose([Max, OnePrefix, PRelu], [(2×3×2, f32, L1), (2×3×2, f32, L1), (1×2×3×1, f32, L1)], serial)"
    goal = morello.goal(spec, target="x86_avx2").synthesize()
    prove(goal.impl, goal.target)
    with pytest.raises(Inapplicable, match="nhwc describes tensors of 4 dimensions"):
        morello.goal(spec, target="x86_avx2").apply("bufferize to L1 as nhwc")
