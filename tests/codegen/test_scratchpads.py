"""Tensors in software-managed memories have separate addresses."""

from __future__ import annotations

import pytest

from morello import api
from morello.codegen.emitter import CEmitter
from morello.codegen.memories import Memories
from morello.errors import EmitError
from morello.ir.dtypes import F32
from morello.ir.layout import row_major
from morello.ir.ops.move import Move
from morello.ir.tensor import TensorSpec
from morello.kernels.site import KernelSite
from morello.plugins import MemoryLevel, Microkernel, OperandPattern, TargetInfo, TargetPlugin
from morello.plugins.registry import Registry
from morello.rewrites import STANDARD

MEMORY = "static _Thread_local _Alignas(64) char scratch_memory[256];"


class ScratchEmitter(CEmitter):
    """Has one memory."""

    memories = {"SCRATCH": "scratch_memory"}  # noqa: RUF012


def _copy(site: KernelSite) -> None:
    site.helper("scratch_memory", MEMORY)
    site.enclose("/* begins */", "/* ends */")
    source, out = site.operand(0), site.operand(1)
    site.line(f"memcpy({out.pointer()}, {source.pointer()}, {out.tensor.bytes});")


PLUGIN = TargetPlugin(
    info=TargetInfo(name="scratch", description="for tests", layouts=lambda dtype, rank: [row_major(rank)]),
    levels=[
        MemoryLevel(name="SCRATCH", kind="memory", capacity=256, unit=16, alignment=32),
        MemoryLevel(name="GL", kind="memory", capacity=4096, unit=64, destinations=("SCRATCH",)),
    ],
    rewrites=STANDARD,
    kernels=[
        Microkernel(
            name="Copy",
            op=Move(),
            operands=(OperandPattern(), OperandPattern()),
            cost=lambda spec, machine: 1,
            emit=_copy,
        )
    ],
    emitter=ScratchEmitter(),
)
REGISTRY = Registry.of(scratch=PLUGIN)
TARGET = REGISTRY.target("scratch")


def tensor(values: int) -> TensorSpec:
    return TensorSpec((values,), TARGET.state("SCRATCH", F32, row_major(1)))


def test_places_follow_one_another_and_are_free_again() -> None:
    memories = Memories({"SCRATCH": "base"})
    assert ("SCRATCH" in memories, "GL" in memories) == (True, False)
    with memories.place(tensor(5), "one", TARGET) as one:
        assert one == "float *const one = (float *)((char *)base + 0);"
        with memories.place(tensor(1), "two", TARGET) as two:
            assert two.endswith("(char *)base + 32);")
    with memories.place(tensor(64), "three", TARGET) as three:
        assert three.endswith("(char *)base + 0);")


def test_a_full_memory_is_reported() -> None:
    memories = Memories({"SCRATCH": "base"})
    with (
        memories.place(tensor(40), "one", TARGET),
        pytest.raises(EmitError, match="SCRATCH of scratch is full: two is 100 bytes, and 96 are left"),
        memories.place(tensor(25), "two", TARGET),
    ):
        pass


@pytest.mark.parametrize("levels", ["(f32, GL), (f32, SCRATCH)", "(f32, SCRATCH), (f32, GL)"])
def test_parameters_in_such_memories_are_copied_there_and_back(levels: str) -> None:
    goal = api.goal(f"Move(3×7, {levels}, serial)", target="scratch", registry=REGISTRY)
    kernel = api.compile(goal.synthesize(db=False))
    kernel.check()
    body = kernel.source[kernel.source.index("void kernel(", kernel.source.index(MEMORY)) :]
    lines = [line.strip() for line in body.splitlines()]
    assert (lines[1], lines[-2]) == ("/* begins */", "/* ends */")
    assert sum("memcpy" in line for line in lines) == 2


def test_moved_tensors_have_an_address() -> None:
    text = """
        target scratch
        spec there = Move(3×7, (f32, GL), (f32, GL), serial)
        schedule there {
            move 0 to SCRATCH
            synthesize
        }
    """
    kernel = api.compile(api.parse(text, registry=REGISTRY)["there"].synthesize(db=False))
    kernel.check()
    assert "float *const src_scratch = (float *)((char *)scratch_memory + 0);" in kernel.source
