"""Every microkernel of toy_cpu computes its declared results."""

from __future__ import annotations

import pytest
from toy_cpu.plugin import PLUGIN  # pyright: ignore[reportMissingImports]

from morello.plugins import Registry
from morello.testing import KernelCheck, kernel_checks

TARGET = Registry.of(toy_cpu=PLUGIN).target("toy_cpu")


@pytest.mark.parametrize("check", kernel_checks(TARGET, sanitize=True), ids=str)
def test_kernels_compute_their_declared_results(check: KernelCheck) -> None:
    check()
