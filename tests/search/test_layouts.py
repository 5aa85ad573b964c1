"""Bounds by layout are below every cost, and close to it where layouts change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from morello.db.database_cache import DatabaseCache
from morello.db.program_texts import find_incumbent
from morello.db.store import SpecStore
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import DeadlineReached, MemoryLimitReached, RunningBudget, SearchBudget
from morello.search.progress import Phase, Progress
from morello.search.session import SearchSession
from morello.search.solve.directory import least
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Solver

GOALS = [
    ("x86_avx2", "Move(8×12, (f32, GL, row_major), (f32, GL, col_major), serial)"),
    ("x86_avx2", "Move(2×3×16, (bf16, GL, layout[0, 1, 2, 2oe16]), (f32, L1, col_major), serial)"),
    ("x86_avx2", "Move(4×6×8, (f32, GL, layout[1, 0, 2]), (f32, L1, layout[2, 0, 1]), serial)"),
    ("x86_avx2", "Matmul(1×6×8×24, (f32, GL), (f32, GL, col_major), (f32, GL), serial)"),
    ("x86_avx2", "Matmul(1×1×16×2048, (bf16, L3), (bf16, L3, row_major), (f32, L3), serial)"),
    ("x86_avx2", "Matmul(1×2×4×8, (u8, GL), (i8, GL), (i32, GL), serial)"),
    ("x86_avx2", "Move(8×12, (f32, GL, row_major), (f32, GL, col_major))"),
    ("x86_avx2", "Conv[stride=2](1×4×4×2×2×2×2, (f32, GL), (f32, GL, nhwc), (f32, GL), serial)"),
    ("x86_avx2", "Compose([Relu, Matmul], [(1×4×8, i32, GL), (1×8×8, i32, GL), (1×4×8, i32, GL)], serial)"),
    ("x86_avx512", "Conv(1×4×16×2×2×2×2, (f32, GL), (f32, GL), (f32, GL), serial)"),
    ("x86_avx2", "Conv[padding=1](1×8×2×2×2×3×3, (f32, GL), (f32, GL), (f32, GL), serial)"),
    (
        "x86_avx2",
        "GroupedConv[stride=2, padding=[1, 1, 0, 0]](1×8×1×1×2×2×3×3, (f32, GL), (f32, GL), (f32, GL), serial)",
    ),
]


def made(name: str, text: str) -> tuple[Engine, Spec]:
    """Return an engine with bounds by layout, without nodes, and its Spec."""
    target = installed().target(name)
    spec = parse_spec(text, target)
    engine = Engine([spec.logical], target).refined()
    assert engine
    return engine, spec


def bound(engine: Engine, table: int, shape: int) -> float:
    """Return the bound that the abstract search proves of a node with all memory."""
    node = engine.core.node(table, shape, engine.limit_codes.full_word)
    while not engine.core.lookup(node):
        pass
    return engine.core.costs(node)[0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "text"), GOALS)
def test_no_bound_is_above_the_cost(name: str, text: str) -> None:
    fresh, spec = made(name, text)
    # Costs are those of a search with bounds by class alone.
    engine = Engine([spec.logical], fresh.target)
    Solver(engine).solve(engine.directory.nodes_of([spec]))
    # Search leaves most nodes unsolved: solve more, as far as that is quick.
    for node in range(1, min(200, len(engine.core))):
        engine.core.start(node, np.inf)
        any(engine.core.solve() for _ in range(20))
    known = engine.core.nodes()
    priced = np.flatnonzero(known.solved & (known.high < np.inf))[1:].tolist()
    assert len(priced) > 20
    for node in priced:
        logical = engine.directory.logical(node)
        low = bound(fresh, fresh.directory.table_of(logical), int(known.shape[node]))
        assert low <= known.high[node], str(logical)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "share"),
    [
        # A transpose of registers costs three times as much as a copy.
        ("Move(32×32, (f32, L1, row_major), (f32, L1, col_major), serial)", 0.5),
        ("Matmul(1×6×8×24, (f32, GL), (f32, GL, col_major), (f32, GL), serial)", 0.9),
        # Memory is read in columns, or its layout is changed first.
        ("Matmul(1×1×64×16, (bf16, GL), (bf16, GL, col_major), (f32, GL), serial)", 0.9),
        # Rows lie a page apart.
        ("Matmul(1×1×16×2048, (bf16, L3), (bf16, L3, row_major), (f32, L3), serial)", 0.9),
        ("Conv(1×8×8×4×4×3×3, (f32, GL), (f32, GL), (f32, GL), serial)", 0.78),
    ],
)
def test_changes_of_layout_do_not_seem_free(text: str, share: float) -> None:
    engine, spec = made("x86_avx2", text)
    (goal,) = engine.directory.nodes_of([spec])
    by_class = least(engine.bounds, spec.logical)
    while not engine.core.lookup(goal):
        pass
    low = engine.core.costs(goal)[0]
    Solver(engine).solve([goal])
    assert by_class < low
    assert share * engine.core.costs(goal)[1] <= low <= engine.core.costs(goal)[1]


def test_nodes_begin_with_bounds_by_the_pattern_of_one_operand() -> None:
    engine, spec = made("x86_avx2", "Matmul(1×12×512×48, (f32, GL), (f32, GL), (f32, GL), serial)")
    (goal,) = engine.directory.nodes_of([spec])
    # Both factors are packed, the cheaper one too.
    assert engine.core.costs(goal)[0] > 1.25 * least(engine.bounds, spec.logical)
    assert engine.core.progress.abstract_nodes == 0


TEXT = "Matmul(1×6×40×24, (f32, L3), (f32, L3, col_major), (f32, L3), serial)"
#: A Spec with a program, but without a proof, after this many expansions without bounds by layout.
LATE = "Matmul(1×7×9×13, (f32, L2), (f32, L2, col_major), (f32, L2), serial)", 8_000


def has_layout_bounds(search: SearchSession) -> bool:
    assert search._solver
    return search._solver.engine.layouts is not None


@pytest.mark.slow
@pytest.mark.parametrize("refine_after", [0, 1, 100, 10**9])
def test_bounds_by_layout_are_made_only_where_the_proof_is_late(refine_after: int, avx2: Target) -> None:
    spec = parse_spec(TEXT, avx2)
    expected, search = SearchSession(avx2).synthesize(spec), SearchSession(avx2, refine_after=refine_after)
    assert search.synthesize(spec) == expected
    assert has_layout_bounds(search) == (refine_after < 10**9)


def test_expansions_without_layouts_count(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    search = SearchSession(avx2, refine_after=300)
    assert search.improve(parse_spec(TEXT, avx2), RunningBudget(expansions=400)) is None
    assert has_layout_bounds(search)
    assert 400 <= search.expansions < 450


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MemoryLimitReached, DeadlineReached])
def test_search_goes_on_without_them_where_memory_or_time_are_up(
    kind: type[MorelloError],
    avx2: Target,
    monkeypatch: pytest.MonkeyPatch,
    smaller_spaces: Callable[[SearchSession], list[Target]],
) -> None:
    events: list[Progress] = []

    def stop(*_: object) -> None:
        raise kind("up", "")

    spec = parse_spec(TEXT, avx2)
    expected = SearchSession(avx2).synthesize(spec)
    search = SearchSession(avx2, refine_after=300, progress=events.append)
    spaces = smaller_spaces(search)
    monkeypatch.setattr("morello.search.layout_bounds.patterns.check_budget", stop)
    found = search.search_within(spec, SearchBudget(gap=0.0, expansions=10**6))
    assert (found.impl, found.low) == (expected, found.cost)
    assert not has_layout_bounds(search)
    assert [one.phase for one in events].count(Phase.LAYOUTS) == 1 + len(spaces)


@pytest.mark.slow
def test_progress_has_bounds_while_layout_bounds_are_made(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    monkeypatch.setattr("morello.search.solve.solver._OFTEN", 0.0)
    events: list[Progress] = []
    search = SearchSession(avx2, refine_after=LATE[1], progress=events.append)
    search.search_within(parse_spec(LATE[0], avx2), SearchBudget(gap=0.001))
    (place,) = [place for place, one in enumerate(events) if one.phase == Phase.LAYOUTS]
    before, there, after = events[place - 1 : place + 2]
    assert before.high is not None
    assert (before.low, before.high) == (there.low, there.high)
    assert after.high is not None
    assert there.low <= after.low <= after.high <= before.high


@pytest.mark.slow
def test_bounds_survive_an_interrupt_while_layout_bounds_are_made(
    avx2: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)

    def stop(progress: Progress) -> None:
        if progress.phase == Phase.LAYOUTS:
            raise KeyboardInterrupt

    spec, store = parse_spec(LATE[0], avx2), SpecStore(tmp_path / "specs.db")
    with pytest.raises(KeyboardInterrupt):
        SearchSession(avx2, refine_after=LATE[1], progress=stop, cache=DatabaseCache(store)).search_within(
            spec, SearchBudget(gap=0.001)
        )
    known = find_incumbent(SpecStore(tmp_path / "specs.db").file, avx2, spec)
    assert known
    assert known.cost == cost_and_peak(known.impl).cost
    assert known.low < known.cost
