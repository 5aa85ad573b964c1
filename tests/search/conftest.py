"""Fixtures of the tests of search: targets of the sweep, layout bounds from the start."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from morello.kernels.target import Target
from morello.search.session import SearchSession
from tools.fuzz import sweep


@pytest.fixture(scope="session")
def target_named() -> Callable[[str], Target]:
    """Return a function from the names of the sweep's targets to these."""
    return cache(sweep.target_named)


@pytest.fixture(autouse=True)
def finer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build layout bounds at once, not only when the proof is late."""
    monkeypatch.setattr("morello.search.session.REFINE_AFTER", 0)


@pytest.fixture
def smaller_spaces(monkeypatch: pytest.MonkeyPatch) -> Callable[[SearchSession], list[Target]]:
    """Return a function from searches to the lists of restricted spaces that they will search."""

    def of(search: SearchSession) -> list[Target]:
        spaces: list[Target] = []
        smaller = search.incumbents._restrict
        monkeypatch.setattr(search.incumbents, "_restrict", lambda space: spaces.append(space) or smaller(space))
        return spaces

    return of
