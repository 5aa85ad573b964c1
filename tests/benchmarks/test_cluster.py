"""The samples and the estimate of `benchmarks/cluster.py`."""

from __future__ import annotations

import random

import pytest

from cluster import SIZES, estimate, line, replay, ways


def test_groups_are_of_the_aim() -> None:
    assert len(SIZES) == 64
    assert {size for size in SIZES if size % 8} == {*range(1, 64, 2)}
    assert len(line(8, 24)) == 64
    for name, groups in ways(SIZES, random.Random(1)).items():
        assert {len(group) for group in groups} <= {int(name.split(":")[0].split()[0]) if name != "one" else 1, 7}


def test_the_estimate_weighs_strata() -> None:
    total, error = estimate([[1.0, 3.0], [10.0, 10.0]], 100)
    assert total == pytest.approx(50 * 2 + 50 * 10)
    assert error == pytest.approx(50.0)  # the mean of 1 and 3 has the standard error 1
    assert estimate([[4.0] * 8], 10) == (40.0, 0.0)


@pytest.mark.slow
def test_simulated_workers_share_tasks() -> None:
    tasks = [1.0] * 8
    assert 2 <= replay(tasks, 4, 1.0) < replay(tasks, 1, 4.0)
    assert replay(tasks, 1, 4.0) >= 8
