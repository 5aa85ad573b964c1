"""Timing kernels."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from morello.api.kernel import Kernel
from morello.build.toolchain import Compiler
from morello.errors import MorelloError
from morello.ir.dtypes import BF16, F32, I32
from morello.ir.layout import row_major
from morello.run.timing import BenchReport, Times

Make = Callable[..., Kernel]


def test_reports_rates(make: Make, compiler: Compiler) -> None:
    kernel = make("Matmul", (1, 16, 16, 16), [F32, BF16, (F32, row_major(3), 1)], compiler=compiler)
    report = kernel.bench(min_time=0.02, repeats=3)
    assert len(report.cpu.each) == len(report.wall.each) >= 3
    assert 0 < report.best <= report.median
    assert report.times == report.cpu
    assert report.wall.best > 0.9 * report.cpu.best
    assert report.gflops == pytest.approx(2 * 16**3 / report.best / 1e9)
    assert report.bytes == 16 * 16 * (4 + 2 + 4)
    assert "GFLOP/s" in str(report)
    assert report.median < 1e-3


def test_moves_are_measured_in_bytes(make: Make) -> None:
    report = make("Move", (1000,)).bench(min_time=0.01, repeats=1)
    assert report.gflops is None
    assert report.bytes == 8000
    assert "GB/s" in str(report)


def test_cold_calls_read_from_memory(make: Make) -> None:
    kernel = make("Move", (1 << 14,))
    warm, cold = (kernel.bench(min_time=0, repeats=5, cold=one) for one in (False, True))
    assert cold.calls == 1
    assert cold.best > 1.5 * warm.best
    assert str(cold).endswith("5 × 1 calls from memory")


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
    counting = Kernel.of(kernel.impl, kernel.target, program)
    counting.function.workspace()[:] = 0
    report = counting.bench(min_time=0.001, repeats=2)
    total = counting.function.workspace().view("int64")[0]
    assert (
        total == 1 + sum(2**power for power in range(report.calls.bit_length())) + len(report.wall.each) * report.calls
    )


@pytest.mark.parametrize(("seconds", "shown"), [(2.0, "2 s"), (2e-3, "2 ms"), (2e-6, "2 µs"), (2e-9, "2 ns")])
def test_durations_have_fitting_units(seconds: float, shown: str) -> None:
    assert str(_report([seconds], [2 * seconds])).startswith(shown + " per call")


def _report(cpu: list[float], wall: list[float], threads: int = 1, load: float = 0.0) -> BenchReport:
    return BenchReport(Times(tuple(cpu)), Times(tuple(wall)), 1, 10**9, 1, threads, load)


@pytest.mark.parametrize(
    ("report", "signs"),
    [
        (_report([1.0, 1.05], [1.01, 1.06]), []),
        (_report([1.0, 1.0], [1.0, 1.5]), ["had the core for 20% of the time"]),
        (_report([1.0, 1.3, 1.3], [1.0, 1.3, 1.3]), ["the median is 30% above the least"]),
        (_report([1.0], [1.0], load=1.6), []),
        (_report([1.0], [1.0], load=2.4), ["its load is 2.4"]),
        (_report([1.0], [5.0], threads=2, load=2.4), []),
        (_report([1.0] * 3, [5.0, 6.0, 6.0], threads=2), ["the median is 20% above the least"]),
    ],
)
def test_signs_of_a_busy_machine(report: BenchReport, signs: list[str]) -> None:
    assert len(report.busy) == len(signs)
    assert all(said.endswith(sign) for said, sign in zip(report.busy, signs, strict=True))


def test_other_programs_lengthen_the_wall_time_only() -> None:
    assert _report([0.1, 0.2], [1.0, 2.0]).gflops == pytest.approx(10)
    assert _report([0.1, 0.2], [1.0, 2.0], threads=2).gflops == pytest.approx(1)


def test_measurements_take_the_requested_time(make: Make) -> None:
    report = make("FillZero", (2,)).bench(min_time=0.1, repeats=1)
    assert 0.1 <= sum(report.wall.each) * report.calls < 30
    assert len(report.wall.each) > 2


def test_no_measurement_is_refused(make: Make) -> None:
    with pytest.raises(MorelloError, match="0 measurements"):
        make("FillZero", (2,)).bench(repeats=0)
