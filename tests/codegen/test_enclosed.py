"""Kernels enclose the function that calls them, and each thread's share of a loop; levels of temporaries."""

from __future__ import annotations

import pytest

from morello import api
from morello.codegen.emitter import CEmitter
from morello.errors import MorelloError
from morello.ir.layout import row_major
from morello.ir.ops.fill import FillZero
from morello.kernels.site import KernelSite
from morello.plugins import MemoryLevel, Microkernel, OperandPattern, TargetInfo, TargetPlugin
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD

UNIT = """
static _Thread_local int unit_on;
static void unit_zero(float *out, int count) {
    for (int i = 0; i < count; ++i) {
        out[i] = unit_on > 0 ? 0.0f : 1.0f;
    }
}"""


def _zero(site: KernelSite) -> None:
    site.helper("unit_zero", UNIT)
    site.enclose("++unit_on;", "--unit_on;")
    site.line(f"unit_zero({site.operand(0).pointer()}, {site.operand(0).tensor.volume});")


PLUGIN = TargetPlugin(
    info=TargetInfo(name="unit", description="for tests", layouts=lambda dtype, rank: [row_major(rank)]),
    levels=[
        MemoryLevel(name="TILES", kind="temporaries", capacity=64, unit=32),
        MemoryLevel(name="GL", kind="memory", capacity=4096, unit=64),
    ],
    rewrites=STANDARD,
    kernels=[
        Microkernel(
            name="Zero",
            op=FillZero(),
            operands=(OperandPattern(dtypes=("f32",)),),
            cost=lambda spec, machine: 1,
            registers={"TILES": lambda spec: spec.shape[0]},
            emit=_zero,
        )
    ],
    emitter=CEmitter(),
)
REGISTRY = Registry.of(unit=PLUGIN)


def zeros(schedule: str, rows: int = 5) -> api.Kernel:
    text = f"target unit\nspec zeros = FillZero({rows}×16, GL)\nschedule zeros {{\n{schedule}\n}}"
    return api.compile(api.parse(text, registry=REGISTRY)["zeros"])


def test_each_share_of_a_loop_and_the_rest_of_the_function_are_enclosed() -> None:
    kernel = zeros("tile [2, 16] parallel\nsubschedule [0] { select Zero }\nsubschedule [1] { select Zero }")
    kernel.check()
    assert (kernel.source.count("++unit_on;"), kernel.source.count("--unit_on;")) == (2, 2)


def test_a_function_whose_shares_alone_call_the_kernel_is_not() -> None:
    kernel = zeros("tile [2, 16] parallel\nselect Zero", rows=4)
    kernel.check()
    assert kernel.source.count("++unit_on;") == 1


def test_temporaries_take_their_level_and_no_operand_is_there() -> None:
    goal = api.goal("FillZero(4×16, GL)", target="unit", registry=REGISTRY)
    assert api.compile(goal.synthesize(db=False)).peak == (64, 0)
    with pytest.raises(MorelloError, match="unknown memory level 'TILES'"):
        api.goal("FillZero(4×16, TILES)", target="unit", registry=REGISTRY)
    goal = api.goal("Relu(4×16, GL, GL)", target="unit", registry=REGISTRY)
    with pytest.raises(MorelloError, match="cannot be moved"):
        goal.apply("move 0 to TILES")
