"""The benchmark of kernels: its problems are Specs of both targets, and its sums add up."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from morello_baselines import native
from morello_baselines.native.base import Baseline, NotInstalled, NotOffered, Prepared
from morello_baselines.native.onnx_runtime import OnnxRuntime
from morello_baselines.native.ours import operands
from morello_baselines.native.problems import Problem, difference
from morello_baselines.native.tvm import Tvm
from morello_baselines.times import undisturbed
from rich.console import Console

from harness import report
from harness.crew import Worker
from harness.limits import FOOTPRINTS, VECTORS, multiply_adds, reading
from harness.measure import Result, measure, reason
from harness.suite import PROBLEMS, SUITES
from harness.worker import Session
from morello import api

ROOT = Path(__file__).parents[2]
LIMITS = {
    multiply_adds("f32", "avx2"): 100.0,
    multiply_adds("f32", "avx512"): 200.0,
    **{reading(footprint, vectors): 50.0 for footprint in FOOTPRINTS for vectors in VECTORS},
}


def timed(problem: str, runner: str, *seconds: float, group: str = "any", packs: bool = False) -> Result:
    return Result(PROBLEMS[problem], runner, group, runner.startswith("x86"), packs, seconds)


class Answers(Worker):
    """A worker without a process: one answer to preparations, a millisecond for each call, an error for the last."""

    def __init__(self, baseline: Baseline, answer: dict[str, Any], calls: int = 1 << 30):
        super().__init__(baseline, [0], 1)
        self._prepared = answer
        self._left = calls
        self.allowed = 0.0

    def ask(self, seconds: float, **order: Any) -> dict[str, Any]:
        if "prepare" in order:
            self.allowed = seconds
            return self._prepared
        self._left -= order["calls"]
        return {"seconds": 1e-3 * order["calls"]} if self._left > 0 else {"failed": "its process ended"}


class Counter:
    """A runner whose calls do nothing; it lists how many were made at a time."""

    runs: ClassVar[list[int]] = []

    def prepare(self, problem: Problem, inputs: list[np.ndarray], threads: int) -> Prepared:
        return Prepared(lambda count: float(self.runs.append(count) or count), problem.expected)


@pytest.mark.parametrize("target", ["x86_avx2", "x86_avx512"])
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_specs_take_the_data_of_their_problem(problem: Problem, target: str) -> None:
    for text in problem.texts(target, 1):
        (goal,) = api.parse(text).values()
        *inputs, output = goal.spec.operands
        assert [tuple(map(int, one.shape)) for one in inputs] == list(problem.shapes)
        assert [str(one.state.dtype) for one in goal.spec.operands] == list(problem.types)
        assert tuple(map(int, output.shape)) == problem.shape
        assert goal.spec.logical.serial


def test_specs_for_threads_are_not_serial() -> None:
    for problem in PROBLEMS.values():
        for text in problem.texts("x86_avx2", 2):
            (goal,) = api.parse(text).values()
            assert not goal.spec.logical.serial


@pytest.mark.parametrize("problem", [one for one in PROBLEMS.values() if one.bytes < 3e5], ids=lambda one: one.name)
def test_the_meaning_of_a_spec_is_that_of_its_problem(problem: Problem) -> None:
    (goal, *_) = api.parse(problem.texts("x86_avx2", 1)[0]).values()
    logical = goal.spec.logical
    inputs = [each.astype(np.float64) for each in problem.inputs()]
    (found,) = logical.op.evaluate(tuple(map(int, logical.shape)), inputs, [])
    expected = problem.expected()
    assert np.abs(found.astype(np.float64) - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_columns_lie_one_after_another() -> None:
    _, columns = PROBLEMS["bf16 1×2048×16384 columns"].inputs()
    assert columns.strides == (2 * 2048 * 16384, 2, 2 * 2048)
    assert PROBLEMS["transpose 1024²"].output().strides == (4, 4 * 1024)


def test_data_is_the_same_each_time() -> None:
    first, second = (PROBLEMS["17³"].inputs() for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert [each.ctypes.data % 64 for each in first] == [0, 0]


@pytest.mark.parametrize("problem", ["17³", "1×1024×1024"])
def test_no_operands_start_at_the_same_place_of_a_page(problem: str) -> None:
    """A program for 8×2048×2048 takes 1.1 or 2.9 ms, as its output lies to the second input."""
    theirs = [*PROBLEMS[problem].inputs(), PROBLEMS[problem].output()]
    ours = operands(api.compile(PROBLEMS[problem].texts("x86_avx2", 1)[0], db=False), theirs[:2])
    for arrays in (theirs, ours):
        pairs = itertools.permutations([each.ctypes.data for each in arrays], 2)
        assert min((one - other) % 4096 for one, other in pairs) >= 1024


def test_a_turn_begins_with_a_call_that_is_not_timed(tmp_path: Path) -> None:
    """The operands of 8×2048×2048 are in L3 then, although others evicted them."""
    np.save(tmp_path / "expected.npy", PROBLEMS["16³"].expected())
    session = Session(f"{__name__}:Counter", {}, 1)
    session.answer({"prepare": "16³", "expected": str(tmp_path / "expected.npy")})
    Counter.runs.clear()
    assert session.answer({"calls": 5}) == {"seconds": 5.0}
    assert Counter.runs == [1, 5]


def test_suites_are_not_empty() -> None:
    assert {problem.suite for problem in PROBLEMS.values()} == set(SUITES)
    assert len(PROBLEMS) > 15


def test_names_of_runners_are_distinct() -> None:
    names = [one.name for one in (*native.morello_runners(["x86_avx2", "x86_avx512"], ""), *native.BASELINES)]
    assert len(set(names)) == len(names)


def test_slow_baselines_are_optional() -> None:
    assert not [one for one in native.chosen([]) if one.name.startswith("TVM")]
    assert [one.name for one in native.chosen(["TVM", "libxsmm avx2"])] == ["libxsmm avx2", "TVM avx2", "TVM"]
    assert native.chosen([""]) == [*native.BASELINES]


def test_tvm_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    with pytest.raises(NotInstalled, match="tvm"):
        Tvm()


def test_a_baseline_has_a_time_limit_and_reports_tuning() -> None:
    tuner = Baseline("tuner", "", "any", asked=True, patience=1200.0)
    worker = Answers(tuner, {"error": 0.0, "note": "", "facts": {"search_seconds": 90.0}})
    (found,) = measure(PROBLEMS["16³"], [worker], 0.01, 5.0, lambda _: None)
    assert worker.allowed == 1200.0
    shown = Console(width=160)
    with shown.capture() as text:
        shown.print(report.table(PROBLEMS["16³"], [found], LIMITS, 1))
    assert "90.0 s" in text.get()


def test_a_baseline_that_fails_while_it_is_timed_does_not_count() -> None:
    ready = {"error": 0.0, "note": "", "facts": {}}
    ours = Answers(Baseline("x86_avx512", "morello_baselines.native.ours:Ours", "any"), ready)
    found = measure(PROBLEMS["16³"], [ours, Answers(Baseline("broken", "", "any"), ready, 40)], 0.01, 5, lambda _: None)
    assert [one.why for one in found] == ["", "failed while it was timed"]
    assert report.comparisons(found) == []


def test_only_peers_of_the_class_count_for_avx2() -> None:
    results = [
        timed("64³", "x86_avx2", 4.0, group="avx2"),
        timed("64³", "x86_avx512", 2.0, 3.0),
        timed("64³", "narrow", 5.0, 3.0, group="avx2"),
        timed("64³", "wide", 1.0),
        timed("64³", "packs", 0.5, packs=True),
    ]
    found = report.comparisons(results)
    assert [(one.ours.runner, one.baseline.runner, one.ratio) for one in found] == [
        ("x86_avx2", "narrow", 0.75),
        ("x86_avx512", "wide", 0.5),
    ]


def test_baselines_that_pack_beforehand_are_compared_apart() -> None:
    results = [
        *(timed("64³", "x86_avx512", 1.0), timed("64³", "plain", 1.1), timed("64³", "packs", 0.9, packs=True)),
        *(timed("32³", "x86_avx512", 1.0), timed("32³", "plain", 1.2), timed("32³", "packs", 1.6, packs=True)),
        *(timed("16³", "x86_avx512", 1.0), timed("16³", "plain", 5.0)),
    ]
    found = report.comparisons(results, packs=True)
    assert [(one.baseline.runner, one.ratio) for one in found] == [("packs", 0.9), ("plain", 1.2)]
    assert report.summary(results)[:2] == [
        "x86_avx512: 1.88 of the best baseline (geometric mean of 3 problems)",
        "x86_avx512: 1.04 of the best baseline that may pack weights beforehand (geometric mean of 2 problems)",
    ]
    shown = Console(width=160)
    with shown.capture() as text:
        shown.print(report.table(PROBLEMS["64³"], results[:3], LIMITS, 1))
    assert "(0.90)" in text.get()


def test_means_are_geometric_and_misses_come_worst_first() -> None:
    results = [
        *(timed("64³", "x86_avx512", 1.0), timed("64³", "baseline", 0.8)),
        *(timed("16³", "x86_avx512", 1.0), timed("16³", "baseline", 0.2)),
        *(timed("32³", "x86_avx512", 1.0), timed("32³", "baseline", 6.25)),
    ]
    found = report.comparisons(results)
    assert report.mean_ratio(found) == pytest.approx(1.0)
    assert [one.ours.problem.name for one in report.misses(found)] == ["16³", "64³"]
    assert report.summary([*results, Result(PROBLEMS["100³"], "x86_avx512", "any", True, False, why="no program")]) == [
        "x86_avx512: 1.00 of the best baseline (geometric mean of 3 problems)",
        "x86_avx512: 2 below 0.9, 1 without a program",
        "  16³ 0.20 of baseline",
        "  64³ 0.80 of baseline",
        "  100³: no program",
    ]


def test_means_exclude_libraries_without_a_kernel() -> None:
    """torch multiplies bf16 without AVX-512 in 47 times our time."""
    results = [
        *(timed("64³", "x86_avx512", 1.0), timed("64³", "baseline", 1.1)),
        *(timed("16³", "x86_avx512", 1.0), timed("16³", "baseline", 47.0)),
    ]
    assert report.summary(results) == [
        "x86_avx512: 1.10 of the best baseline (geometric mean of 1 problems)",
        "  16³ 47 of baseline, not in the mean",
        "x86_avx512: 0 below 0.9, 0 without a program",
    ]


def test_libraries_are_not_held_to_lesser_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("MORELLO_OTHER", "kept")
    environment = undisturbed()
    assert "OPENBLAS_CORETYPE" not in environment
    assert environment["MORELLO_OTHER"] == "kept"


@pytest.mark.parametrize("weights", ["inputs", "initializers"])
def test_onnx_runtime_computes_the_problems_it_has(weights: str) -> None:
    pytest.importorskip("onnxruntime")
    runner, computed, refused = OnnxRuntime(weights), set[str](), set[str]()
    for problem in {one.what: one for one in PROBLEMS.values() if one.f32 and np.prod(one.shape) < 2**21}.values():
        inputs = problem.inputs()
        try:
            made = runner.prepare(problem, inputs, 1)
        except NotOffered:
            refused.add(problem.what)
            continue
        made.run(1)
        assert difference(made.output(), problem.expected()) < 1e-5, problem.name
        computed.add(problem.what)
    assert refused == {"norm"} if weights == "inputs" else computed == {"matmul", "linear gelu", "conv"}


def test_limits_are_those_of_the_class() -> None:
    problem = PROBLEMS["1000³"]
    assert report.least_seconds(problem, "avx2", LIMITS, 1) == pytest.approx(0.02)
    assert report.least_seconds(problem, "any", LIMITS, 2) == pytest.approx(0.005)
    thin = PROBLEMS["1×1024×1024"]
    assert report.least_seconds(thin, "any", LIMITS, 1) == pytest.approx(thin.bytes / 50e9)
    assert report.least_seconds(thin, "any", {}, 1) is None


def test_reasons_are_reported_in_words() -> None:
    assert reason({"late": 60.0}, ours=True) == "no program in 60 s"
    assert reason({"missing": "not installed"}, ours=False) == "missing: not installed"
    assert reason({"not_offered": "only f32"}, ours=False) == "not offered: only f32"


@pytest.mark.slow
def test_a_small_problem_is_timed(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--only", "16³", "--target", "x86_avx2"]
    done = subprocess.run(
        [*command, "--baseline", "OpenBLAS Haswell", "--seconds", "0.1", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    ours, baseline = found["results"]
    assert ours["runner"] == "x86_avx2"
    assert len(ours["seconds"]) >= 7
    assert ours["error"] < 1e-5
    assert baseline["why"].startswith("missing") or baseline["error"] < 1e-5
    assert found["limits"][multiply_adds("f32", "avx2")] > 1
