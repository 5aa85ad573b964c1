"""Programs of targets with metrics are measured by these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from morello import api
from morello.api.kernel import Kernel
from morello.codegen.emitter import CEmitter
from morello.errors import EmitError, PluginError
from morello.ir.layout import row_major
from morello.ir.ops.fill import FillZero
from morello.kernels.site import KernelSite
from morello.plugins import MemoryLevel, Metric, Microkernel, OperandPattern, TargetInfo, TargetPlugin
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD

COUNTER = """
static _Thread_local uint64_t calls_made;
__attribute__((weak)) uint64_t calls_so_far(void) { return calls_made; }
"""
CALLS = Metric(name="calls", unit="calls", symbol="calls_so_far")


def _zero(site: KernelSite) -> None:
    site.helper("calls_so_far", COUNTER)
    site.enclose("calls_made += 3;", "/* counted */")
    site.line(f"memset({site.operand(0).pointer()}, 0, {site.operand(0).tensor.bytes});")


def kernel_with(*metrics: Metric) -> Kernel:
    """A kernel of a target that has these metrics."""
    plugin = TargetPlugin(
        info=TargetInfo(name="counting", description="for tests", layouts=lambda dtype, rank: [row_major(rank)]),
        levels=[MemoryLevel(name="GL", kind="memory", capacity=1024, unit=64)],
        rewrites=STANDARD,
        kernels=[Microkernel(name="Zero", op=FillZero(), operands=(OperandPattern(),), cost=lambda *_: 1, emit=_zero)],
        emitter=CEmitter(),
        metrics=metrics,
    )
    goal = api.goal("FillZero(4×4, (f32, GL), serial)", target="counting", registry=Registry.of(own=plugin))
    return api.compile(goal.synthesize(db=False))


def test_a_target_without_metrics_has_no_readings() -> None:
    assert kernel_with().readings() == ()


def test_counts_of_the_library_are_those_of_one_call() -> None:
    kernel = kernel_with(CALLS)
    for _ in range(2):
        (reading,) = kernel.readings()
        assert (reading.value, str(reading)) == (3, "calls 3 calls")


def test_plugins_measure_themselves() -> None:
    size = Metric(name="size", unit="KiB", measure=lambda kernel: kernel.library.stat().st_size / 1024)
    first, second = kernel_with(size, CALLS).readings()
    assert first.value > 1
    assert (first.metric, second.value) == (size, 3)


def test_a_missing_function_is_named() -> None:
    with pytest.raises(EmitError, match="the C of kernel has no function heat, which metric heat requires"):
        kernel_with(Metric(name="heat", unit="K", symbol="heat")).readings()


@pytest.mark.parametrize(
    ("measure", "words"),
    [
        (lambda kernel: 1 / 0, "its `measure` failed: ZeroDivisionError"),
        (lambda kernel: "hot", "its `measure` gives 'hot', which is not a finite number"),
        (lambda kernel: float("nan"), "gives nan"),
    ],
)
def test_a_measure_that_fails_is_the_plugins_fault(measure: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(PluginError, match="plugin 'own', metric heat of target counting") as raised:
        kernel_with(Metric(name="heat", unit="K", measure=measure)).readings()
    assert words in str(raised.value)
