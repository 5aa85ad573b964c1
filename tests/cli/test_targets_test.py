"""`morello targets test`: the checks of a target's kernels and of random programs, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from morello.plugins import STANDARD, CEmitter, MemoryLevel, Microkernel, Registry, TargetInfo, TargetPlugin, row_major

pytestmark = pytest.mark.slow

COPY = Microkernel(name="Good", takes="Move(1, f32 GL, f32 GL)", template="{out} = {src};")
WRONG = attrs.evolve(COPY, name="Wrong", template="{out} = {src} + 1;")


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces the installed targets by `small`, with these kernels and CPU features."""

    def change(*kernels: Microkernel, cpu_features: tuple[str, ...] = ()) -> None:
        info = TargetInfo(
            name="small", description="", layouts=lambda dtype, rank: [row_major(rank)], cpu_features=cpu_features
        )
        level = MemoryLevel(name="GL", kind="memory", capacity=1 << 20, unit=64, hit_cost=1)
        plugin = TargetPlugin(info=info, levels=[level], rewrites=STANDARD, kernels=kernels, emitter=CEmitter())
        monkeypatch.setattr("morello.api.target_checks.installed", lambda: Registry.of(small=plugin))

    return change


def test_all_kernels_and_programs(cli: Any, use: Callable[..., None]) -> None:
    use(COPY)
    done = cli("targets", "test", "small", "--programs", "3")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "small: 1 of 1 kernels and 3 of 3 programs passed"
    printed = json.loads(cli("targets", "test", "small", "--programs", "3", "--json").stdout)
    assert (printed["target"], printed["passed"]) == ("small", True)
    assert [one["kind"] for one in printed["checks"]] == ["kernel", "program", "program", "program"]


def test_a_wrong_kernel_fails_with_a_file_that_reproduces_it(cli: Any, use: Callable[..., None]) -> None:
    use(COPY, WRONG)
    done = cli("targets", "test", "small", "--programs", "0")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "small: 1 of 2 kernels and 0 of 0 programs passed"
    assert "Wrong (Move): " in done.stderr
    assert "select Wrong" in done.stderr
    alone = cli("targets", "test", "small", "--kernel", "Good")
    assert (alone.exit_code, alone.stdout.splitlines()[-1]) == (0, "small: 1 of 1 kernels and 0 of 0 programs passed")


def test_a_kernel_that_crashes_is_one_failure(cli: Any, use: Callable[..., None]) -> None:
    use(attrs.evolve(COPY, name="Crash", template="{out} = {src}; __builtin_trap();"), COPY)
    done = cli("targets", "test", "small", "--programs", "0")
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "small: 1 of 2 kernels and 0 of 0 programs passed"
    assert "Crash (Move): " in done.stderr
    assert "was ended by SIG" in done.stderr


def test_kernels_of_cpu_features_that_are_missing_are_skipped(cli: Any, use: Callable[..., None]) -> None:
    use(COPY, attrs.evolve(COPY, name="Other", cpu_features=("no_such_feature",)))
    done = cli("targets", "test", "small", "--programs", "0")
    assert done.stdout.splitlines()[-1] == "small: 1 of 2 kernels and 0 of 0 programs passed; 1 skipped"
    assert cli("targets", "test", "small", "--kernel", "Other").exit_code == 1


def test_nothing_executed_is_a_failure(cli: Any, use: Callable[..., None], refused: Callable[..., None]) -> None:
    use(COPY, cpu_features=("no_such_feature",))
    done = cli("targets", "test", "small", "--programs", "1")
    refused(done, "error: no code of small was executed: this CPU lacks no_such_feature", "hint: ")
    use()
    refused(cli("targets", "test", "small", "--programs", "0"), "no code of small was executed: it has no kernels")


def test_an_unknown_kernel(cli: Any, use: Callable[..., None], refused: Callable[..., None]) -> None:
    use(COPY)
    refused(cli("targets", "test", "small", "--kernel", "God"), "has no kernel 'God'", "did you mean 'Good'", code=2)
