"""The peak is measured with multiply-adds alone; no program exceeds it."""

from __future__ import annotations

import time

import pytest
from morello_tune.evaluate import Evaluator, peak_rate

from morello.build.toolchain import find_compiler
from morello.calibration.meter import Timer
from morello.host import missing_features
from morello.plugins import Clock
from morello.plugins.registry import installed

from .conftest import found

pytestmark = pytest.mark.skipif(
    bool(missing_features(("avx2", "fma"))), reason="this machine cannot run programs for x86_avx2"
)


def clock() -> Clock:
    known = installed().contributions("x86_avx2").clock
    assert known is not None
    return known


def test_a_core_does_a_few_multiply_adds_of_vectors_in_a_cycle() -> None:
    known, target, compiler = clock(), installed().target("x86_avx2"), find_compiler(None)
    peak = known.peak(("f32", "f32", "f32"))
    assert peak is not None
    timer = Timer(compiler, ("-mavx2", "-mfma"), 1 << 16, quick=False, deadline=time.monotonic() + 30)
    clock_seconds, peak_seconds = timer.seconds(known.source + peak.source, ["morello_clock", "morello_peak"])
    assert target.info.units_per_cycle
    cycles = peak_seconds / clock_seconds * known.units / target.info.units_per_cycle
    # Cores since Haswell start one or two in a cycle, of eight values each, and none is known to start four.
    assert 12 < peak.flops / cycles < 64


@pytest.mark.slow
def test_programs_reach_a_part_of_the_peak_of_their_types() -> None:
    goal = found("product")
    start = Evaluator(goal, find_compiler(None), clock=clock()).start(goal.impl)
    assert start.candidate.feedback is not None
    assert start.candidate.feedback.percent is not None
    # Another program may take the core while one of both is timed.
    assert 1 < start.candidate.feedback.percent < 200


def test_programs_without_sums_and_types_without_a_peak_have_none() -> None:
    target, compiler = installed().target("x86_avx2"), find_compiler(None)
    assert peak_rate(found("relu").impl, target, clock(), compiler) == 0
    without = Clock(source=clock().source, units=clock().units)
    assert peak_rate(found("product").impl, target, without, compiler) == 0
    assert clock().peak(("u8", "u8", "u8")) is None
