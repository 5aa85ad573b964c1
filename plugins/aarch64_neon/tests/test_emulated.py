"""Kernels and random programs compute their declared results on AArch64 or emulated; without both, tests skip."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from morello_aarch64_neon.plugin import INFO

from morello.build.toolchain import find_compiler
from morello.errors import ToolchainError
from morello.plugins.registry import installed
from morello.run.runner import require_runner
from morello.testing import kernel_checks
from morello.testing.draws import Draws
from morello.testing.trials import Trials

TARGET = installed().target("aarch64_neon", "base")
PROGRAMS = 20


@pytest.fixture(scope="session", autouse=True)
def runs() -> None:
    try:
        find_compiler(info=INFO)
        require_runner(INFO)
    except ToolchainError as error:
        pytest.skip(f"{error.message}; {error.hint}")


def checks() -> list:
    target = installed().target("aarch64_neon", "base", cpu=f"+{',+'.join(TARGET.optional_features)}")
    return [
        pytest.param(one, marks=pytest.mark.xdist_group(f"kernels of {one.group}"), id=str(one))
        for one in kernel_checks(target, 1)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("check", checks())
def test_kernels_compute_their_declared_results(check: Callable[[], None]) -> None:
    check()


@pytest.mark.slow
def test_random_programs_are_right() -> None:
    trials = Trials([one.impl for one in Draws(TARGET).programs(PROGRAMS)], TARGET)
    for number in range(PROGRAMS):
        trials.check(number)
