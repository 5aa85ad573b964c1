"""Programs that runners run: emulators, other machines, and commands of this one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np
import pytest

from morello import api
from morello.api.kernel import Kernel
from morello.build.toolchain import find_compiler
from morello.codegen.emitter import CEmitter
from morello.errors import ToolchainError, VerificationError
from morello.ir.layout import row_major
from morello.plugins import MemoryLevel, Microkernel, Target, TargetInfo, TargetPlugin, Weights, per_vector
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD
from morello.run.runner import Runner
from morello.testing import kernel_checks
from tools.fixtures import Cli, Write

Make = Callable[..., Kernel]

PRODUCT = "spec product = Matmul(1×16×16×16, (f32, L1), (f32, L1), (f32, L1), serial)\n"
#: A shell that takes options and a host, or the word `shell`, and runs the rest here.
SHELL = '#!/bin/sh\nwhile [ "$1" != there ]; do shift; done\nshift\necho "$*" >> "$LOG"\nexec sh -c "$*"\n'


class NeonEmitter(CEmitter):
    includes = ("arm_neon.h", "stddef.h", "stdint.h", "string.h")


NEON = TargetPlugin(
    info=TargetInfo(
        name="neon",
        description="AArch64",
        layouts=lambda dtype, rank: [row_major(rank)],
        triple="aarch64-linux-musl",
        compilers=("zig cc -target aarch64-linux-musl -mcpu=generic",),
        runners=("qemu-aarch64 -cpu max",),
    ),
    levels=(
        MemoryLevel(name="V", kind="vector", capacity=32 * 16, unit=16, vectors=(16,), destinations=("V",)),
        MemoryLevel(name="L1", kind="cache", capacity=32 << 10, unit=64, hit_cost=2, destinations=("L1", "V")),
        MemoryLevel(name="GL", kind="memory", capacity=1 << 30, unit=64, hit_cost=50, destinations=("GL", "L1")),
    ),
    rewrites=STANDARD,
    kernels=(
        Microkernel(
            name="Fma",
            takes="MatmulAccum(1×1×1×n, f32 L1, f32 L1 row_major, f32 V row_major v4)",
            cost=per_vector(10),
            registers={"V": 2},
            template="{out} = vfmaq_f32({out}, {rhs}, vdupq_n_f32({lhs}));",
        ),
        Microkernel(
            name="Load",
            takes="Move(n, f32 L1 row_major, f32 V row_major v4)",
            cost=per_vector(5),
            template="{out} = {src};",
        ),
        Microkernel(
            name="Store",
            takes="Move(n, f32 V row_major v4, f32 L1 row_major)",
            cost=per_vector(5),
            template="{out} = {src};",
        ),
        Microkernel(
            name="Zero",
            takes="FillZero(n, f32 V row_major v4)",
            cost=per_vector(1),
            template="{out} = vdupq_n_f32(0);",
        ),
    ),
    weights=Weights(threads=2, sync=100),
    emitter=NeonEmitter(),
)
REGISTRY = Registry.of(neon=NEON)


@pytest.fixture(scope="module")
def neon() -> Target:
    """The target, where its compiler and its runner are installed."""
    found = {"ziglang": importlib.util.find_spec("ziglang"), "qemu-aarch64": shutil.which("qemu-aarch64")}
    missing = [name for name, place in found.items() if place is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: nothing runs programs for AArch64")
    return REGISTRY.target("neon")


def product(size: int = 8, target: str = "neon", registry: Registry | None = REGISTRY, **options) -> Kernel:
    goal = api.goal(f"Matmul(1×{size}×{size}×{size}, GL, GL, GL)", target=target, registry=registry)
    return api.compile(goal, db=False, **options)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Install a command that stands for `ssh` or `adb`; return the log of what it ran."""

    def install(name: str) -> Path:
        (tmp_path / name).write_text(SHELL)
        (tmp_path / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setenv("LOG", str(tmp_path / "log"))
        return tmp_path / "log"

    return install


# On this machine.


@pytest.mark.slow
def test_commands_go_through_the_runner(cli: Cli, write: Write, runnable: str) -> None:
    file = write(PRODUCT, runnable)
    ran = cli("run", "--no-db", "--runner", "env", "--against", "none", file)
    assert "runner   env\n" in ran.stdout
    assert "correct  on 13 data sets" in ran.stdout
    checked = json.loads(cli("check", "--json", file, MORELLO_RUNNER="nice -n 1").stdout)
    assert checked[0]["passed"]
    assert checked[0]["runner"] == "nice -n 1"
    (timed,) = json.loads(cli("bench", "--json", "--min-time", "0", "--runner", "env", file).stdout)
    assert timed["gflops"] > 0
    assert timed["emulator"] is None
    assert timed["call_seconds"] < timed["cpu_seconds"]["best"]


def test_arrays_are_copied_there_and_back(make: Make) -> None:
    own = make("Matmul", (2, 3, 4, 8))
    kernel = Kernel(own.goal, own.program, runner="env")
    rng = np.random.default_rng(0)
    left, right = (rng.random(size, np.float32) for size in ((2, 3, 4), (2, 4, 8)))
    right.flags.writeable = False
    assert np.array_equal(kernel(left, right), own(left, right))
    out = np.zeros((2, 3, 8), np.float32)
    assert kernel(left, right, out=out) is out
    assert np.array_equal(out, own(left, right))


@pytest.mark.parametrize(
    ("replace", "words"),
    [
        ({"= sum;": "= sum; out[48] = 1;"}, "4 bytes outside of it were overwritten, the first 0 bytes after its end"),
        ({"= sum;": "= sum; ((float *)lhs)[0] = 7;"}, "lhs.*is an input but was"),
        ({"= sum;": "= sum + 1;"}, "expected .* got"),
        ({"= sum;": "= sum; __builtin_trap();"}, r"sample through `env` was ended by SIG(ILL|TRAP)"),
    ],
)
def test_wrong_programs_are_found(make: Make, replace: dict[str, str], words: str) -> None:
    wrong = make("Matmul", (2, 3, 4, 8), replace=replace)
    with pytest.raises(VerificationError, match=words):
        Kernel(wrong.goal, wrong.program, runner="env").check()


def test_one_that_does_not_end(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MORELLO_CC_TIMEOUT", "3")
    wrong = make("Matmul", (2, 3, 4, 8), replace={"= sum;": '= sum; for (;;) __asm__ volatile ("");'})
    with pytest.raises(VerificationError, match="does not end: it ran for 3 s"):
        Kernel(wrong.goal, wrong.program, runner="env").check()


@pytest.mark.slow
@pytest.mark.parametrize("command", ["ssh -p 22 there", "adb there"])
def test_other_machines(write: Write, runnable: str, shell: Callable[[str], Path], command: str) -> None:
    """The program is copied there once for all data sets, and removed at the end."""
    log = shell(command.split()[0])
    file = write(PRODUCT.replace("L1", "GL"), runnable)
    done = subprocess.run([sys.executable, "-m", "morello", "check", "--runner", command, file], capture_output=True)
    assert done.returncode == 0, done.stderr
    copied, ran = log.read_text().splitlines()
    name = ran.split("; ")[1]
    assert f"cat > {name}" in copied
    assert not [*Path("/tmp").glob(name)]


def test_a_runner_that_fails(make: Make) -> None:
    own = make("FillZero", (2,))
    with pytest.raises(ToolchainError, match="the runner `false` did not start the program:\n  exit code 1"):
        Kernel(own.goal, own.program, runner="false").check()


def test_a_runner_that_does_not_exist(cli: Cli, write: Write, runnable: str, refused: Callable[..., None]) -> None:
    file = write(PRODUCT, runnable)
    refused(
        cli("run", "--runner", "qemu-none -cpu max", file), "the runner 'qemu-none -cpu max' (--runner) does not exist"
    )
    refused(cli("check", file, MORELLO_RUNNER="'"), 'MORELLO_RUNNER is "\'", which is not a command')


@pytest.mark.slow
def test_emulated_programs_have_no_speed(
    cli: Cli, write: Write, refused: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An emulator that counts no instructions: the time is marked."""
    (tmp_path / "qemu-none").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "qemu-none").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    file = write(PRODUCT.replace("L1", "GL"), "reference_c")
    ran = cli("run", "--no-db", "--runner", "qemu-none", file).stdout
    assert "emulated by qemu-none; not compared: numpy runs on this machine, and the program through `qemu-none`" in ran
    assert not any(words in ran for words in ("FLOP/s", "GB/s", "its speed"))
    (timed,) = json.loads(cli("bench", "--json", "--min-time", "0", "--runner", "qemu-none", file).stdout)
    assert timed["emulator"] == "qemu-none"
    assert timed["gflops"] is timed["gbytes"] is timed["times_as_fast"] is None
    refused(cli("bench", "--cold", "--runner", "qemu-none", file), "are not timed from memory")
    for command in (["tune"], ["map", "--compare"]):
        refused(cli(*command, "--runner", "qemu-none", file), "`qemu-none` is an emulator, whose times say nothing")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="qemu-x86_64 is not installed: nothing counts instructions")
def test_instructions_are_counted(cli: Cli, write: Write) -> None:
    """They are the same every time, and proportional to the work."""
    counts = []
    for rows in (16, 16, 32):
        file = write(f"spec product = Matmul(1×{rows}×16×16, GL, GL, GL, serial)\n", "reference_c")
        (found,) = json.loads(cli("bench", "--json", "--no-db", "--runner", "qemu-x86_64", file).stdout)
        ((reading),) = found["metrics"]
        assert (reading["name"], reading["unit"]) == ("instructions", "emulated by qemu-x86_64")
        counts.append(reading["value"])
    assert counts[0] == counts[1]
    assert 1.9 < counts[2] / counts[0] < 2.1
    (tuned,) = json.loads(cli("tune", "--json", "--no-db", "--budget", "2", "--runner", "qemu-x86_64", file).stdout)
    assert (tuned["metric"], tuned["start"]) == ("instructions", counts[2])


# On another architecture.


def test_without_a_runner(tmp_path: Path) -> None:
    """Code is built where it cannot run; calls raise an error with the remedy."""
    cross = tmp_path / "vax-cc"
    cross.write_text('#!/bin/sh\n[ "$1" = -dumpmachine ] && echo vax-none && exit\nexec cc "$@"\n')
    cross.chmod(0o755)
    info = attrs.evolve(NEON.info, triple="vax-none", compilers=("cc", str(cross)), runners=("qemu-vax",))
    goal = product().goal
    kernel = Kernel(attrs.evolve(goal, target=attrs.evolve(goal.target, info=info)), goal.program)
    assert kernel.compiler.name == "vax-cc"
    message = (
        r"neon is for vax, and this machine is .*, so its programs need a runner\n  hint: install `qemu-vax`, or name"
    )
    with pytest.raises(ToolchainError, match=message):
        kernel.check()
    with pytest.raises(ToolchainError, match=message):
        kernel(*[np.zeros((1, 8, 8), np.float32)] * 2)
    with pytest.raises(ToolchainError, match=r"`.*/cc` compiles for .*, not for vax-none"):
        find_compiler("cc", info)


@pytest.mark.slow
def test_another_architecture(neon: Target) -> None:
    kernel = product()
    assert kernel.program.parallel
    assert kernel.runner == Runner(("qemu-aarch64", "-cpu", "max"))
    assert kernel.check().worst <= 1
    values = np.ones((1, 8, 8), np.float32)
    assert np.array_equal(kernel(values, values), 8 * values)
    assert kernel.bench(0).rate == "emulated by qemu-aarch64"
    assert api.build_library("o", "product", [kernel])[18] == 183  # the number of AArch64 in ELF


@pytest.mark.slow
def test_conformance_runs_there(neon: Target) -> None:
    for check in kernel_checks(neon, sanitize=True):
        check()
    wrong = attrs.evolve(neon.kernels_by_name["Zero"], template="{out} = vdupq_n_f32(1 << (int)sizeof(int) * 8);")
    (check,) = kernel_checks(attrs.evolve(neon, kernels=(wrong,)), sanitize=True, flags=("-w",))
    with pytest.raises(VerificationError, match="expected 0"):
        check()
