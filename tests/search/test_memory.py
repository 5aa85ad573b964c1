"""Memory limits of search, which also count tables and bounds."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from morello.frontend.parser import parse_spec
from morello.kernels.target import Target
from morello.search import budget
from morello.search.budget import MemoryLimitReached, SearchBudget, budget_guard, check_budget, setting_up
from morello.search.session import SearchSession
from morello.search.solve.engine import Engine

TEXT = "(Matmul(1×2×2×3, L1, L1, L1, serial), [8, 32, 64, 0, 0, 0])"


def steps(most: int) -> Callable[[], int]:
    """Return a stand-in for `resident` that grows by one per call if `most` is not 0."""
    calls = iter(range(1, 1 << 60))
    return lambda: next(calls) if most else 0


def test_no_limit_is_no_check() -> None:
    check_budget(1 << 62)
    with budget_guard(None):
        check_budget(1 << 62)


def test_set_up_restores_huge_pages_of_numpy() -> None:
    import numpy._core.multiarray as numpy_core

    switch = getattr(numpy_core, "_set_madvise_hugepage", None)
    if switch is None:
        pytest.skip("this version of numpy has no such switch")
    before = switch(True)
    try:
        with setting_up():
            with setting_up():
                pass
            assert switch(False) is False
        assert switch(True) is True
    finally:
        switch(before)


def test_limits_nest() -> None:
    with budget_guard(1 << 50):
        check_budget()
        with budget_guard(1), pytest.raises(MemoryLimitReached, match="more than 1 bytes"):
            check_budget()
        with budget_guard(None), pytest.raises(MemoryLimitReached, match="more than"):
            check_budget(1 << 50)
        check_budget()


def test_memory_about_to_be_allocated_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "resident_recently", lambda: 60)
    with budget_guard(100):
        check_budget(40)
        with pytest.raises(MemoryLimitReached):
            check_budget(41)


def test_an_engine_is_not_made_past_the_limit(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and bounds of every kind check the limit."""
    spec = parse_spec(TEXT, avx2)
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    monkeypatch.setattr(budget, "resident_recently", counted)
    with budget_guard(1 << 50):
        Engine([spec.logical], avx2)
    assert count > 20
    for most in (1, count // 2, count):
        monkeypatch.setattr(budget, "resident_recently", steps(most))
        with budget_guard(most - 1), pytest.raises(MemoryLimitReached):
            Engine([spec.logical], avx2)


def test_a_search_can_be_repeated_with_more_memory(avx2: Target) -> None:
    spec, search = parse_spec(TEXT, avx2), SearchSession(avx2)
    assert search.search_within(spec, SearchBudget(memory=1)).gap > 0
    assert search.search_within(spec, SearchBudget()).gap == 0


def test_reset_releases_answers(avx2: Target) -> None:
    spec, search = parse_spec(TEXT, avx2), SearchSession(avx2)
    found, solved = search.synthesize(spec), search.solved
    search.reset()
    assert search.solved == solved
    assert search.synthesize(spec) == found
    assert search.solved > solved


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_after_set_up_as_before(avx2: Target, enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        SearchSession(avx2).solve(parse_spec("Move(2×2, (f32, L1), (f32, L1, col_major), serial)", avx2))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_a_reset_frees_tables_at_once(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when Python's collector finds them, which counts objects, not bytes."""
    monkeypatch.setattr(budget, "_WORTH_RELEASING", -(1 << 60))
    gc.collect()
    gc.disable()
    try:
        search = SearchSession(avx2)
        search.synthesize(parse_spec(TEXT, avx2))
        assert any(isinstance(one, Engine) for one in gc.get_objects())
        search.reset()
        assert not any(isinstance(one, Engine) for one in gc.get_objects())
    finally:
        gc.enable()
