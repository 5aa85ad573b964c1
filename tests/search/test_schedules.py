"""Schedules by hand that were cheaper than proven optima: search tries their steps now."""

from __future__ import annotations

import pytest

import morello

PRODUCT = "Matmul(1×8×128×128, (f32, L2), (f32, L2), (f32, L2), serial)"
CONV = "Conv(1×32×16×1×34×3×3, (f32, L1, nhwc), (f32, L1, chwn), (f32, L1, nhwc), serial)"
FEW_FILTERS = "Conv(1×17×1×1×1×1×3, (f32, L2), (f32, L2), (f32, L2), serial)"
UNIT_LAST = "Tanh(48×2×1, (f32, L2, layout[1, 0]), (bf16, L2), serial)"
SHORT_SUMS = "SoftmaxDenominatorAccum[dim=2](16×5×4, (f32, L1), (f32, L1), (f32, L1), serial)"
GROUPS = "GroupedConv(1×8×1×1×1×4×1×1, (f32, L1), (f32, L2), (f32, L1), serial)"
GRAPH = "Compose([Relu, Conv], [(1×2×1×15, f32, L2), (11×2×1×3, f32, L2), (1×11×1×13, f32, L2)], serial)"
REGISTERS = "ConvAccum(17×1×1×3×1×1×3, (i16, L1), (u16, L1), (u8, L2), serial)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "target", "schedule"),
    [
        (
            PRODUCT,
            "x86_avx2",
            "fit 3 [16, 24]\n"
            "subschedule [0] { tile [1, 4, 16]\nselect RegisterTile }\n"
            "subschedule [1] { tile [1, 4, 24]\nselect RegisterTile }",
        ),
        (
            CONV,
            "x86_avx512",
            "fit 4 [11, 12]\nsubschedule [0] { select ConvTile }\nsubschedule [1] { select ConvTile }",
        ),
        (FEW_FILTERS, "x86_avx2", "fit 1 [9, 8]\nsynthesize"),
        (REGISTERS, "x86_avx2", "move 1 to RF\nsynthesize"),
        (GRAPH, "x86_avx2", "fit 1 [6, 5]\nsynthesize"),
        (GROUPS, "x86_avx2", "move 1 to L1 as row_major\nsynthesize"),
        (UNIT_LAST, "x86_avx512", "move 1 to L2 as layout[2, 1, 0]\nsynthesize"),
        (SHORT_SUMS, "x86_avx512", "move 0 to L1 as layout[2, 0, 1]\nsynthesize"),
    ],
)
def test_no_schedule_by_hand_costs_less(spec: str, target: str, schedule: str) -> None:
    goal = morello.goal(spec, target=target)
    by_hand = morello.compile(goal.apply(schedule), db=False)
    assert morello.compile(goal, db=False, budget=morello.SearchBudget()).cost <= by_hand.cost
