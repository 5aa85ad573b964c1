"""Share the targets that the sweep knows among the tests of search."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from morello.kernels.target import Target
from morello.search.session import SearchSession
from tools.fuzz import sweep


@pytest.fixture(scope="session")
def target_named() -> Callable[[str], Target]:
    """Give an installed target, the third party's `toy_cpu`, or `packing`, where copies in memory pay."""
    return cache(sweep.target_named)


@pytest.fixture(autouse=True)
def finer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have search know layouts from the start, as it does where a proof is late: bounds by class alone look at less."""
    monkeypatch.setattr("morello.search.session.REFINE_AFTER", 0)


@pytest.fixture
def smaller_spaces(monkeypatch: pytest.MonkeyPatch) -> Callable[[SearchSession], list[Target]]:
    """Return a function from searches to the smaller spaces that they will have looked at."""

    def of(search: SearchSession) -> list[Target]:
        looked: list[Target] = []
        smaller = search.incumbents._restrict
        monkeypatch.setattr(search.incumbents, "_restrict", lambda space: looked.append(space) or smaller(space))
        return looked

    return of
