"""The rule of the beam: a gain counts if it exceeds the gain of programs timed against themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from morello_tune import evaluate
from morello_tune.evaluate import Evaluator, Rejection

from morello.build.toolchain import find_compiler
from morello.host import missing_features
from morello.run.paired import Paired

from .conftest import found

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)


def within(noise: float) -> Paired:
    """Return the times of a program against itself that differ by `noise` at most."""
    return Paired(1.0, 1.0, 1.0, math.exp(-noise), math.exp(noise / 2))


def evaluator(monkeypatch: pytest.MonkeyPatch, times: Sequence[Paired]) -> tuple[Evaluator, Any]:
    """Return an evaluator whose comparisons return the given times in order, and its start."""
    invented: Iterator[Paired] = iter(times)
    monkeypatch.setattr(evaluate, "compare", lambda *_, **__: next(invented))
    goal = found("relu")
    made = Evaluator(goal, find_compiler(None))
    return made, made.start(goal.impl)


def test_one_disturbed_measurement_does_not_decide_the_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    made, start = evaluator(monkeypatch, [within(noise) for noise in (0.01, 0.5, 0.012, 0.03, 0.008)])
    assert made.noise == pytest.approx(0.012)
    assert start.value == 1.0


def test_noise_follows_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    calm, loud, gain = within(0.01), within(0.1), Paired(1.05, 1.0, 1.05, 1.04, 1.06)
    # Before the last of five comparisons the program is timed against itself again.
    later = [*[gain] * 4, loud, gain]
    made, start = evaluator(monkeypatch, [calm] * 5 + later * 3)
    compared = [made.compared(start.built, start.built) for _ in range(15)]
    assert [one.noise for one in compared] == pytest.approx([0.01] * 14 + [0.1])
    assert [made.verdict(one) is None for one in compared] == [True] * 14 + [False]


@given(st.floats(0.5, 2.0), st.floats(0, 0.3), st.floats(0, 0.3))
def test_a_gain_is_beyond_noise_and_its_interval_above_one(gain: float, width: float, noise: float) -> None:
    made = Evaluator(found("relu"), find_compiler(None))
    verdict = made.verdict(Paired(gain, 1.0, gain, gain * math.exp(-width), gain * math.exp(width), noise))
    assert (verdict is None) == (math.log(gain) > noise and gain * math.exp(-width) > 1)
    if isinstance(verdict, Rejection):
        assert verdict.verdict == ("noise" if gain > 1 else "slower")
