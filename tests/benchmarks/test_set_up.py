"""benchmarks/set_up.py reports time and memory of the set-up of a search, and of each kind of table."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

import set_up
from harness.specs import SPECS


@pytest.mark.slow
def test_it_shows_seconds_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {*set_up.NAMES} <= {*SPECS}
    monkeypatch.setattr(set_up, "NAMES", ("3³", "4³"))
    result = CliRunner(catch_exceptions=False).invoke(
        set_up.main, ["--only", "3", "--target", "x86_avx2", "--runs", "1"]
    )
    (row,) = [line for line in result.stdout.splitlines() if "x86_avx2" in line]
    seconds = [float(found) for found in re.findall(r"([\d.]+) s", row)]
    assert len(seconds) == 3
    assert all(0 < each < 60 for each in seconds)
    assert "4³" not in result.stdout
