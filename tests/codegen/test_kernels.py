"""Every microkernel computes its declared Specs, in every data type and operand state that it accepts."""

from __future__ import annotations

from typing import Any

import pytest

from morello.build.toolchain import available_compilers
from morello.host import missing_features
from morello.plugins.registry import installed
from morello.testing import KernelCheck, kernel_checks

TARGETS = ["x86_avx2", "x86_avx512"]


def checks() -> list[Any]:
    """Targets take turns with the compilers of this machine; kernels that are built together share a worker."""
    compilers = available_compilers()
    return [
        pytest.param(check, marks=pytest.mark.xdist_group(f"kernels of {check.group}"), id=str(check))
        for number, name in enumerate(TARGETS)
        for check in kernel_checks(
            installed().target(name, cpu=f"+{',+'.join(installed().target(name).optional_features)}"),
            1,
            compiler=compilers[number % len(compilers)],
            sanitize=True,
        )
    ]


@pytest.mark.slow
@pytest.mark.parametrize("check", checks())
def test_kernels_compute_their_declared_results(check: KernelCheck) -> None:
    target = str(check).partition("-")[0]
    if missing := missing_features(installed().target(target).info.cpu_features):
        pytest.skip(f"this CPU lacks {', '.join(missing)}")
    check()
