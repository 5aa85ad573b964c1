"""The tests import this checkout, not an installed copy."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "name",
    ["morello", "morello_vectors", "morello_x86", "morello_x86_avx2", "morello_x86_avx512", "morello_reference_c"],
)
def test_packages_lie_in_the_checkout(name: str) -> None:
    file = importlib.import_module(name).__file__
    assert file
    assert Path(file).is_relative_to(ROOT), "install it in place: pip install -r requirements.txt"
