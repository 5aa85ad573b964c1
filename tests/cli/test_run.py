"""`morello run`, `check` and `bench`."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
from morello_reference_c.emitter import ReferenceEmitter

from morello.build.toolchain import available_compilers
from morello.ir.impl import Impl
from morello.ir.program import Program
from morello.kernels.target import Target

TWO = "spec one = Matmul(1×1×1×1, GL, GL, GL)\nspec zero = FillZero(4×4, GL)\n"


@pytest.mark.slow
def test_run_shows_program_file_verdict_and_speed(cli, write, runnable):
    result = cli("run", write(target=runnable), "--seed", "3")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"one for {runnable}:\nMatmul(1×1×1×1,")
    assert re.search(r"searched \d+ Specs in", result.stdout)
    assert re.search(r"^correct +on 13 data sets by numpy, and on 13 of them by reference_c", result.stdout, re.M)
    assert re.search(r"^speed .*GFLOP/s; numpy takes .*not compared: the call, .*, dominates", result.stdout, re.M)
    (path,) = re.findall(r"^C +(.*\.c)$", result.stdout, re.M)
    assert Path(path).read_text(encoding="utf-8") == cli("compile", write(target=runnable)).stdout


@pytest.mark.slow
def test_run_compares_large_products_with_numpy(cli, runnable):
    if runnable != "x86_avx2":
        pytest.skip("the example is for x86_avx2")
    result = cli("run", str(Path(__file__).parents[2] / "examples" / "gemm_6x16.spec"))
    assert result.exit_code == 0, result.output
    assert "scheduled in full, nothing to search" in result.stdout
    speed = r"^speed .*GFLOP/s; numpy takes .* \(median .*\): .*× its speed \(.*× by medians\)$"
    assert re.search(speed, result.stdout, re.M)


@pytest.mark.slow
def test_programs_of_convolutions_show_the_image(cli, write, tmp_path):
    db = str(tmp_path / "specs.db")
    file = write("spec edge = Conv[stride=2, padding=1, image=4](1×1×1×2×2×3×3, GL, GL, GL)", target="reference_c")
    for command in ("run", "check", "explain"):
        shown = cli(command, file, MORELLO_DB=db)
        assert shown.exit_code == 0, shown.output
        assert "\nimage 1×1×4×4, padding [1, 1, 0, 0]\n" in shown.stdout
    graph = write(
        "spec edge = Compose([Relu, Conv[stride=2, padding=1, image=4]],\n"
        "    [(1×1×4×4, GL), (1×1×3×3, GL), (1×1×2×2, GL)])",
        target="reference_c",
    )
    sizes = "operation 1, Conv: image 1×1×4×4, padding [1, 1, 0, 0]\n"
    assert f"\n{sizes}" in cli("explain", graph, MORELLO_DB=db).stdout
    assert f"\n{sizes}program" in cli("compile", graph, "--emit", "impl", MORELLO_DB=db).stdout
    plain = write("spec plain = Conv(1×1×1×2×2×3×3, GL, GL, GL)", target="reference_c")
    assert "\nimage 1×1×4×4\n" in cli("explain", plain).stdout


@pytest.mark.slow
def test_run_takes_every_spec_or_the_one_named(cli, write):
    path = write(TWO, target="reference_c")
    both = cli("run", path, "--against", "none").stdout
    assert "one for" in both
    assert "zero for" in both
    only = cli("run", path, "--spec", "zero", "--against", "none").stdout
    assert "one for" not in only
    assert re.search(r"^speed .* GB/s$", only, re.M)


@pytest.mark.slow
def test_run_with_a_compiler(cli, write, tmp_path):
    fake = tmp_path / "mycc"
    fake.write_text('#!/bin/sh\ntouch "$0.used"\nexec cc "$@"\n')
    fake.chmod(0o755)
    assert cli("run", write(target="reference_c"), "--cc", str(fake)).exit_code == 0
    assert (tmp_path / "mycc.used").exists()


def test_check_table(cli, write):
    result = cli("check", write(TWO, target="reference_c"))
    assert result.exit_code == 0
    assert result.stdout.count("passed: ") == 2
    assert "infinities and NaN" in result.stdout


def test_check_json(cli, write):
    result = cli("check", write(TWO, target="reference_c"), "--json", "--seed", "5")
    one, zero = json.loads(result.stdout)
    assert (one["spec"], zero["spec"], one["seed"], one["passed"]) == ("one", "zero", 5, True)
    assert {result["data"] for result in one["results"]} >= {"normal", "wide range", "cancellation"}
    assert all(0 <= result["error"] <= 1 for result in one["results"])


@pytest.fixture
def wrong(monkeypatch):
    """The emitter prints programs that are wrong."""
    emit = ReferenceEmitter.emit

    def broken(self: ReferenceEmitter, impl: Impl, target: Target, name: str, *signature: Any) -> Program:
        program = emit(self, impl, target, name, *signature)
        # The reference that it is compared with is printed under another name, and stays right.
        return attrs.evolve(program, source=program.source.replace("sum += ", "sum -= ")) if name == "one" else program

    monkeypatch.setattr(ReferenceEmitter, "emit", broken)


def test_check_fails_on_a_wrong_result(cli, write, wrong):
    path = write(TWO, target="reference_c")
    result = cli("check", path)
    assert result.exit_code == 1
    assert "error: one on data set" in result.stderr
    assert "zero: FillZero" in result.stdout
    outcome = cli("check", path, "--json")
    assert outcome.exit_code == 1
    assert [one["passed"] for one in json.loads(outcome.stdout)] == [False, True]


def test_run_fails_on_a_wrong_result(cli, write, wrong):
    result = cli("run", write(TWO, target="reference_c"))
    assert result.exit_code == 1
    assert "error: one on data set" in result.stderr
    assert "speed" not in result.stdout


@pytest.mark.slow
def test_libraries_are_not_timed_cold(cli, write):
    result = cli("bench", write(TWO, target="reference_c"), "--min-time", "0", "--cold")
    assert result.exit_code == 0, result.stderr
    assert result.stderr.count("not compared: libraries are timed with operands in caches") == 2


@pytest.mark.slow
def test_bench_table(cli, write):
    result = cli("bench", write(TWO, target="reference_c"), "--min-time", "0.001")
    assert result.exit_code == 0
    heading, one, zero = result.stdout.splitlines()
    assert heading.split()[:2] == ["spec", "target"]
    assert "GFLOP/s" in one
    assert "GB/s" in zero


@pytest.mark.slow
def test_parallel_loops_are_timed_on_the_requested_threads(cli, write, runnable):
    if runnable != "x86_avx2":
        pytest.skip("its schedule is for x86_avx2")
    shared = "spec s = FillZero(4×8, (f32, L1))\nschedule s { tile [1, 8] parallel\n select MemsetZero }"
    path = write(shared, target="x86_avx2")
    options = ("--threads", "2")
    (one,) = json.loads(cli("bench", path, "--json", "--min-time", "0", *options).stdout)
    assert one["threads"] == 2
    assert "per call on 2 threads" in cli("run", path, *options).stdout
    assert cli("bench", path, "--threads", "0").exit_code == 2


@pytest.mark.slow
def test_operations_that_numpy_lacks_are_not_compared(cli, write, tmp_path):
    """numpy has no saturating call, so no ratio is shown."""
    path = write("spec s = Matmul[saturating](1×2×4×2, (u8, L1), (i8, L1), (i16, L1), serial)", target="x86_avx2")
    options = (path, "--min-time", "0", "--db", str(tmp_path / "specs.db"))
    (one,) = json.loads(cli("bench", *options, "--json").stdout)
    assert one["against"] is one["times_as_fast"] is None
    assert one["not_compared"] == "numpy has no operands of several types"
    outcome = cli("bench", *options)
    assert outcome.stderr.splitlines()[-1] == "s: not compared: numpy has no operands of several types"
    assert outcome.stdout.splitlines()[1].split()[-4:] == ["–"] * 4


@pytest.mark.slow
def test_bench_json(cli, write):
    result = cli("bench", write(TWO, target="reference_c"), "--json", "--min-time", "0")
    one, zero = json.loads(result.stdout)
    for clock in ("cpu_seconds", "wall_seconds"):
        assert one[clock]["best"] == min(one[clock]["each"]) <= one[clock]["median"]
    assert one["gflops"] == pytest.approx(one["flops"] / one["cpu_seconds"]["best"] / 1e9)
    assert isinstance(one["busy"], list)
    assert zero["against"]["library"] == "numpy"
    # One product takes no longer than the call.
    assert one["times_as_fast"] is None
    assert one["not_compared"].startswith("the call dominates")


@pytest.mark.slow
def test_ratios_are_without_calls(cli, write, runnable):
    path = write("spec one = Softmax(64×256, GL, GL, serial)\n", target=runnable)
    (one,) = json.loads(cli("bench", path, "--json", "--min-time", "0.05").stdout)
    for ratio, of in (("times_as_fast", "best"), ("times_as_fast_by_medians", "median")):
        ours, theirs = (each["cpu_seconds"][of] - each["call_seconds"] for each in (one, one["against"]))
        assert one[ratio] == pytest.approx(theirs / ours)
    assert 0 < one["call_seconds"] < one["cpu_seconds"]["best"]


@pytest.mark.slow
def test_bench_against_torch(cli, write, runnable):
    pytest.importorskip("torch")
    path = write("spec one = Gelu(1024×256, GL, GL, serial)\n", target=runnable)
    for library, name in (("torch", r"torch \(oneDNN (on|off)\)"), ("onednn", "onednn")):
        outcome = cli("run", path, "--against", library).stdout
        assert re.search(rf"^speed .*; {name} takes .*: .*× its speed", outcome, re.M)


@pytest.mark.parametrize("command", ["run", "bench"])
def test_a_missing_library_is_reported_before_the_search(cli, refused, write, monkeypatch, command):
    monkeypatch.setattr("morello_baselines.times.find_spec", lambda name: None)
    refused(cli(command, write(), "--against", "onednn"), "torch is not installed", "pip install torch")
    words = "unknown library 'jax'", "compare with numpy, torch, onednn or none"
    refused(cli(command, write(), "--against", "jax"), *words, code=2)


def test_verbose_prints_the_compiler(cli, write):
    path = write(TWO, target="reference_c")
    outcome = cli("check", path, "--spec", "one", "--verbose", "--cc", "auto").stderr
    (line,) = [line for line in outcome.splitlines() if "built with" in line]
    assert line.startswith("one: built with ")
    assert line.count("per call") in (0, len(available_compilers()))
    assert "built with" not in cli("check", path, "--spec", "one").stderr


@pytest.mark.slow
def test_without_baselines_nothing_is_compared(cli, refused, write, monkeypatch):
    """The command works without the distribution that calls other libraries; asking for one names the install."""
    monkeypatch.setitem(sys.modules, "morello_baselines", None)
    done = cli("run", write())
    assert done.exit_code == 0, done.stderr
    assert "numpy takes" not in done.stdout
    refused(cli("run", write(), "--against", "numpy"), "cannot compare", "pip install morello-baselines")
