"""Every microkernel of both targets computes its declared results."""

from __future__ import annotations

import pytest
from gemmini.plugin import FP32, INT8  # pyright: ignore[reportMissingImports]

from morello.plugins.registry import Registry
from morello.testing import KernelCheck, kernel_checks

REGISTRY = Registry.of(gemmini=INT8, gemmini_fp32=FP32)
CHECKS = [check for name in REGISTRY.names for check in kernel_checks(REGISTRY.target(name), sanitize=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "check",
    [pytest.param(check, id=str(check), marks=pytest.mark.xdist_group(check.group)) for check in CHECKS],
)
def test_kernels_compute_their_declared_results(check: KernelCheck) -> None:
    check()
