"""Timing kernels."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from morello.errors import MorelloError
from morello.ir.dtypes import BF16, F32, I32
from morello.ir.layout import row_major
from morello.runtime import BenchReport, CompiledKernel, Compiler

Make = Callable[..., CompiledKernel]


def test_reports_rates(make: Make, compiler: Compiler) -> None:
    kernel = make("Matmul", (1, 16, 16, 16), [F32, BF16, (F32, row_major(3), 1)], compiler=compiler)
    report = kernel.bench(min_time=0.02, repeats=3)
    assert len(report.seconds) == 3
    assert 0 < report.best <= report.median
    assert report.gflops == pytest.approx(2 * 16**3 / report.median / 1e9)
    assert report.bytes == 16 * 16 * (4 + 2 + 4)
    assert "GFLOP/s" in str(report)
    assert report.median < 1e-3


def test_what_only_moves_is_measured_in_bytes(make: Make) -> None:
    report = make("Move", (1000,)).bench(min_time=0.01, repeats=1)
    assert report.gflops is None
    assert report.bytes == 8000
    assert "GB/s" in str(report)


def test_calls_are_not_hoisted(make: Make) -> None:
    """A kernel whose calls do the same every time takes time every time."""
    small = make("Matmul", (1, 4, 4, 4)).bench(min_time=0.01, repeats=3)
    large = make("Matmul", (1, 32, 32, 32)).bench(min_time=0.01, repeats=3)
    assert large.best > 20 * small.best


def test_every_call_is_made(make: Make) -> None:
    """The kernel counts its calls in its workspace."""
    kernel = make("Move", (1,), I32)
    source = (
        "#include <stdint.h>\n"
        "void sample(const int32_t *restrict src, int32_t *restrict out, void *restrict workspace) "
        "{ out[0] = src[0]; ++*(int64_t *)workspace; }\n"
    )
    prototype = "void sample(const int32_t *restrict src, int32_t *restrict out, void *restrict workspace)"
    header = f"#include <stdint.h>\n{prototype};\n"
    program = attrs.evolve(kernel.program, source=source, header=header, prototype=prototype, workspace=8)
    counting = CompiledKernel(kernel.impl, kernel.target, program)
    counting.workspace()[:] = 0
    report = counting.bench(min_time=0.001, repeats=2)
    total = counting.workspace().view("int64")[0]
    assert total == 1 + sum(2**power for power in range(report.calls.bit_length())) + 2 * report.calls


@pytest.mark.parametrize(("seconds", "shown"), [(2.0, "2 s"), (2e-3, "2 ms"), (2e-6, "2 µs"), (2e-9, "2 ns")])
def test_durations_have_fitting_units(seconds: float, shown: str) -> None:
    assert str(BenchReport((seconds,), 1, 0, 1)).startswith(shown + " per call")


def test_no_measurement_is_refused(make: Make) -> None:
    with pytest.raises(MorelloError, match="0 measurements"):
        make("FillZero", (2,)).bench(repeats=0)
