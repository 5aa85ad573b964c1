"""Drawn schedules are the same each time, and those that cost less than search's optimum are found."""

from __future__ import annotations

import attrs
import pytest

from morello import api
from morello.kernels.target import Target
from morello.plugins.registry import installed
from tools.fuzz import schedules
from tools.fuzz.outside import report


@pytest.fixture
def coarse() -> Target:
    """x86_avx2 for which search tries tiles of 1 alone, so that programs with others cost less."""
    return attrs.evolve(installed().target("x86_avx2", "base"), size_bits=12)


@pytest.mark.slow
def test_what_search_leaves_out_is_found(coarse: Target) -> None:
    found = report(coarse, 4, 30, 60)
    assert found.cheaper
    best = max(found.findings, key=lambda one: one.gain)
    assert best.kind.startswith(("tile: ", "split: ", "fit: "))
    assert 0 < best.gain <= best.part_gain < 1
    for text in (best.file, best.part):
        (goal,) = api.parse(text, profile="base").values()
        assert goal.schedule
    assert report(coarse, 4, 30, 60) == found


@pytest.mark.slow
def test_no_drawn_schedule_costs_less_than_the_optimum_beyond_one_percent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert schedules.main(["--count", "120", "--draws", "60"]) == 0, capsys.readouterr().out
    assert "undecided" in capsys.readouterr().out
