"""Partial programs: their holes in trees, in C, and in the error of a kernel made of them."""

from __future__ import annotations

import re

import attrs
import pytest

import morello
from morello.api.kernel import Kernel
from morello.errors import EmitError, ToolchainError
from morello.ir.impl import Impl, Leaf, cost_and_peak, leaves
from morello.report.tree import program_tree
from morello.run.function import NativeFunction

#: Papers' Figure 1 without load and store, which are left to search ([Kaufman2025] §2.3).
FIGURE_1 = "tile [1, 1, 1, 16]; move 2 to VRF as row_major v8; select BroadcastVecMultAdd"


def goal(text: str = "Matmul(1×4×4×4, GL, L1, L1)", steps: str = "") -> morello.Goal:
    return morello.goal(text, target="x86_avx2").apply(steps)


def without_kernels(impl: Impl) -> Impl:
    """The program with a hole in the place of each microkernel."""
    if isinstance(impl, Leaf) or not impl.children:
        return Leaf(impl.spec)
    return attrs.evolve(impl, children=tuple(map(without_kernels, impl.children)))


def holes(source: str) -> list[tuple[str, str]]:
    """The Spec and the operands of each hole in C."""
    return re.findall(r"/\* hole: (\(.*\]\))(\(.*\)) \*/", source)


@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        ("", ["(lhs, rhs, out)"]),
        ("tile [1, 2, 2]", ["(&lhs[8 * m], &rhs[2 * n], &out[8 * m + 2 * n])"]),
        ("tile [1, 2, 4] parallel; move 1 to L1 as col_major", ["(rhs, rhs_l1)", "(&lhs[8 * m], rhs_l1, &out[8 * m])"]),
        (
            "to_accum; tile [1, 1, 4]; split 1; move 2 to VRF v4",
            ["(out)", "(&out[4 * m], {out_0})", "(&lhs[4 * m + k], &rhs[4 * k], {out_0})", "({out_0}, &out[4 * m])"],
        ),
    ],
)
def test_holes_in_c_have_their_specs_and_operands(steps: str, calls: list[str]) -> None:
    partial = goal(steps=steps)
    found = holes(partial.program.source)
    assert [goal(spec).spec for spec, _ in found] == [one.spec for one in leaves(partial.impl)]
    assert [operands for _, operands in found] == calls


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "Softmax(4×64, GL, GL, serial)",
        "Matmul(2×8×8×32, GL, GL, GL)",
        "Move(8×8, L1, (L1, col_major), serial)",
        "Compose([Relu, Matmul], [(1×8×8, GL), (1×8×8, GL), (1×8×8, GL)], serial)",
    ],
)
def test_any_program_can_have_holes(text: str) -> None:
    done = goal(text, "synthesize")
    partial = without_kernels(done.impl)
    of_partial = morello.Goal.of_impl(partial, done.target)
    assert {spec for spec, _ in holes(of_partial.program.source)} == {str(one.spec) for one in leaves(partial)}
    assert str(partial).count("hole: ") == of_partial.tree.count("hole: ") == len([*leaves(partial)])
    assert program_tree(partial, done.target).cost < cost_and_peak(done.impl).cost
    assert of_partial.apply("synthesize").program.source.count("hole") == 0


def test_the_tree_and_str_show_holes() -> None:
    figure = goal("MatmulAccum(1×4×4×16, RF, VRF, L1)", FIGURE_1)
    assert str(figure) == figure.tree
    assert (
        figure.tree
        == """\
program                                cost  runs  share
tile [1, 1, 1, 16]                    ≥ 432     1      –
move 2 to VRF as row_major v8          ≥ 27    16      –
├ load: hole: Move(1×1×16, L1, VRF)       –    16      –
├ BroadcastVecMultAdd                    25    16      –
└ store: hole: Move(1×1×16, VRF, L1)      –    16      –"""
    )
    assert (
        str(figure.impl)
        == """\
tile [1, 1, 1, 16]
    move 2 to VRF as row_major v8
        load: hole: Move(1×1×16, L1, VRF)
        select BroadcastVecMultAdd
        store: hole: Move(1×1×16, VRF, L1)"""
    )
    done = figure.synthesize()
    assert cost_and_peak(done.impl).cost >= 432
    assert "≥" not in str(done)
    assert "hole" not in str(done.impl)


def test_a_goal_without_steps_is_a_hole() -> None:
    assert str(goal()).splitlines()[1].split() == ["hole:", "Matmul(1×4×4×4,", "GL,", "L1,", "L1)", "–", "1", "–"]
    assert str(goal().impl) == "hole: Matmul(1×4×4×4, GL, L1, L1)"


@pytest.mark.slow
def test_a_program_with_holes_is_no_kernel() -> None:
    partial = goal(steps="tile [1, 2, 2]")
    message = r"kernel has 1 hole: Matmul\(1×2×4×2, GL, L1, L1\)"
    with pytest.raises(EmitError, match=message) as caught:
        Kernel.of(partial.impl, partial.target)
    assert "`synthesize`" in (caught.value.hint or "")
    with pytest.raises(ToolchainError) as failed:
        NativeFunction(partial.impl, partial.target, partial.program).load()
    assert re.search(message, f"{failed.value} {failed.value.hint}")
