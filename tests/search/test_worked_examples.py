"""The worked examples in the docstrings of the packages of search are right."""

from __future__ import annotations

import doctest
import importlib

import pytest


@pytest.mark.parametrize("folder", ["tables", "bounds", "layout_bounds", "solve"])
def test_the_worked_example_is_true(folder: str) -> None:
    page = importlib.import_module(f"morello.search.{folder}")
    result = doctest.testmod(page, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 5
    assert not result.failed
