"""Layouts that search gives to the buffers of moves: strips where kernels look for them, and nowhere else."""

from __future__ import annotations

import pytest
from morello_x86_avx2.plugin import PLUGIN as AVX2

from morello.frontend.parser import parse_spec
from morello.ir.layout import Layout
from morello.plugins.registry import Registry
from morello.rewrites.move import MoveStep

TARGET = Registry.of(x86_avx2=AVX2).target("x86_avx2")


def strips(text: str) -> set[tuple[int, str | None, bool]]:
    """Return operands that search lays out in strips, their type after a cast, and whether strips are odd-even."""
    logical = parse_spec(text, TARGET).logical
    moves = [*MoveStep.steps(logical, TARGET)]
    assert {step.operand for step in moves} == {*range(len(logical.states))}
    laid_out = [(step, step.layout) for step in moves if isinstance(step.layout, Layout) and step.layout.has_strips]
    return {(step.operand, step.dtype, any(one.odd_even for one in layout.dims)) for step, layout in laid_out}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Matmul(1×64×64×64, GL, GL, GL, serial)", {(0, None, False), (1, None, False)}),
        ("Move(64×64, (u8, GL), (u8, GL, col_major))", set()),
        ("FillZero(64×64, GL)", set()),
        (
            "Matmul(1×64×64×64, (bf16, GL), (bf16, GL), GL, serial)",
            {(0, None, False), (1, None, False), *((one, "f32", odd) for one in (0, 1) for odd in (False, True))},
        ),
    ],
)
def test_strips_are_for_what_reads_them(text: str, expected: set[tuple[int, str | None, bool]]) -> None:
    assert strips(text) == expected


def test_images_are_written_in_strips() -> None:
    goal = parse_spec("Move(1×16×8×8, GL, (f32, GL, nhwc), serial)", TARGET)
    moves = MoveStep.steps(goal.logical, TARGET)
    assert {step.operand for step in moves if step.layout == "nchw8c"} == {0, 1}
