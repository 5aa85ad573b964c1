"""Search ends in a program or in NoImplementation, never in a traceback: Specs that once failed."""

from __future__ import annotations

import itertools

import pytest

from morello.errors import MorelloError, NoImplementation
from morello.frontend.parser import parse_spec
from morello.ir.impl import Leaf, Node, cost_and_peak, walk
from morello.ir.limits import fits
from morello.ir.ops.pad import Pad
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.search.budget import SearchBudget
from morello.search.infeasible import is_infeasible
from morello.search.session import SearchSession
from morello.search.solve.engine import Engine
from morello.testing.textbook import Textbook

SLOW = pytest.mark.slow
#: Targets, Specs and the costs of their cheapest programs.
PROGRAMS = [
    # The result is rounded to bf16 in the end, by a copy of all five dimensions.
    pytest.param(
        "x86_avx2", "GroupedConv(1×1×1×1×1×1×1×1, (bf16, RF), (bf16, RF), (bf16, L1), serial)", 67, marks=SLOW
    ),
    pytest.param(
        "x86_avx512", "GroupedConv(1×1×1×1×1×1×1×1, (bf16, RF), (bf16, RF), (bf16, L1), serial)", 39, marks=SLOW
    ),
    (
        "x86_avx2",
        "(GroupedConv(1×2×1×1×1×1×1×1, (bf16, L1), (bf16, L1), (bf16, L1), serial), [12, 0, 64, 0, 0, 0])",
        142,
    ),
    # A target may have nothing to move operands with.
    ("reference_c", "Conv(1×1×2×4×1×1×1, GL, GL, GL, serial)", 8),
    ("reference_c", "GroupedConv[padding=1](1×2×1×1×2×2×3×3, (bf16, GL), (bf16, GL), (bf16, GL), serial)", 72),
    ("reference_c", "Pad(4×4, (bf16, GL), (bf16, GL), serial)", 16),
]
#: Specs with operands in levels that no step takes them from.
NONE = [
    "Conv(1×1×2×8×1×1×1, VRF, L1, RF, serial)",
    "Conv(1×1×2×4×1×1×1, VRF, L1, L1, serial)",
    # Every step that takes memory of VRF leaves a little less, at a little more cost.
    "Scale(8, (f32, VRF, layout[0oe8], v8), (bf16, L1))",
]


@pytest.mark.parametrize(("name", "text", "cost"), PROGRAMS)
def test_the_cheapest_program_is_that_of_the_textbook_recursion(name: str, text: str, cost: int) -> None:
    target = installed().target(name)
    spec = parse_spec(text, target)
    expected = Textbook(target).solve(spec)
    assert expected
    found = SearchSession(target).synthesize(spec)
    assert (found, cost_and_peak(found)) == (expected.impl, expected.cost_and_peak)
    assert cost_and_peak(found).cost == cost


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x86_avx2"])
def test_a_grouped_convolution_of_bf16_is_computed_in_f32(name: str) -> None:
    target = installed().target(name)
    spec = parse_spec("GroupedConv(1×1×1×1×2×2×2×2, (bf16, L3), (bf16, L3), (bf16, L3))", target)
    found = SearchSession(target).synthesize(spec)
    assert not any(isinstance(node, Leaf) for node in walk(found))
    assert "convert" in [str(node.expansion.step).split()[0] for node in walk(found) if isinstance(node, Node)]


@pytest.mark.parametrize("name", ["x86_avx2", "x86_avx512"])
@pytest.mark.parametrize("text", NONE)
def test_a_spec_without_programs_is_an_error(text: str, name: str) -> None:
    target = installed().target(name)
    spec = parse_spec(text, target)
    with pytest.raises(NoImplementation, match=f"no implementation exists for {spec.op} on {name}") as caught:
        SearchSession(target).synthesize(spec)
    assert "even with all memory of the target" in str(caught.value.hint)


#: Specs that have programs with more memory, and the message.
TOO_LITTLE = [
    ("(Matmul(1×64×64×64, GL, GL, GL), [64, 0, 0, 0, 0, 1073741824])", "VRF needs at least 512 bytes, not 0"),
    ("(Softmax(2×4, GL, (bf16, GL)), [64, 512, 0, 0, 0, 1073741824])", "L1 needs at least 64 bytes, not 0"),
    ("(Matmul(1×8×8×8, GL, GL, GL), [4, 0, 64, 0, 0, 0])", "VRF needs at least 96 bytes, not 0"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "why"), TOO_LITTLE)
def test_too_little_memory_is_an_error_within_a_budget(text: str, why: str, avx2: Target) -> None:
    with pytest.raises(NoImplementation) as caught:
        SearchSession(avx2).search_within(parse_spec(text, avx2), SearchBudget(expansions=100_000))
    assert why in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
def test_little_memory_makes_bounds_tighter(before: bool, avx2: Target) -> None:
    """Also after a search with more memory, which has bounds for that."""
    logical = parse_spec("Matmul(1×16×16×16, GL, GL, GL)", avx2).logical
    search, little = SearchSession(avx2), Spec(logical, avx2.limits((64, 32, 4096, 0, 0, 0)))
    if before:
        search.search_within(Spec(logical, avx2.full_limits()), SearchBudget(gap=1.0))
    found = search.search_within(little, SearchBudget(gap=0.5, expansions=20_000))
    assert found.gap <= 0.5
    assert fits(cost_and_peak(found.impl).peak, little.limits)


@pytest.mark.slow
def test_bounds_that_leave_no_program_are_right(avx2: Target) -> None:
    logical = parse_spec("Matmul(1×1×2×3, GL, GL, GL, serial)", avx2).logical
    engine, textbook = Engine([logical], avx2), Textbook(avx2)
    shown = 0
    for limits in itertools.product((0, 4, 8), (0,), (0, 64, 128), (0, 64), (0,), (0,)):
        spec = Spec(logical, limits)
        if is_infeasible(engine, spec):
            shown += 1
            assert textbook.solve(spec) is None
    assert shown


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("Pad(8, GL, GL)", "1:1: error: Pad: padding goes around the last 2 dimensions, .*has 1", "write 1×8"),
        (
            "Pad[padding=[1, 0, 0, 0]](1×1×2, (u8, VRF), (u8, L1))",
            r"1:27: error: .*: with this padding, src would be 1×0×2",
            "the padding smaller",
        ),
        (
            "Conv[padding=1](1×1×1×1×1×1×1, VRF, GL, GL)",
            r"1:17: error: .*: with this padding, image would be 1×1×-1×-1",
            "the padding smaller",
        ),
    ],
)
def test_padding_that_leaves_nothing_is_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(MorelloError, match=message) as caught:
        parse_spec(text, installed().target("x86_avx2"))
    assert hint in (caught.value.hint or "")


@pytest.mark.parametrize("shape", [(), (8,)])
def test_a_pad_of_too_few_dimensions_is_no_spec(shape: tuple[int, ...]) -> None:
    target = installed().target("x86_avx2")
    (state,) = {one.state for one in parse_spec("FillZero(1×1, GL)", target).operands}
    with pytest.raises(MorelloError, match=f"this tensor has {len(shape)}") as caught:
        LogicalSpec(Pad(), shape, (state, state)).canonical()
    assert (caught.value.hint or "").startswith("write 1×")
