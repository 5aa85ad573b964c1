"""Programs of restricted spaces are programs of the target: they speed up search and change no proof."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from morello.db.database_cache import DatabaseCache
from morello.db.program_texts import find_incumbent
from morello.db.store import SpecStore
from morello.frontend.parser import parse_spec
from morello.ir.dtypes import F32, I8
from morello.ir.impl import AllowedSteps, Impl, Leaf, Node, cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import BASE, Target
from morello.plugins.registry import installed
from morello.rewrites.base import tried_sizes
from morello.schedule import Position, apply, schedule_of
from morello.search import incumbents
from morello.search.budget import MemoryLimitReached, SearchBudget
from morello.search.incumbents import Incumbent, restricted, shapes_below
from morello.search.progress import Phase, Progress
from morello.search.session import SearchSession
from morello.search.step_kinds import KINDS
from morello.search.tables.kernels import KernelTables
from morello.search.tables.step_tables import SearchTables

TEXTS = [
    "(Matmul(1×3×5×7, L1, L1, L1, serial), [8, 64, 0, 0, 0, 0])",
    "Matmul(1×16×16×16, (f32, GL), (f32, GL, col_major), (f32, GL), serial)",
    "Softmax(2×8, (f32, GL), (f32, GL), serial)",
    "Conv[padding=1](1×2×2×3×3×3×3, (f32, GL), (f32, GL), (f32, GL), serial)",
]


@pytest.fixture(scope="module")
def searches(avx2: Target) -> dict[str, SearchSession]:
    """Return the searches of the whole space."""
    return {text: SearchSession(avx2) for text in TEXTS}


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
def test_programs_of_restricted_spaces_cost_no_less_than_the_optimum(
    text: str, avx2: Target, searches: dict[str, SearchSession]
) -> None:
    spec = parse_spec(text, avx2)
    found = [SearchSession(space).synthesize(spec) for space in restricted(avx2)]
    costs = [cost_and_peak(impl).cost for impl in found]
    optimum = searches[text].solve(spec)
    assert optimum
    assert optimum.cost <= min(costs) <= max(costs) == costs[0]
    for impl in found:
        again = apply(Position(Leaf(spec)), schedule_of(impl), avx2, never).impl
        assert cost_and_peak(again) == cost_and_peak(impl)


@pytest.mark.slow
def test_a_graph_of_many_stages_starts_with_an_incumbent(
    avx2: Target, monkeypatch: pytest.MonkeyPatch, smaller_spaces: Callable[[SearchSession], list[Target]]
) -> None:
    """Only the smallest space is searched before the tables of the stages are built."""
    norm = parse_spec("LayerNorm(1×2×8, (f32, GL), (f32, GL), (f32, GL), (f32, GL), serial)", avx2)
    shapes = shapes_below(norm.logical, avx2)
    monkeypatch.setattr(incumbents, "MANY_SHAPES", shapes)
    plain = parse_spec("Softmax(2×8, (f32, GL), (f32, GL), serial)", avx2)
    assert shapes_below(plain.logical, avx2) <= shapes
    search = SearchSession(avx2)
    spaces = smaller_spaces(search)
    assert search.incumbents.begin(plain.logical) == 0
    found = search.search_within(norm, SearchBudget(expansions=100_000, gap=1e9))
    assert search.incumbents.get(norm)
    assert found.low <= found.cost
    assert [one.size_bits for one in spaces] == [one.size_bits for one in restricted(avx2)[:1]]


def test_restricted_spaces_keep_strips_that_kernels_need() -> None:
    (*_, small) = restricted(installed().target("x86_avx2 + avx_vnni", BASE))
    assert {str(one) for one in small.layouts(I8, 3)} >= {"layout[0, 1, 2]", "layout[0, 1, 2, 1p4]"}
    assert not any(one.has_strips for one in small.layouts(F32, 3))


@pytest.mark.slow
@pytest.mark.parametrize(("many", "late"), [(0, 10**6), (10**6, 0)])
@pytest.mark.parametrize("text", TEXTS)
def test_incumbents_of_restricted_spaces_change_no_proof(
    text: str,
    many: int,
    late: int,
    avx2: Target,
    searches: dict[str, SearchSession],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(incumbents, "MANY_SHAPES", many)
    monkeypatch.setattr(incumbents, "_LATE", late)
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    spec = parse_spec(text, avx2)
    best, optimum = proven(searches[text], spec)
    search = SearchSession(avx2)
    first = search.search_within(spec, SearchBudget(expansions=100_000, gap=1e9))
    assert first.low <= optimum <= first.cost == cost_and_peak(first.impl).cost
    last = search.search_within(spec, SearchBudget())
    assert (last.impl, last.low, last.cost) == (best, optimum, optimum)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "spaces"),
    [
        ("Matmul(1×5×7×9, GL, GL, GL, serial)", 1),
        ("LayerNorm(1×2×8, (f32, GL), (f32, GL), (f32, GL), (f32, GL), serial)", 0),
    ],
)
def test_small_graphs_have_an_incumbent_before_layout_bounds(
    text: str,
    spaces: int,
    avx2: Target,
    monkeypatch: pytest.MonkeyPatch,
    smaller_spaces: Callable[[SearchSession], list[Target]],
) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    spec, events = parse_spec(text, avx2), list[Progress]()
    search = SearchSession(avx2, progress=events.append, refine_after=1)
    explored = smaller_spaces(search)
    found = search.search_within(spec, SearchBudget(expansions=100_000))
    *_, finer = [one for one in events if one.phase is Phase.LAYOUTS]
    assert len(explored) == spaces
    assert (finer.high is not None) == bool(spaces)
    assert found.low <= found.cost
    assert (
        search.search_within(spec, SearchBudget()).cost == SearchSession(avx2).search_within(spec, SearchBudget()).cost
    )


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search restricted spaces first, and report progress after each turn."""
    monkeypatch.setattr(incumbents, "MANY_SHAPES", 0)
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    monkeypatch.setattr("morello.search.solve.solver._OFTEN", 0.0)


@pytest.mark.usefixtures("at_once")
def test_incumbents_survive_an_interrupt(avx2: Target, tmp_path: Path) -> None:
    spec, events = parse_spec(TEXTS[0], avx2), [Progress(0, 0.0)]

    def stop(progress: Progress) -> None:
        events.append(progress)
        if progress.high is not None:
            raise KeyboardInterrupt

    search = SearchSession(avx2, progress=stop, cache=DatabaseCache(SpecStore(tmp_path / "specs.db")))
    with pytest.raises(KeyboardInterrupt):
        search.search_within(spec, SearchBudget(expansions=100_000))
    known = search.incumbents.get(spec)
    assert known
    assert cost_and_peak(known.impl).cost == known.cost == events[-1].high
    assert find_incumbent(SpecStore(tmp_path / "specs.db").file, avx2, spec) == known


def test_restricted_spaces_are_subsets(avx2: Target) -> None:
    spaces = [avx2, *restricted(avx2)]
    parts = [(space, part) for space in spaces for part in restricted(space)]
    assert len(parts) > len(spaces)
    for space, part in parts:
        assert all({*tried_sizes(size, part)} <= {*tried_sizes(size, space)} for size in range(1, 200))
        assert all({*part.layouts(F32, rank)} <= {*space.layouts(F32, rank)} for rank in (2, 3, 4))
        assert part.size_bits != space.size_bits


@pytest.mark.usefixtures("at_once")
def test_a_memory_limit_leaves_the_incumbent(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, budget = parse_spec(TEXTS[0], avx2), SearchBudget(expansions=100_000, memory=1 << 50)

    def fill(progress: Progress) -> None:
        if progress.high is not None:
            monkeypatch.setattr("morello.search.budget.resident_recently", lambda: 1 << 60)

    search = SearchSession(avx2, progress=fill)
    found = search.search_within(spec, budget)
    assert (found.low, found.expansions, found.cost) == (1, 1, cost_and_peak(found.impl).cost)
    assert SearchSession(avx2).search_within(spec, budget).cost > found.cost


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("phase", [Phase.TABLES, Phase.BOUNDS, Phase.LAYOUTS])
def test_a_deadline_before_search_leaves_the_incumbent(
    phase: Phase, avx2: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, budget = parse_spec(TEXTS[0], avx2), SearchBudget(seconds=1000)
    optimum = SearchSession(avx2).solve(spec)
    assert optimum
    events: list[Progress] = []

    def end(progress: Progress) -> None:
        events.append(progress)
        if progress.phase == phase and progress.high is not None:
            monkeypatch.setattr("morello.search.budget.time.monotonic", lambda: float("inf"))

    found = SearchSession(avx2, progress=end).search_within(spec, budget)
    assert found.low <= optimum.cost <= found.cost == cost_and_peak(found.impl).cost
    # Class bounds include one of the goal.
    assert (found.low > 1) == (phase == Phase.LAYOUTS) == (events[-1].low > 1)


@pytest.mark.usefixtures("at_once")
def test_slow_tables_of_a_space_do_not_prevent_its_first_program(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    real, late = time.monotonic, [0]
    monkeypatch.setattr(incumbents, "_FEW_SHAPES", 0)
    monkeypatch.setattr(time, "monotonic", lambda: real() + late[0])

    def wait(progress: Progress) -> None:
        if progress.phase == Phase.BOUNDS:
            late[0] = 300

    spec, search = parse_spec(TEXTS[0], avx2), SearchSession(avx2, progress=wait)
    known = found_before_spaces(search, spec, monkeypatch)
    found = search.search_within(spec, SearchBudget(seconds=1000))
    assert known[0] is None
    assert known[1] is not None
    assert known[1].cost >= found.cost


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("room", [True, False])
def test_an_incumbent_has_a_bound_if_memory_suffices(room: bool, avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incumbents, "_FEW_SHAPES", 0)
    spec, search = parse_spec(TEXTS[0], avx2), SearchSession(avx2)
    known, made = found_before_spaces(search, spec, monkeypatch), search._build_for

    def without_room(spec: Spec) -> object:
        if len(known) > 1 or room:
            return made(spec)
        raise MemoryLimitReached("out of memory")

    monkeypatch.setattr(search, "_build_for", without_room)
    found = search.search_within(spec, SearchBudget(expansions=100_000))
    assert len(known) >= 2
    assert known[1] is not None
    assert (known[1].low > 1) == room
    assert known[1].low <= found.low <= found.cost <= known[1].cost


def test_parts_of_a_program_are_improved_by_themselves(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a search for the whole, tiles of the program stay as they are."""
    spec, budget = parse_spec("Matmul(1×16×16×16, GL, GL, GL, serial)", avx2), SearchBudget(expansions=20_000)
    poor = SearchSession(restricted(avx2)[0]).synthesize(spec)
    search = SearchSession(avx2, refine_after=10**9)
    search._build_for(spec)
    solver = search._ready_solver()
    (goal,) = solver.engine.directory.nodes_of([spec])
    known = search.incumbents
    known.add(Incumbent(poor, cost_and_peak(poor).cost, 1))

    def parts(part: Spec) -> Incumbent | None:
        return None if part == spec else search.incumbent(part)

    left = known._improve_parts(spec, solver, goal, budget.start(), parts)
    better = known.get(spec)
    assert better
    assert better.cost == cost_and_peak(better.impl).cost < cost_and_peak(poor).cost
    assert isinstance(better.impl, Node)
    assert isinstance(poor, Node)
    assert better.impl.expansion == poor.expansion
    assert left.expansions == 20_000 - solver.expansions
    assert solver.core.costs(goal)[1] <= better.cost


def found_before_spaces(search: SearchSession, spec: Spec, monkeypatch: pytest.MonkeyPatch) -> list[Incumbent | None]:
    """Return a list that gets the incumbent of a Spec before each restricted space is searched."""
    known, smaller = list[Incumbent | None](), search.incumbents._restrict
    monkeypatch.setattr(
        search.incumbents, "_restrict", lambda space: known.append(search.incumbents.get(spec)) or smaller(space)
    )
    return known


def never(spec: Spec, allowed: AllowedSteps) -> Impl:
    raise AssertionError("a whole schedule leaves nothing to search for")


def proven(search: SearchSession, spec: Spec) -> tuple[Impl, int]:
    impl = search.synthesize(spec)
    return impl, cost_and_peak(impl).cost


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "target", "most"),
    [
        ("Conv[padding=1](1×64×64×56×56×3×3", "x86_avx2", 4),
        ("Conv[stride=2, padding=[1, 1, 0, 0]](1×256×128×14×14×3×3", "x86_avx512", 5),
    ],
)
def test_large_convolutions_have_a_program_and_a_bound(layer: str, target: str, most: int) -> None:
    machine = installed().target(target)
    spec = parse_spec(f"{layer}, (f32, GL), (f32, GL), (f32, GL), serial)", machine)
    assert shapes_below(spec.logical, machine) > incumbents.MANY_SHAPES
    search = SearchSession(machine)
    found = search.search_within(spec, SearchBudget(expansions=150_000))
    assert search.solved > 0
    assert 1 < found.low <= found.cost == cost_and_peak(found.impl).cost < most * found.low


def test_kernels_of_a_restricted_space_are_those_of_the_whole_one(avx2: Target) -> None:
    spec = parse_spec("Matmul(1×6×12×16, GL, GL, GL, serial)", avx2)
    kinds = [kind.tables for kind in KINDS]
    whole, narrow = SearchTables([spec.logical], avx2, kinds), restricted(avx2)[1]

    def costs(tables: SearchTables) -> dict[object, float]:
        return {
            (str(key), str(kernel.step), kernel.needs, *states, int(shape)): kernel.costs[which, place]
            for key, kernels in tables.of(KernelTables).by_key.items()
            for kernel in kernels
            for states, which in zip(kernel.states.tolist(), kernel.which.tolist(), strict=True)
            for place, shape in enumerate(kernel.shapes)
        }

    assert costs(SearchTables([spec.logical], narrow, kinds, whole)) == costs(
        SearchTables([spec.logical], narrow, kinds)
    )
