"""Search that ends before the proof returns a program and a valid lower bound."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import attrs
import pytest

from morello.errors import NoImplementation, Undecided
from morello.frontend.parser import parse_spec
from morello.ir.impl import cost_and_peak
from morello.ir.limits import fits
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.budget import SearchBudget
from morello.search.first_program import first_program
from morello.search.incumbents import Incumbent
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook

#: Small ones with many programs, under limits that bind.
TEXTS = [
    "(Matmul(1×3×4×5, L1, L1, L1, serial), [8, 64, 0, 0, 0, 0])",
    "(Matmul(1×1×2×3, GL, GL, GL, serial), [16, 0, 512, 0, 0, 0])",
    "(Move(2×3, (f32, GL), (f32, GL, col_major), serial), [8, 32, 256, 0, 0, 0])",
    "(Softmax(1×2, L1, L1, serial), [12, 0, 128, 0, 0, 0])",
    "(Compose([Relu, Matmul], [(1×2×2, L1), (1×2×3, L1), (1×2×3, L1)], serial), [12, 0, 128, 0, 0, 0])",
]


def budgets(search: SearchSession, text: str, target: Target) -> list[Incumbent]:
    """Return the programs of growing budgets for one Spec, by one search, to the proof."""
    counts = [1, *[120] * 5]
    tried = [
        *(SearchBudget(expansions=count) for count in counts),
        SearchBudget(gap=0.5),
        SearchBudget(),
    ]
    return [search.search_within(parse_spec(text, target), budget) for budget in tried]


@pytest.mark.parametrize(
    "text", [TEXTS[2], *(pytest.param(text, marks=pytest.mark.slow) for text in TEXTS if text != TEXTS[2])]
)
def test_larger_budgets_give_better_programs_and_bounds(
    text: str, avx2: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    spec = parse_spec(text, avx2)
    expected = Textbook(avx2).solve(spec)
    assert expected
    found = budgets(SearchSession(avx2), text, avx2)
    for one in found:
        assert one.low <= expected.cost_and_peak.cost <= one.cost == cost_and_peak(one.impl).cost
        assert one.impl.spec == spec
        assert fits(cost_and_peak(one.impl).peak, spec.limits)
    assert [one.cost for one in found] == sorted((one.cost for one in found), reverse=True)
    assert [one.low for one in found] == sorted(one.low for one in found)
    assert (found[-1].impl, found[-1].gap) == (expected.impl, 0)


@pytest.mark.slow
def test_concurrent_searches_equal_separate_ones(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    texts = TEXTS[1:3]
    alone = [budgets(SearchSession(avx2), text, avx2) for text in texts]
    with ThreadPoolExecutor(2) as pool:
        assert alone == [*pool.map(lambda text: budgets(SearchSession(avx2), text, avx2), texts)]


@pytest.mark.slow
def test_a_memory_limit_leaves_a_program_with_a_bound(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    spec = parse_spec(TEXTS[0], avx2)
    expected = Textbook(avx2).solve(spec)
    assert expected
    most = 1 << 50
    ended: list[bool] = []
    for turns in (0, 10, 100, 1000, 100_000):
        calls = iter(range(turns))
        taken = lambda calls=calls: 2 * most * (next(calls, None) is None)  # noqa: E731
        monkeypatch.setattr("morello.search.budget.resident_recently", taken)
        found = SearchSession(avx2).search_within(spec, SearchBudget(memory=most))
        assert found.low <= expected.cost_and_peak.cost <= found.cost == cost_and_peak(found.impl).cost
        ended.append(found.low == found.cost)
    assert not ended[0]
    assert ended[-1]


@pytest.mark.slow
@pytest.mark.parametrize("budget", [SearchBudget(expansions=1), SearchBudget(seconds=0), SearchBudget(memory=1)])
@pytest.mark.parametrize(
    "text",
    [
        "Matmul(1×64×64×64, GL, GL, GL, serial)",
        "(Matmul(1×8×8×8, GL, GL, GL, serial), [8, 0, 512, 4096, 0, 1048576])",
        "Conv[padding=1](1×4×4×7×7×3×3, GL, GL, GL, serial)",
    ],
)
def test_any_budget_gives_a_program(avx2: Target, text: str, budget: SearchBudget) -> None:
    spec = parse_spec(text, avx2)
    search = SearchSession(avx2)
    found = search.search_within(spec, budget)
    assert found.impl.spec == spec
    assert found.low < found.cost == cost_and_peak(found.impl).cost
    assert fits(cost_and_peak(found.impl).peak, spec.limits)
    assert SearchSession(avx2).search_within(spec, budget) == found


def lstm(target: Target) -> Spec:
    """Return an LSTM step, whose tables take seconds and whose bounds take minutes."""
    gates = "i = Sigmoid(a), a = Matmul(x, wi), g = Tanh(b), b = Matmul(x, wg), o = Sigmoid(d), d = Matmul(x, wo)"
    cell = "h = Mul(o, t), t = Tanh(n), n = Add(k, u), k = Mul(f, c), f = Sigmoid(p), u = Mul(i, g)"
    weights = ", ".join(f"{name}: (1×64×128, GL)" for name in ("wi", "wg", "wo"))
    states = ", ".join(f"{name}: (1×32×128, GL)" for name in "pch")
    return parse_spec(f"Compose([{cell}, {gates}], [x: (1×32×64, GL), {weights}, {states}], serial)", target)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("Matmul(1×64×64×64, GL, (f32, GL, col_major), GL, serial)", 257_053),
        ("Matmul(1×64×64×64, (u8, GL), (i8, GL), (i32, GL), serial)", 179_214),
        ("Conv(1×8×4×8×8×3×3, GL, GL, GL, serial)", 31_048),
        ("Conv[padding=1](1×16×16×28×28×3×3, GL, GL, GL, serial)", 1_582_188),
        ("GroupedConv[padding=1](1×32×1×1×56×56×3×3, GL, GL, GL, serial)", 2_013_633),
    ],
)
def test_first_programs_have_tiles_of_kernels(avx2: Target, text: str, cost: int) -> None:
    """They cost little more than those that search finds, not 20 to 800 times as much."""
    found = first_program(parse_spec(text, avx2), avx2)
    assert found
    assert cost_and_peak(found).cost < 2.5 * cost


@pytest.mark.parametrize(("rows", "tokens", "size"), [(5, 7, 16), (4, 8, 8)])
def test_attention_of_bf16_has_a_first_program(avx2: Target, rows: int, tokens: int, size: int) -> None:
    shapes = (tokens, size), (rows, size), (size, tokens), (rows, size)
    operands = ", ".join(f"(2×{one}×{other}, bf16, GL)" for one, other in shapes)
    spec = parse_spec(f"Compose([Matmul, Softmax, Scale[by=0.25], Matmul], [{operands}], serial)", avx2)
    assert SearchSession(avx2).search_within(spec, SearchBudget(seconds=0)).impl.spec == spec


@pytest.mark.slow
def test_a_deadline_ends_set_up_too(avx2: Target) -> None:
    before = time.process_time()
    found = SearchSession(avx2).search_within(lstm(avx2), SearchBudget(seconds=1))
    assert time.process_time() - before < 4
    assert found.low < found.cost < 1_300_000


@pytest.mark.slow
def test_a_convolution_with_little_time_has_a_good_program(avx2: Target) -> None:
    """That of the quick descent costs ten times as much and takes longer."""
    nhwc = "f32, GL, layout[0, 2, 3, 1], c2"
    operands = f"x: (1×32×16×16, {nhwc}), w: (32×32×3×3, f32, GL, constant), y: (1×32×14×14, {nhwc})"
    spec = parse_spec(f"Compose([y = Relu(c), c = Conv(x, w)], [{operands}], serial)", avx2)
    before = time.process_time()
    found = SearchSession(avx2).search_within(spec, SearchBudget(seconds=0.1))
    assert time.process_time() - before < 4
    assert found.cost < 2_000_000


@pytest.mark.slow
def test_a_number_of_expansions_limits_set_up_too(avx2: Target) -> None:
    before = time.process_time()
    found = SearchSession(avx2).search_within(lstm(avx2), SearchBudget.default())
    assert time.process_time() - before < 12
    assert found.low < found.cost < 1_300_000
    assert found.meets(SearchBudget.default())


@pytest.mark.slow
def test_a_graph_with_too_many_parts_is_cut_into_single_operations(
    avx2: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("morello.search.budget.MOST_TUPLES", 100)
    ops, budget = "Relu, Relu, Relu", SearchBudget(expansions=1000)
    spec = parse_spec(f"Compose([{ops}], [(1×4×4, GL), (1×4×4, GL)], serial)", avx2)
    search = SearchSession(avx2)
    found = search.search_within(spec, budget)
    assert found.low < found.cost < cost_and_peak(first_program(spec, avx2) or found.impl).cost
    # The next search of the session does not cover the graph.
    alone = parse_spec("Relu(1×4×4, GL, GL, serial)", avx2)
    assert search.search_within(alone, budget).gap == 0
    # A proof has no such limit, nor has a search with a deadline.
    assert SearchSession(avx2).synthesize(spec).spec == spec
    assert SearchSession(avx2).search_within(spec, SearchBudget(seconds=60)).gap == 0
    monkeypatch.setattr("morello.search.budget.MOST_SPACES", 1)
    without_memory = attrs.evolve(spec, limits=(0,) * len(spec.limits))
    with pytest.raises(NoImplementation, match="within these limits"):
        SearchSession(avx2).search_within(without_memory, budget)
    monkeypatch.setattr("morello.search.first_program._MOST", 0)
    with pytest.raises(Undecided, match="within 1,000 expansions"):
        SearchSession(avx2).search_within(without_memory, budget)


def test_a_budget_may_end_a_search_without_a_program(avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.first_program._MOST", 0)
    spec = parse_spec("Matmul(1×64×64×64, GL, GL, GL, serial)", avx2)
    search = SearchSession(avx2)
    match = "no program of Matmul was found within 10 expansions, nor is the Spec proven infeasible"
    with pytest.raises(Undecided, match=match) as caught:
        search.search_within(spec, SearchBudget(expansions=10))
    assert "--prove" in str(caught.value.hint)
    assert search.search_within(spec, SearchBudget(gap=1.0)).gap <= 1


@pytest.mark.parametrize("budget", [SearchBudget(expansions=10), SearchBudget(seconds=0), SearchBudget(memory=1)])
@pytest.mark.parametrize(
    "text", ["Conv(1×1×2×8×1×1×1, VRF, L1, RF, serial)", "(Relu(2×2, GL, GL), [0, 0, 0, 0, 0, 0])"]
)
def test_a_spec_without_programs_is_an_error(avx2: Target, text: str, budget: SearchBudget) -> None:
    with pytest.raises(NoImplementation):
        SearchSession(avx2).search_within(parse_spec(text, avx2), budget)
