"""Answers of search are exact, deterministic and monotone in memory; errors name the cause."""

from __future__ import annotations

import random
import re

import attrs
import pytest

import morello
from morello.errors import NoImplementation
from morello.frontend.parser import parse_spec
from morello.ir.dtypes import F32
from morello.ir.impl import Leaf, cost_and_peak, walk
from morello.ir.ops import by_name
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Position, apply, schedule_of
from morello.search.session import SearchSession
from morello.testing.generate import random_spec
from morello.testing.textbook import Textbook

SMALL = [
    ("Move", (2, 2)),
    ("Move", (1, 8)),
    ("FillZero", (2, 4)),
    ("MatmulAccum", (1, 1, 2, 1)),
    ("Matmul", (1, 1, 1, 4)),
]
#: Operands that kernels take from L1 alone.
INTEGERS = "(u8, GL), (u8, GL), (u8, GL), serial"


def small_spec(seed: int, target: Target, levels: tuple[str, ...] = ("L1", "VRF", "RF")) -> Spec:
    """Return a Spec that the textbook recursion solves quickly: below GL, with little memory."""
    rng = random.Random(seed)
    name, shape = rng.choice(SMALL)
    op = by_name(name)
    spec = random_spec(rng, target, op, shape, [F32] * len(op.operands(len(shape))), levels)
    limits = (rng.choice([0, 8, 16]), rng.choice([0, 64, 96]), rng.choice([0, 128, 256]), 0, 0, 0)
    return attrs.evolve(spec, limits=limits)


@pytest.mark.parametrize("seed", range(70))
def test_programs_are_those_of_the_textbook_recursion(seed: int, avx2: Target) -> None:
    spec = small_spec(seed, avx2)
    expected = Textbook(avx2).solve(spec)
    (found,) = SearchSession(avx2).programs([spec])
    assert found == (expected and expected.impl)
    if found and expected:
        assert cost_and_peak(found) == expected.cost_and_peak
        assert all(peak <= limit for peak, limit in zip(cost_and_peak(found).peak, spec.limits, strict=True))
        for node in walk(found):
            for child in getattr(node, "children", ()):
                assert cost_and_peak(child).cost <= cost_and_peak(node).cost


def test_the_same_spec_gives_the_same_program() -> None:
    text = "(Matmul(1×1×2×2, GL, GL, GL, serial), [64, 512, 512, 0, 0, 0])"
    first, second = (morello.goal(text, target="x86_avx2").synthesize() for _ in range(2))
    assert first.impl == second.impl
    assert first.schedule == second.schedule


def test_a_printed_schedule_replays_to_the_same_program(avx2: Target) -> None:
    goal = morello.goal("(Matmul(1×1×2×2, GL, GL, GL, serial), [64, 512, 512, 0, 0, 0])", target="x86_avx2")
    done = goal.synthesize()
    assert goal.apply(done.schedule).impl == done.impl
    again = apply(Position(goal.impl), schedule_of(done.impl), avx2, Leaf)
    assert again.impl == done.impl


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"(Matmul(1×1×1×1, {INTEGERS}), [64, 512, 64, 0, 0, 2147483648])", "L1 needs at least 256 bytes, not 64"),
        ("(Move(1×8, (f32, L1), (f32, VRF, v4), serial), [0, 512, 0, 0, 0, 0])", None),
        (
            "(MatmulAccum(1×1×1×8, (i32, RF), (i32, VRF), (i32, VRF), serial), [0, 0, 0, 0, 0, 0])",
            "VRF needs at least 32 bytes, not 0",
        ),
    ],
)
def test_too_little_memory_names_the_level(text: str, message: str | None, avx2: Target) -> None:
    spec = parse_spec(text, avx2)
    if message is None:
        assert cost_and_peak(SearchSession(avx2).synthesize(spec)).peak == (0,) * len(avx2.levels)
        return
    with pytest.raises(NoImplementation, match=re.escape(message)):
        SearchSession(avx2).synthesize(spec)


def test_the_error_without_any_kernel_names_those_of_the_operation(avx2: Target) -> None:
    spec = parse_spec("MatmulAccum(1×1×4×4, (f32, VRF), (f32, VRF), (f32, VRF), serial)", avx2)
    with pytest.raises(NoImplementation, match="no implementation exists for MatmulAccum") as caught:
        SearchSession(avx2).synthesize(spec)
    assert "MultAdd" in str(caught.value.hint)


def test_a_level_that_suffices_only_with_others(avx2: Target) -> None:
    spec = parse_spec(f"(Matmul(1×1×1×1, {INTEGERS}), [0, 0, 0, 0, 0, 0])", avx2)
    with pytest.raises(NoImplementation, match="L1 needs at least 256 bytes, not 0"):
        SearchSession(avx2).synthesize(spec)
