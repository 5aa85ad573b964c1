"""Paired timing distinguishes faster programs from noise, under any load of the machine."""

from __future__ import annotations

import os
import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morello import api
from morello.run.paired import ROUNDS, compare, paired, pinned
from morello.search.budget import SearchBudget

BUDGET = SearchBudget(expansions=20_000)


@given(st.integers(0, 1000), st.floats(0.5, 2.0), st.integers(ROUNDS, 63))
def test_the_interval_holds_the_gain_and_scales_with_it(seed: int, factor: float, rounds: int) -> None:
    rng = random.Random(seed)
    first = [1e-3 * (1 + rng.random() / 10) for _ in range(rounds)]
    second = [1e-3 * (1 + rng.random() / 10) for _ in range(rounds)]
    found, scaled = paired(first, second), paired(first, [factor * one for one in second])
    assert found.low <= found.gain <= found.high
    assert scaled.gain == pytest.approx(found.gain / factor)
    assert scaled.spread == pytest.approx(found.spread)


def test_the_interval_has_its_confidence() -> None:
    rng = random.Random(0)
    missed = 0
    for _ in range(2000):
        ones = [1.0] * ROUNDS
        found = paired([rng.lognormvariate(0, 0.05) for _ in ones], ones)
        missed += not found.low <= 1 <= found.high
    assert missed < 40


def test_a_disturbed_machine_changes_little() -> None:
    # Both kernels take twice as long for half of the rounds.
    slow = [2.0 if number > 7 else 1.0 for number in range(ROUNDS)]
    found = paired([1.1 * one for one in slow], slow)
    assert found.gain == pytest.approx(1.1)
    assert found.spread < 1e-9


@pytest.mark.slow
def test_a_slower_kernel_takes_few_rounds() -> None:
    goal = api.goal("Relu(64×256, (f32, GL), (f32, GL), serial)", target="x86_avx2", profile="base")
    fast, slow = (
        api.compile(start, db=False, progress=False, budget=BUDGET)
        for start in (goal, goal.apply("move 0 to GL as col_major\nmove 1 to GL as col_major"))
    )
    found = compare(fast.function, slow.function)
    assert found.high < 0.7
    assert found.second > found.first
    assert compare(slow.function, fast.function).low > 1.4
    with pytest.raises(TimeoutError, match="no time is left"):
        compare(slow.function, fast.function, until=time.monotonic())


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept on a core")
def test_pinning_ends_with_its_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned():
        assert len(os.sched_getaffinity(0)) == 1
    with pinned(threads=2):
        assert os.sched_getaffinity(0) == before
    assert os.sched_getaffinity(0) == before
