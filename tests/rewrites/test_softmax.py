"""Schedules of the softmax family compute their Specs."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.errors import MorelloError
from morello.host import missing_features

OFFLINE = """
    tile [1, 0]
    to_softmax_parts to L1
    subschedule [0] {
        to_max_and_unscaled to L1
        synthesize
    }
"""
ONLINE = """
    tile [1, 0]
    to_softmax_parts_recompute to L1
    subschedule [0] {
        to_accum
        split 8
    }
"""
IN_PARTS = """
    to_softmax_parts_recompute to GL
    subschedule [0] {
        parallel_split_softmax to GL 8
        subschedule [0] {
            tile [0, 1, 0] parallel
            one_part
        }
    }
"""
WHOLE_ROWS = """
    tile [1, 0]
    move 0 to L1
    move 1 to L1
    select VectorSoftmax
"""


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [OFFLINE, ONLINE, IN_PARTS, WHOLE_ROWS])
def test_families(schedule: str, prove) -> None:
    text = f"target x86_avx2\nspec s = Softmax(3×32, GL, GL)\nschedule s {{{schedule}    synthesize\n}}"
    goal = morello.parse(text)["s"].synthesize()
    prove(goal.impl, goal.target)
    if not missing_features(goal.target.info.cpu_features):
        rows = np.array([[-np.inf] * 32, [-np.inf, 0.0] * 16, [0.0] * 32], np.float32)
        made = morello.compile(goal)(rows)
        np.testing.assert_allclose(made, [[np.nan] * 32, [0, 1 / 16] * 16, [1 / 32] * 32], rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "step", "rule"),
    [
        ("SoftmaxDenominatorAndMax(4×30, GL, GL, GL)", "parallel_split_softmax to GL 8", "several parts of 8"),
        ("SoftmaxDenominatorAndMax[dim=0](4×32, GL, GL, GL)", "parallel_split_softmax to GL 8", "last dimension"),
        ("Max(4×32, GL, GL)", "parallel_split_softmax to GL 8", "SoftmaxDenominatorAndMax, not for Max"),
        ("SoftmaxDenominatorAndMaxPerPart[of=8](4×4×8, GL, GL, GL)", "one_part", "tile them by 1 part"),
    ],
)
def test_preconditions(text: str, step: str, rule: str) -> None:
    with pytest.raises(MorelloError, match=rule):
        morello.parse(f"target x86_avx2\nspec s = {text}\nschedule s {{ {step} }}")
