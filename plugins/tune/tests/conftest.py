"""Small products and sums to tune, found by search once."""

from __future__ import annotations

from functools import cache

import pytest
from morello_tune import TuningCandidate

from morello import api
from morello.api.goals import Goal
from morello.search.budget import SearchBudget

#: Little memory, so that small products have several tiles in each level.
LIMITS = "[64, 512, 512, 4096, 0, 1048576]"
SPECS = {
    "product": f"(Matmul(1×24×16×32, (f32, GL), (f32, GL), (f32, GL), serial), {LIMITS})",
    "shared": "Matmul(1×16×16×32, (f32, GL), (f32, GL), (f32, GL))",
    "softmax": "Softmax(8×32, (f32, GL), (f32, GL), serial)",
    "relu": "Relu(64×64, (f32, GL), (f32, GL), serial)",
    "chain": "Compose([Matmul, Matmul], [(1×16×8, f32, GL), (1×8×16, f32, GL), (1×16×16, f32, GL), (1×8×8, f32, GL)])",
}


@cache
def found(name: str, target: str = "x86_avx2") -> Goal:
    """Return what search finds for one of SPECS."""
    goal = api.goal(SPECS[name], target=target, profile="base")
    return goal.synthesize(db=False, progress=False, budget=SearchBudget(expansions=20_000))


@pytest.fixture(scope="session")
def start() -> Goal:
    return found("product")


def candidate(name: str) -> TuningCandidate:
    goal = found(name)
    return TuningCandidate(target=goal.target, impl=goal.impl)
