"""benchmarks/start_up.py reports what short runs take."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

import start_up


@pytest.mark.slow
def test_the_least_times_of_a_product_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_up, "PRODUCTS", {"2³": "1×2×2×2"})
    lines = CliRunner().invoke(start_up.main, ["--runs", "1"], catch_exceptions=False).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["fresh", "Python", "and", "2³"]
    assert len(lines[-1].split()) == 7
