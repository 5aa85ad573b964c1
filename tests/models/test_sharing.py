"""Threads share loops of finished programs where that saves more than it costs."""

from __future__ import annotations

import pytest

import morello
from morello import api
from morello.models.sharing import shared

#: A kernel of a whole operation, a fit of one size, which is a loop, and an operation of a microsecond.
POOL = "MaxPool[stride=2](1×64×28×28×3×3, (f32, GL, nhwc), (f32, GL, nhwc), serial)"
#: Threads would share the channels of each pixel.
ODD = "MaxPool[stride=2](1×64×27×27×3×3, (f32, GL, nhwc), (f32, GL, nhwc), serial)"
LARGE, SMALL = (f"Relu({shape}, (f32, GL), (f32, GL), serial)" for shape in ("1024×256", "16×64"))


@pytest.mark.parametrize("text", [POOL, LARGE])
def test_loops_that_take_long_are_shared(text: str) -> None:
    kernel = api.compile(f"target x86_avx2\nspec p = {text}\n", db=False)
    goal = shared(kernel.goal, 2)
    assert " parallel" in str(goal.schedule)
    assert not goal.spec.logical.serial
    two = api.compile(goal, db=False)
    assert two.cost < 0.7 * kernel.cost
    assert "passed" in str(two.check())


def test_each_thread_has_half_of_all_loops() -> None:
    """Rows are odd: of 15 tiles of one, a thread has eight, and each has half of the columns instead."""
    goal = morello.goal("Relu(15×16384, (f32, GL), (f32, GL), serial)", target="x86_avx2")
    rows = goal.tile(1, 0).tile(1, 1024).synthesize(db=False, progress=False)
    assert shared(rows, 2).schedule.startswith("tile [0, 8192] parallel\ntile [1, 0]\ntile [1, 1024]\n")


@pytest.mark.parametrize("text", [SMALL, ODD])
def test_short_loops_and_short_runs_are_not_shared(text: str) -> None:
    kernel = api.compile(f"target x86_avx2\nspec p = {text}\n", db=False)
    assert shared(kernel.goal, 2) is kernel.goal
    assert shared(kernel.goal, 1) is kernel.goal
