"""The benchmark of calls: its problems are Specs, and missing libraries are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from morello_baselines.native.base import NotInstalled

import call
from morello import api

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("problem", call.PROBLEMS.values(), ids=call.PROBLEMS)
def test_problems_are_specs_and_loops(problem: call.Problem) -> None:
    (goal,) = api.parse(problem.spec("x86_avx2")).values()
    a, b = (np.arange(problem.size**2, dtype=np.float32).reshape(problem.size, problem.size) for _ in range(2))
    expected, out = getattr(np, problem.function)(a, b), np.empty_like(a)
    problem.loop(a, b, out)
    assert np.allclose(out, expected)
    logical = goal.spec.logical
    inputs = [a.reshape(tensor.shape) for tensor in goal.spec.operands[:2]]
    assert np.allclose(logical.op.evaluate(tuple(map(int, logical.shape)), inputs, [])[0], expected)


def test_libraries_that_are_not_installed_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    problem, array = call.PROBLEMS["add 4"], np.ones((4, 4), np.float32)
    with pytest.raises(NotInstalled, match="numba is not installed"):
        call.runners("x86_avx2")["numba"](problem, array, array)


@pytest.mark.slow
def test_calls_are_timed() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "call.py"), "--only", "add 4", "--target", "x86_avx2"]
    done = subprocess.run([*command, "--seconds", "0.1", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_runner = {each["runner"]: each for each in found["results"]}
    assert {"Morello", "numpy"} <= set(by_runner)
    assert set(by_runner) | set(found["missing"]) == set(call.runners("x86_avx2"))
    assert all(len(each["output_given"]) >= 7 and min(each["output_given"]) > 0 for each in by_runner.values())
    assert "output given" in done.stderr
