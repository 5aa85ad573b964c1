"""The benchmark of anytime searches: its measurements, and its criteria for a miss."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from harness import courses
from harness.courses import Course, Moment
from harness.specs import SPECS, SUITES
from harness.suite import PROBLEMS

ROOT = Path(__file__).parents[2]


def course(*moments: tuple[float, float, float], end: str = "time", seconds: float = 60.0) -> Course:
    return Course("one", "odd", "x86_avx2", tuple(Moment(*each) for each in moments), 1.0, seconds, end, 0)


@pytest.mark.parametrize("target", ["x86_avx2", "x86_avx512"])
def test_specs_are_of_both_targets(target: str) -> None:
    for name, one in SPECS.items():
        spec, made = one.for_target(target)
        assert (made.name, spec.limits) == (target, made.full_limits()), name


def test_specs_are_many_and_distinct() -> None:
    assert len({one.for_target("x86_avx2")[0] for one in SPECS.values()}) == len(SPECS) > 100
    assert {problem.suite for problem in PROBLEMS.values()} <= set(SUITES)


def test_the_bounds_at_a_time() -> None:
    one = course((1.0, 50, math.inf), (2.0, 80, 100), (2.0, 90, 100), (11.0, 100, 100), end="proved", seconds=11.0)
    assert one.after(0.5).gap == math.inf
    assert one.after(10) == Moment(2.0, 90, 100)
    assert (one.first, one.proof) == (2.0, 11.0)
    assert one.after(10).gap == pytest.approx(1 / 9)


def test_misses_name_the_missing_property() -> None:
    assert course((1.0, 50, math.inf), (11.0, 60, 61)).miss == "no program in 10 s"
    assert course((1.0, 50, math.inf), end="out of memory").miss == "no program in 10 s; out of memory"
    assert course((1.0, 50, 60)).miss == "gap over 5%"
    assert course((1.0, 98, 100)).miss == ""
    assert course((1.0, 50, math.inf), end="none", seconds=2.0).miss == ""
    assert course((1.0, 50, math.inf), end="none", seconds=20.0).miss == "no proof of infeasibility in 10 s"


def test_summaries_count_programs_and_proofs() -> None:
    some = [
        course((1.0, 100, 100), end="proved", seconds=1.0),
        course((1.0, 50, 60)),
        course((1.0, 50, math.inf)),
        course(end="none", seconds=1.0),
    ]
    assert courses.summary(some) == [
        "x86_avx2: of 3 Specs 2 had a program in 10 s, 1 one within 5%, 1 were proved; median gap 20.0%"
    ]


@pytest.mark.slow
def test_a_small_spec_is_measured() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "anytime.py"), "--only", "1³", "--target", "x86_avx2"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    one = json.loads(done.stdout)
    assert (one["end"], one["miss"], one["gap_soon"]) == ("proved", "", 0)
    assert 0 < one["setup"] <= one["first"] <= one["proof"]
    assert one["memory"] > 1 << 20
