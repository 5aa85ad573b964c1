"""The benchmark of the cost model: correlations are right, and stored programs can be scored again."""

from __future__ import annotations

import itertools
import json
import math
import random
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import fidelity
from harness import samples
from harness.draws import Draws, with_program
from harness.samples import Sample, Samples
from harness.suite import PROBLEMS
from morello import api
from morello.errors import MorelloError
from morello.ir.impl import leaves

TINY = PROBLEMS["3×1000×7"]


def sampled(*pairs: tuple[int, float]) -> list[Sample]:
    return [Sample("random", "", seconds, cost) for cost, seconds in pairs]


def test_rank_correlation_ignores_the_scale() -> None:
    assert samples.spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 100.0, 101.0])) == pytest.approx(1)
    assert samples.spearman(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, -9.0])) == pytest.approx(-1)


def test_equal_values_share_their_rank() -> None:
    # Ranks 1.5, 1.5, 3 and 1, 2, 3.
    assert samples.spearman(np.array([5.0, 5.0, 6.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(math.sqrt(0.75))
    assert math.isnan(samples.spearman(np.array([5.0, 5.0]), np.array([1.0, 2.0])))


def test_scores_give_the_rank_of_the_cheapest() -> None:
    found = samples.score(sampled((10, 2.0), (10, 3.0), (20, 1.0), (30, 4.0)))
    assert (found.count, found.rank, found.slower) == (4, 3, 3.0)
    assert found.faster_half == pytest.approx(-1)
    assert 0 < found.overall < 1


@pytest.mark.slow
def test_stored_programs_are_rebuilt_equal(tmp_path: Path) -> None:
    goal = samples.goal(PROBLEMS["16³"], "x86_avx2", "")
    draws = Draws(goal, random.Random(3))
    programs = [with_program(goal, impl) for _, impl in itertools.islice(draws.programs(40), 4)]
    assert all(next(leaves(one.impl), None) is None for one in programs)
    rows = tuple(Sample("random", one.schedule, 1.0, -1) for one in programs)
    samples.save(Samples(PROBLEMS["16³"], "x86_avx2", "here", rows), tmp_path)
    loaded = samples.load(PROBLEMS["16³"], "x86_avx2", tmp_path)
    assert loaded
    rescored, lost = loaded.rescored()
    assert lost == 0
    assert [one.cost for one in rescored.programs] == [api.compile(one).cost for one in programs]


def test_obsolete_programs_are_counted() -> None:
    rows = (Sample("random", "tile [1, 1, 1, 1]", 1.0, 5), Sample("random", "teleport", 1.0, 5))
    assert Samples(TINY, "x86_avx2", "here", rows).rescored() == (Samples(TINY, "x86_avx2", "here", ()), 2)


def test_files_of_other_targets_are_refused(tmp_path: Path) -> None:
    samples.save(Samples(TINY, "x86_avx2", "here", ()), tmp_path)
    samples.path_of(TINY, "x86_avx2", tmp_path).rename(samples.path_of(TINY, "x86_avx512", tmp_path))
    with pytest.raises(MorelloError, match="is about"):
        samples.load(TINY, "x86_avx512", tmp_path)
    assert samples.load(TINY, "x86_avx2", tmp_path) is None


@pytest.mark.slow
def test_programs_are_drawn_timed_and_rescored(tmp_path: Path) -> None:
    command = ["--only", "16³", "--target", "x86_avx2", "--count", "2", "--json", "--samples", str(tmp_path)]
    first, again, retimed = (
        json.loads(CliRunner(catch_exceptions=False).invoke(fidelity.main, [*command, *more]).stdout)[0]
        for more in ([], ["--rescore"], ["--retime"])
    )
    assert first["count"] == retimed["count"] == 2
    assert again == first
