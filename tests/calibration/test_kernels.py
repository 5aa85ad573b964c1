"""`morello calibrate --kernels` times microkernels, and gives those without a cost one in the profile."""

from __future__ import annotations

import importlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result

from morello import api
from morello.build.toolchain import available_compilers
from morello.calibration.kernels import time_kernels
from morello.calibration.levels import fitted
from morello.calibration.meter import Timer, UnitMeter
from morello.cli.app import main
from morello.host import missing_features
from morello.ir.impl import cost_and_peak
from morello.ir.ops.move import Move
from morello.kernels.target import Target
from morello.plugins import Clock, Microkernel, OperandPattern, TargetPlugin
from morello.plugins.profile import read_profile
from morello.plugins.registry import Registry, installed

TOY = Path(__file__).parents[1] / "thirdparty" / "toy_cpu" / "src"
CLOCK = Clock(source="static void morello_clock(void *memory) { (void)memory; }", units=500)
APART = OperandPattern(contiguous=False, when=lambda state: state.level == "C" and not state.contiguous)
NEVER = Microkernel(name="Apart", op=Move(), operands=(APART, OperandPattern()), template="{out} = {src};")
UNPRICED = Microkernel(name="Sum", takes="Add(1, f32 R/C, f32 R, f32 R)", template="{out} = {lhs} + {rhs};")
#: The beats of a call of any kernel, and of all else.
CALL, OTHER = 37, 500.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of toy_cpu with a kernel that declares no cost, on a machine where each call takes CALL beats."""
    monkeypatch.syspath_prepend(str(TOY))
    plugin = importlib.import_module("toy_cpu.plugin").PLUGIN
    info = attrs.evolve(plugin.info, cost_unit="beats")
    registry = Registry.of(
        toy_cpu=attrs.evolve(plugin, info=info, kernels=(*plugin.kernels, UNPRICED, NEVER), clock=CLOCK),
    )
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: registry)

    def seconds(self: Timer, source: str, names: Sequence[str], *args: Any, **options: Any) -> list[float]:
        rounds = {name: found for name in names if (found := re.fullmatch(r"timed_\d+_(\d+)", name))}
        return [OTHER + CALL * 8 * int(rounds[name][1]) if name in rounds else OTHER for name in names]

    monkeypatch.setattr(Timer, "seconds", seconds)
    return registry


def calibrate(*arguments: str) -> Result:
    return CliRunner(catch_exceptions=False).invoke(main, ["calibrate", "--quick", *arguments])


def test_a_kernel_without_a_cost_gets_the_measured_one(machine: Registry, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    done = calibrate("--kernels", "-o", str(path))
    assert done.exit_code == 0, done.output
    assert [*read_profile(path).kernels] == ["Sum"]
    spec = "Add(1, (f32, R), (f32, R), (f32, R), serial)"
    goal = api.goal(spec, target="toy_cpu", registry=machine, profile=path).select("Sum")
    # Rounded, and less what an operand in C costs if the measured one was there.
    assert cost_and_peak(goal.impl).cost in range(CALL - 4, CALL + 2)


def test_kernels_with_a_cost_are_compared(machine: Registry) -> None:
    text = calibrate("--kernels").stdout
    assert re.search(r"kernels\.MultAdd +\d+ +37, in a chain 37, × \d+\.\d\d \(\d+\.\d\d to \d+\.\d\d\) +–", text)
    assert re.search(r"kernels\.Apart +not timed: no Spec with contiguous operands", text)
    assert re.search(r"kernels\.Sum +\d+ +37, × .* %", text)
    found = json.loads(calibrate("--kernels", "--json").stdout)["kernels"]
    assert {one["kernel"] for one in found} == {*machine.target("toy_cpu").kernels_by_name} - {"Apart"}
    assert all(one["taken"] == CALL for one in found)


def test_kernels_are_timed_on_request_only(machine: Registry) -> None:
    assert "kernels." not in calibrate().stdout


def refused(machine: Registry, monkeypatch: pytest.MonkeyPatch, **info: Any) -> str:
    """Return the message of a calibration for a target with another TargetInfo."""
    plugin = machine.contributions("toy_cpu")
    other = Registry.of(toy_cpu=attrs.evolve(plugin, info=attrs.evolve(plugin.info, **info)))
    monkeypatch.setattr("morello.calibration.machine.installed", lambda: other)
    done = calibrate("--target", "toy_cpu", "--kernels")
    assert done.exit_code != 0
    return done.stderr


def test_an_emulator_is_not_measured(machine: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    emulator = tmp_path / "qemu-pdp11"
    emulator.write_text("#!/bin/sh\n")
    emulator.chmod(0o755)
    monkeypatch.setenv("MORELLO_RUNNER", f"{emulator} -cpu max")
    message = refused(machine, monkeypatch)
    assert "costs of toy_cpu cannot be measured here: its programs run through" in message
    assert "qemu-pdp11 -cpu max`, whose times are not those of a CPU" in message


def test_another_machine_is_not_measured(machine: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    message = refused(machine, monkeypatch, triple="pdp11-unix")
    assert "costs of toy_cpu cannot be measured here: this machine is" in message
    assert "hint: run `morello calibrate` on the pdp11 machine itself" in message


def test_known_parts_of_costs_are_not_fitted() -> None:
    assert fitted([(1, 16.0), (2, 20.0), (4, 28.0)], [2, 2, 2]) == pytest.approx((4, 10))
    assert fitted([(1, 5.0), (2, 10.0)], [6, 12]) == (0, 0)


@pytest.fixture
def fused(avx2: Target) -> tuple[TargetPlugin, Target]:
    """x86_avx2 with a fused multiply-add only, and its plugin, which has the clock."""
    template = "{out} = _mm256_fmadd_ps(_mm256_set1_ps({lhs}), {rhs}, {out});"
    takes = "MatmulAccum(1×1×1×n, f32 RF/L1, f32 L1 row_major, f32 VRF row_major v8)"
    kernel = Microkernel(name="Fused", takes=takes, template=template)
    return installed().contributions("x86_avx2"), attrs.evolve(avx2, kernels=(kernel,), unavailable=())


@pytest.mark.slow
@pytest.mark.skipif(bool(missing_features(("avx2", "fma"))), reason="this CPU lacks avx2 or fma")
@pytest.mark.parametrize("compiler", available_compilers(), ids=str)
def test_a_fused_multiply_add_on_the_machine_at_hand(compiler: Any, fused: tuple[TargetPlugin, Target]) -> None:
    """Independent calls overlap, chained ones wait; more vectors take longer. Compilers drop no call.

    Expected are 5, 40 and 20 units; other processes may run meanwhile.
    """
    plugin, target = fused
    assert plugin.clock is not None
    timer = Timer(compiler, getattr(target.emitter, "flags", ()), 1 << 20, True, time.monotonic() + 60)
    (timing,) = time_kernels(UnitMeter(timer, plugin.clock), target)
    one, *_, most = timing.timings
    assert one.chained is not None
    assert (one.vectors, most.vectors) == (1, 8)
    assert 1 < one.taken < one.chained
    assert most.taken > one.taken
    assert timing.costs[0] >= 1
