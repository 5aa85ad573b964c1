"""Microkernels whose C is a template: one line per vector of the tile, operands by their names."""

from __future__ import annotations

import attrs
import pytest

from morello.api.goals import Goal
from morello.errors import PluginError
from morello.frontend.parser import parse_spec
from morello.ir.ops import BY_NAME
from morello.kernels.target import Target
from morello.kernels.template import Template
from morello.plugins import Microkernel, OperandPattern


def printed(avx2: Target, template: Template, spec: str) -> list[str]:
    """Return the statements of a program that is one kernel with this template."""
    op = BY_NAME[spec.partition("(")[0]]
    count = len(op.operands(1 if op.rank is None else op.rank))
    operands = (OperandPattern(contiguous=False),) * count
    kernel = Microkernel(name="One", op=op, operands=operands, cost=lambda spec, machine: 1, template=template)
    target = attrs.evolve(avx2, kernels=(kernel,))
    goal = Goal.of(parse_spec(spec, target), target).select("One")
    source = target.emitter.emit(goal.impl, target, "one").source
    lines = source.partition("/* Add")[2].splitlines() if "/* Add" in source else source.splitlines()
    return [
        line.strip()
        for line in lines
        if line.strip().startswith(("out", "store_f32x8(out", "double")) and "load" not in line[:8]
    ]


def test_a_line_for_each_vector_with_operands_in_registers_memory_and_alone(avx2: Target) -> None:
    spec = "Add(16, (f32, VRF, v8), (f32, L1), (f32, VRF, v8), serial)"
    assert printed(avx2, "{out} = {lhs} + {rhs};", spec)[:2] == [
        "out_0 = lhs_0 + load_f32x8(rhs);",
        "out_8 = lhs_8 + load_f32x8(rhs + 8);",
    ]


def test_vectors_in_memory_are_stored(avx2: Target) -> None:
    spec = "Add(16, (f32, VRF, v8), (f32, L1), (f32, L1), serial)"
    lines = printed(avx2, "{out} = {lhs} + {rhs};", spec)
    assert lines[-2:] == [
        "store_f32x8(out, lhs_0 + load_f32x8(rhs));",
        "store_f32x8(out + 8, lhs_8 + load_f32x8(rhs + 8));",
    ]


def test_types_by_name_and_braces_of_c(avx2: Target) -> None:
    spec = "FillZero(16, (f32, VRF, v8), serial)"
    lines = printed(avx2, "{out} = ({out_type}){{0}};", spec)
    assert lines[:2] == ["out_0 = (f32x8){0};", "out_8 = (f32x8){0};"]


def test_single_values_are_printed_once_and_a_function_gets_the_site(avx2: Target) -> None:
    spec = "FillZero(1, (i32, L1), serial)"
    lines = printed(avx2, lambda site: f"{{out}} = 0 * {site.spec.states[0].dtype.bytes};", spec)
    assert lines == ["out[0] = 0 * 4;"]


@pytest.mark.parametrize(
    ("spec", "template", "rule"),
    [
        ("FillZero(16, (f32, L1), serial)", "{out} = 0;", "the line writes {out}, which is 16 values in memory"),
        ("Add(16, (f32, VRF, v8), (f32, VRF, v8), (f32, L1), serial)", "{out} += {lhs};", "the line writes {out}"),
        ("FillZero(1, (f32, L1), serial)", lambda site: "{in} = 0;", "{in}: there are {out}"),
        (
            "Add(16, (f32, VRF, v4), (f32, L1), (f32, VRF, v8), serial)",
            "{out} = {lhs};",
            "16 values do not make",
        ),
    ],
)
def test_unknown_names_in_templates_are_refused(avx2: Target, spec: str, template: Template, rule: str) -> None:
    with pytest.raises(PluginError, match="microkernel One of target x86_avx2: its template failed") as raised:
        printed(avx2, template, spec)
    assert rule in raised.value.message
