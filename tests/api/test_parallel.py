"""`synthesize_all`: budgets of their own, and results as they are done."""

from __future__ import annotations

import pytest

import morello
from morello import api
from morello.api import Goal, SearchBudget

TEXT = "target x86_avx2\nspec a = Matmul(1×64×64×64, GL, GL, GL, serial)\nspec b = Relu(8, L1, L1)\n"


def found(jobs: int, *texts: str) -> tuple[list[Goal], list[tuple[int, Goal]]]:
    goals, done = [*morello.parse("\n".join([TEXT, *texts])).values()], list[tuple[int, Goal]]()
    budgets = [SearchBudget(expansions=20), *[SearchBudget(memory=1 << 40)] * (len(goals) - 1)]
    return api.synthesize_all(goals, None, budgets, jobs, lambda *one: done.append(one)), done


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_each_goal_has_its_budget(jobs: int) -> None:
    goals, done = found(jobs)
    assert [goal.proof == "optimal" for goal in goals] == [False, True]
    assert dict(done) == dict(enumerate(goals))


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_goal_that_fails_is_named(jobs: int) -> None:
    with pytest.raises(morello.MorelloError, match=r"^none: "):
        found(jobs, "spec none = (Matmul(1×8×8×8, GL, GL, GL, serial), [0, 0, 0, 0, 0, 0])")
