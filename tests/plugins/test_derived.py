"""Kernels that declare only their meaning and their C: registers, tile sizes and costs are derived."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from morello.api.goals import Goal
from morello.frontend.parser import parse_spec
from morello.ir.impl import Node
from morello.kernels.target import Target
from morello.plugins import Microkernel, Profile
from morello.plugins.profile import ProfileError, applied, parsed

FUSED = "MatmulAccum(1×1×1×n, f32 RF/L1, f32 L1/VRF row_major, f32 VRF row_major v8)"
SPEC = "MatmulAccum(1×1×1×16, (f32, {}), (f32, {}), (f32, VRF, v8), serial)"
TEMPLATE = "{out} = _mm256_fmadd_ps(_mm256_set1_ps({lhs}), {rhs}, {out});"


def with_kernel(avx2: Target, **declared: Any) -> Target:
    """Return a target with one kernel."""
    return attrs.evolve(avx2, kernels=(Microkernel(name="One", **declared),))


def cost_and_registers(target: Target, spec: str) -> tuple[int, int]:
    """Return the cost of the kernel and its temporaries in VRF, in vectors."""
    impl = Goal.of(parse_spec(spec, target), target).select("One").impl
    assert isinstance(impl, Node)
    level = target.level("VRF")
    return int(impl.expansion.cost), int(impl.expansion.needs[target.levels.index(level)]) // level.unit


@pytest.mark.parametrize(
    ("operands", "template", "registers"),
    [
        (("L1", "L1"), TEMPLATE, 2),  # the broadcast and a loaded vector
        (("RF", "VRF, v8"), TEMPLATE, 1),  # the broadcast
        (("RF", "VRF, v8"), "{out} += {lhs} * {rhs};", 2),  # and the product
        (("L1", "L1"), "{out} = {rhs};", 0),  # loaded into the output
        (("L1", "L1"), lambda site: TEMPLATE, 0),
    ],
)
def test_registers_follow_from_the_template(
    avx2: Target, operands: tuple[str, str], template: Any, registers: int
) -> None:
    target = with_kernel(avx2, takes=FUSED, template=template)
    assert cost_and_registers(target, SPEC.format(*operands))[1] == registers


@pytest.mark.parametrize(("out", "registers"), [("VRF, v8", 2), ("L1", 3)])
def test_a_result_in_memory_takes_a_register(avx2: Target, out: str, registers: int) -> None:
    template = "{out} = _mm256_max_ps(_mm256_add_ps({lhs}, {rhs}), _mm256_sub_ps({lhs}, {rhs}));"
    target = with_kernel(avx2, takes="Add(n, f32 VRF v8, f32 VRF v8, f32)", template=template)
    spec = f"Add(16, (f32, VRF, v8), (f32, VRF, v8), (f32, {out}), serial)"
    assert cost_and_registers(target, spec)[1] == registers


def test_declared_registers_and_sizes_win(avx2: Target) -> None:
    takes = "MatmulAccum(1×6×1×12i, f32 L1, f32 L1, f32 VRF v4)"
    derived = with_kernel(avx2, takes=takes, template=TEMPLATE)
    op = derived.kernels[0].operations(derived)[0]
    assert derived.tile_sizes(op) == {1: {6}, 3: {12}}
    declared = with_kernel(avx2, takes=takes, template=TEMPLATE, tile_sizes={1: (3,)}, registers={"VRF": 5})
    assert declared.tile_sizes(op) == {1: {3}}
    spec = "MatmulAccum(1×6×1×12, (f32, L1), (f32, L1), (f32, VRF, v4), serial)"
    assert cost_and_registers(declared, spec)[1] == 5


def test_without_a_cost_a_vector_takes_a_cycle_per_instruction(avx2: Target) -> None:
    target = with_kernel(avx2, takes=FUSED, template=TEMPLATE)
    touched = 2 * target.level("L1").hit_cost  # a line of lhs, one of rhs
    assert cost_and_registers(target, SPEC.format("L1", "L1"))[0] == touched + 2 * 2 * 10


@pytest.mark.parametrize(("costs", "expected"), [((7, 3, 0), 4 + 2 * 7 + 3), ((7, 3, 45), 45)])
def test_a_measured_cost_wins(avx2: Target, costs: tuple[int, int, int], expected: int) -> None:
    profile = Profile(name="mine", target="x86_avx2", kernels={"One": costs})
    target = applied(profile, with_kernel(avx2, takes=FUSED, template=TEMPLATE))
    assert cost_and_registers(target, SPEC.format("L1", "L1"))[0] == expected
    assert parsed(profile.text(), "here").kernels == profile.kernels


@pytest.mark.parametrize(
    ("profile", "rule"),
    [
        ("[kernels]\nOne = [1, 2]", "kernels.One must be three integers from 0 to 2^31"),
        ("[kernels]\nOne = 1", "kernels.One must be three integers from 0 to 2^31"),
        ("[kernels]\nTwo = [1, 2, 3]", "kernels.Two must be a microkernel of x86_avx2 that declares no cost"),
        ("[kernels]\nAssign = [1, 2, 3]", "kernels.Assign must be a microkernel of x86_avx2 that declares no cost"),
    ],
)
def test_costs_that_no_kernel_can_have(avx2: Target, profile: str, rule: str) -> None:
    target = with_kernel(avx2, takes=FUSED, template=TEMPLATE)
    with pytest.raises(ProfileError) as raised:
        applied(parsed(f'name = "mine"\ntarget = "x86_avx2"\n{profile}', "mine.toml"), target)
    assert raised.value.message.startswith(f"mine.toml: {rule}")
