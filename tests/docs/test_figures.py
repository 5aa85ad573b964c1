"""The README's picture is what search finds today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "figures.py"


@pytest.mark.slow
def test_the_picture_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("figures", SCRIPT)
    assert spec
    assert spec.loader
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    assert figures.picture() == figures.PICTURE.read_text(encoding="utf-8"), "run python docs/figures.py"
