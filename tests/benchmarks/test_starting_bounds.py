"""benchmarks/starting_bounds.py shows both bounds in percent of the optimum."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

import starting_bounds


@pytest.mark.slow
def test_bounds_are_at_most_the_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Matmul(1×2×4×8, (f32, GL), (f32, GL), (f32, GL), serial)"
    monkeypatch.setattr(starting_bounds, "SPECS", (("x86_avx2", text),))
    result = CliRunner(catch_exceptions=False).invoke(starting_bounds.main, [])
    shares = [float(one) for one in re.findall(r"([\d.]+) %", result.output)]
    assert len(shares) == 2
    assert all(0 < share <= 100 for share in shares)
