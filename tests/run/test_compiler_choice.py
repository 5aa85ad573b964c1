"""Choosing the compiler whose code for a kernel runs fastest."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest

from morello.api.kernel import Kernel
from morello.build.cache import cache_directory
from morello.build.toolchain import Compiler, available_compilers, find_compiler
from morello.errors import ToolchainError
from morello.run.compiler_choice import CompilerChoice, CompilerTime
from morello.run.timing import FunctionTimer

Make = Callable[..., Kernel]
#: Seconds per call, by the name of the compiler.
Times = dict[str, float]


@pytest.fixture
def rivals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a fresh cache and two compilers, `clang` and `gcc`, which are both the one that there is."""
    real = shutil.which("gcc", path=os.defpath) or shutil.which("clang", path=os.defpath)
    assert real
    for name in ("clang", "gcc"):
        _install(tmp_path / name, f"exec {real}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MORELLO_CC", "auto")
    monkeypatch.setitem(sys.modules, "ziglang", None)
    monkeypatch.setenv("MORELLO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def _install(path: Path, command: str) -> None:
    path.write_text(f'#!/bin/sh\nPATH={os.defpath}\n{command} "$@"\n')
    path.chmod(0o755)


def record() -> Path:
    """Return the only record of times in the cache."""
    (found,) = cache_directory().glob("*.times")
    return found


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    """Seconds of the code of each compiler; requested ones are counted under "timed"."""
    fake_times: Times = {"clang": 2e-6, "gcc": 1e-6, "timed": 0}
    real = FunctionTimer.__init__

    def init(self, kernel, arrays, threads) -> None:
        real(self, kernel, arrays, threads)
        self.built_with = kernel.compiler.name

    def seconds(self, calls: int) -> float:
        fake_times["timed"] += 1
        return fake_times[self.built_with] * calls

    monkeypatch.setattr(FunctionTimer, "__init__", init)
    monkeypatch.setattr(FunctionTimer, "seconds", seconds)
    return fake_times


@pytest.mark.slow
@pytest.mark.usefixtures("rivals")
def test_the_faster_builds_the_kernel(times: Times, make: Make) -> None:
    ones = np.ones((1, 2, 2), np.float32)
    for clang, gcc, chosen in ((2e-6, 1e-6, "gcc"), (1e-6, 2e-6, "clang"), (1.01e-6, 1e-6, "clang")):
        times |= {"clang": clang, "gcc": gcc}
        kernel = make("Matmul", (1, 2, 2, 2))
        assert kernel.compiler.name == chosen
        assert str(kernel.choice).count("per call") == 2
        assert (kernel(ones, ones) == 2).all()
        record().unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("rivals")
def test_compilers_are_timed_once(times: Times, make: Make) -> None:
    first = make("FillZero", (4,)).choice
    taken = times["timed"]
    times |= {"clang": 1e-9}
    assert taken > 0
    assert make("FillZero", (4,)).choice == first
    assert times["timed"] == taken
    assert make("FillZero", (5,)).compiler.name == "clang", "another kernel has times of its own"


@pytest.mark.slow
@pytest.mark.usefixtures("rivals")
def test_a_damaged_record_is_made_again(times: Times, make: Make) -> None:
    first = make("FillZero", (4,)).choice
    for damage in ("", "{}", "[1.0]", "[0.0, 1.0]", '["fast", 1.0]'):
        record().write_text(damage)
        taken = times["timed"]
        assert make("FillZero", (4,)).choice == first
        assert times["timed"] > taken


def test_one_that_cannot_build_it_is_passed_over(rivals: Path, times: Times, make: Make) -> None:
    """It compiles the probe, but no kernel."""
    _install(rivals / "gcc", 'for each; do [ "$each" = sample.c ] && exit 1; done; exec cc')
    kernel = make("FillZero", (4,))
    assert kernel.compiler.name == "clang"
    assert "not timed" in str(kernel.choice)
    _install(rivals / "clang", 'for each; do [ "$each" = sample.c ] && exit 1; done; exec cc')
    with pytest.raises(ToolchainError, match="clang failed"):
        _ = make("FillZero", (6,)).library
    assert times["timed"] > 0


@pytest.mark.usefixtures("rivals")
def test_code_for_another_cpu_is_not_timed(times: Times, make: Make) -> None:
    kernel = make("FillZero", (4,))
    foreign = attrs.evolve(kernel.program, cpu_features=("time_travel",))
    assert Kernel.of(kernel.impl, kernel.target, foreign).compiler.name == "clang"
    assert times["timed"] == 0


@pytest.mark.usefixtures("rivals")
def test_auto_is_the_first_compiler_without_a_kernel() -> None:
    assert find_compiler().name == find_compiler("auto").name == "clang"
    assert [one.name for one in available_compilers()] == ["clang", "gcc"]


@pytest.mark.usefixtures("rivals")
def test_a_requested_compiler_is_not_compared(times: Times, make: Make) -> None:
    kernel = make("FillZero", (4,))
    named = Kernel.of(kernel.impl, kernel.target, kernel.program, "clang")
    assert named.choice is None
    assert named.compiler.name == "clang"
    assert times["timed"] == 0


@pytest.mark.slow
def test_real_times(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is faked."""
    monkeypatch.setenv("MORELLO_CC", "auto")
    kernel = make("Matmul", (1, 8, 8, 8))
    assert kernel.choice
    if len(kernel.choice.times) > 1:
        assert all(one.seconds and 0 < one.seconds < 1 for one in kernel.choice.times)
    assert kernel.check().worst <= 1


def test_the_fastest_of_three() -> None:
    trials = [
        CompilerTime(Compiler((name,), name, "1"), seconds) for name, seconds in (("a", 3.0), ("b", None), ("c", 2.0))
    ]
    assert CompilerChoice(tuple(trials)).compiler.name == "c"
