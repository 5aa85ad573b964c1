"""The Python API: parse, goal, synthesize, compile, and scheduling step by step."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello.errors import Inapplicable, MorelloError
from morello.frontend import SourceError
from morello.ir.dtypes import F32
from morello.ir.impl import Leaf, cost_and_peak, leaves
from morello.ir.layout import row_major
from morello.ir.ops import by_name
from morello.ir.spec import LogicalSpec
from morello.plugins.registry import installed

TINY = "target x86_avx2\nspec tiny = Matmul(1×1×1×4, L1, L1, L1, serial)\n"


def matmul(text: str = "Matmul(1×4×4×16, GL, GL, GL, serial)") -> morello.Goal:
    return morello.goal(text, target="x86_avx2")


def test_compile_gives_a_callable() -> None:
    kernel = morello.compile(TINY)
    a, b = np.full((1, 1, 1), 3, np.float32), np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    np.testing.assert_array_equal(kernel(a, b), a @ b)
    assert kernel.cost == cost_and_peak(kernel.impl).cost
    assert kernel.check().results
    assert "void kernel(const float" in morello.compile(kernel.spec, target="x86_avx2").source


def test_compile_completes_partial_schedules() -> None:
    kernel = morello.compile(TINY + "schedule tiny { to_accum }")
    assert kernel.schedule.startswith("to_accum")
    assert next(leaves(kernel.impl), None) is None


def test_a_spec_made_of_objects() -> None:
    target = installed().target("x86_avx2")
    state = target.state("L1", F32, row_major(1))
    spec = target.spec(LogicalSpec(by_name("FillZero"), (8,), (state,)))
    impl = morello.synthesize(spec, target=target)
    assert morello.synthesize(spec, target="x86_avx2") == impl


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: morello.compile(TINY.replace("tiny", "a") + TINY.split("\n")[1]), "has 2 Specs: a, tiny"),
        (lambda: morello.synthesize(matmul().spec), "needs a target"),
        (lambda: morello.goal("Matmul(1×1×1×1, GL, GL, GL)", target="z80"), "unknown target 'z80'"),
        (lambda: morello.parse(TINY, target="z80"), "unknown target 'z80'"),
    ],
)
def test_errors_name_the_fault(call, message: str) -> None:
    with pytest.raises(MorelloError, match=message):
        call()


def test_steps_of_a_file_that_do_not_apply_are_located() -> None:
    with pytest.raises(SourceError) as caught:
        morello.parse(TINY + "schedule tiny {\n    to_accum\n    subschedule [1] { tile [1, 1, 8] }\n}")
    assert (caught.value.line, caught.value.column) == (5, 23)
    assert "larger than 4" in caught.value.message


def test_the_default_child_is_the_one_that_is_not_a_move() -> None:
    goal = matmul().move_param(1, "GL", "col_major").tile(1, 2, 8)
    assert [leaf.spec.op.name for leaf in leaves(goal.impl)] == ["Move", "Matmul"]
    after_fill = matmul().to_accum().split(2)
    assert [leaf.spec.op.name for leaf in leaves(after_fill.impl)] == ["FillZero", "MatmulAccum"]


def test_several_computing_children_need_a_subschedule() -> None:
    goal = matmul().tile(1, 3, 16)
    with pytest.raises(Inapplicable, match="could go on with several children") as caught:
        goal.to_accum()
    assert "0 is Matmul (body), 1 is Matmul (boundary)" in str(caught.value.hint)
    both = goal.subschedule(0, lambda body: body.to_accum()).subschedule(1, lambda rest: rest.to_accum())
    assert [leaf.spec.op.name for leaf in leaves(both.impl)] == ["FillZero", "MatmulAccum"] * 2


def test_steps_after_the_end() -> None:
    done = morello.goal("FillZero(8, (f32, L1), serial)", target="x86_avx2").select("MemsetZero")
    with pytest.raises(Inapplicable, match="finds no Spec left"):
        done.tile(4)
    with pytest.raises(Inapplicable, match="comes after `synthesize`"):
        matmul().apply("synthesize\ntile [1, 2, 2]")
    with pytest.raises(Inapplicable, match="has no child 7"):
        matmul().to_accum().apply("subschedule [7] { select MemsetZero }")


def test_goals_are_values() -> None:
    goal = matmul()
    tiled = goal.tile(1, 2, 8)
    assert isinstance(goal.impl, Leaf)
    assert tiled == goal.tile([1, 2, 8]) == goal.apply("tile [1, 2, 8]")
    assert tiled.schedule == "tile [1, 2, 8]"


def test_a_missing_rewrite_is_an_error() -> None:
    with pytest.raises(Inapplicable, match="reference_c has no rewrite `tile`"):
        morello.goal("Matmul(1×4×4×4, GL, GL, GL)", target="reference_c").tile(1, 2, 2)


def test_goals_are_shown_in_a_line() -> None:
    goal = morello.goal("MatmulAccum(1×4×4×16, L1, L1, L1, serial)", target="x86_avx2")
    operands = ", ".join(["(f32, L1, row_major)"] * 3)
    shown = f"<Goal kernel: MatmulAccum(1×4×4×16, {operands}, serial)"
    assert repr(goal) == f"{shown} for x86_avx2, not scheduled>"
    assert repr(goal.tile(1, 2, 16)) == f"{shown} for x86_avx2, scheduled in part>"
    done = goal.select("RegisterTileAccum")
    assert repr(done) == f"{shown} for x86_avx2, cost {cost_and_peak(done.impl).cost:,}>"
