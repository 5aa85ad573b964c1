"""Memory that search may take: also what it makes before it begins counts."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.kernels.target import Target
from morello.search import watch
from morello.search.block_search import BlockSearch
from morello.search.budget import SearchBudget
from morello.search.solve.engine import Engine
from morello.search.watch import Full, check, watched

TEXT = "(Matmul(1×2×2×3, L1, L1, L1, serial), [8, 32, 64, 0, 0])"


def steps(most: int) -> Callable[[], int]:
    """Return a stand-in for `resident` that goes up by one each time, and past `most` then."""
    asked = iter(range(1, 1 << 60))
    return lambda: next(asked) if most else 0


def test_what_is_not_limited_is_not_watched() -> None:
    check(1 << 62)
    with watched(None):
        check(1 << 62)


def test_limits_nest() -> None:
    with watched(1 << 50):
        check()
        with watched(1), pytest.raises(Full, match="more than 1 bytes"):
            check()
        with watched(None), pytest.raises(Full, match="more than"):
            check(1 << 50)
        check()


def test_what_is_about_to_be_made_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "resident_lately", lambda: 60)
    with watched(100):
        check(40)
        with pytest.raises(Full):
            check(41)


def test_an_engine_is_not_made_past_the_limit(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is at: tables and bounds of each kind look."""
    spec = parse_spec(TEXT, avx2)
    count = 0

    def counted() -> int:
        nonlocal count
        count += 1
        return 0

    monkeypatch.setattr(watch, "resident_lately", counted)
    with watched(1 << 50):
        Engine([spec.logical], avx2)
    assert count > 20
    for most in (1, count // 2, count):
        monkeypatch.setattr(watch, "resident_lately", steps(most))
        with watched(most - 1), pytest.raises(Full):
            Engine([spec.logical], avx2)


def test_it_can_be_tried_again_with_more(avx2: Target) -> None:
    spec, search = parse_spec(TEXT, avx2), BlockSearch(avx2)
    with pytest.raises(MorelloError, match="more than 1 bytes of memory"):
        search.approach(spec, SearchBudget(memory=1))
    assert search.approach(spec, SearchBudget()).gap == 0


def test_what_was_worked_out_can_be_forgotten(avx2: Target) -> None:
    spec, search = parse_spec(TEXT, avx2), BlockSearch(avx2)
    found, solved = search.synthesize(spec), search.solved
    search.forget()
    assert search.solved == solved
    assert search.synthesize(spec) == found
    assert search.solved > solved


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_after_set_up_as_before(avx2: Target, enabled: bool) -> None:
    before = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        BlockSearch(avx2).solve(parse_spec("Move(2×2, (f32, L1), (f32, L1, col_major), serial)", avx2))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()
