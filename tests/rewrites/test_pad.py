"""pad: graphs of a convolution with padding are those of a padded image, in any layout."""

from __future__ import annotations

import pytest

import morello
from morello import SearchBudget
from morello.errors import MorelloError
from morello.ir.impl import leaves
from morello.kernels.target import Target
from morello.rewrites.base import pending_dims

IMAGE, OUT = "x: (1×4×6×7, f32, L1, nhwc)", "y: (1×8×3×4, f32, L1, nhwc)"


def goal(equations: str, operands: str = "b: (1×8×1×1, f32, L1)") -> morello.Goal:
    filters = "w: (8×4×3×3, f32, L1, chwn)"
    return morello.goal(f"Compose([{equations}], [{IMAGE}, {filters}, {operands}, {OUT}], serial)", target="x86_avx2")


CONV = "c = Conv[stride=2, padding=[1, 1, 0, 1]](x, w)"
BIAS = f"y = Relu(a), a = Add[over=[0, 2, 3]](c, b), {CONV}"


def test_bias_and_activation_follow_the_convolution_of_a_padded_image(prove) -> None:
    padded = goal(BIAS).apply("pad to L1 as nhwc")
    image, rest = (leaf.spec for leaf in leaves(padded.impl))
    assert (str(image.op), str(rest.op)) == (
        "Pad[padding=[1, 1, 0, 1]]",
        "Compose([Relu, Add[over=[0, 2, 3]], Conv[stride=2]])",
    )
    done = padded.subschedule(0, lambda one: one.select("PadRows")).synthesize(
        budget=SearchBudget(expansions=500), db=False
    )
    prove(done.impl, done.target)


def test_search_pads_such_graphs_first(avx2: Target) -> None:
    assert pending_dims(goal(BIAS).spec.op, avx2) == ()


@pytest.mark.parametrize(
    "equations",
    [
        "y = Mul(e, s), s = Softmax[dim=1](e), e = Add[over=[0, 2, 3]](c, b)",
        "y = Softmax[dim=1](a), a = Add[over=[0, 2, 3]](c, b)",
    ],
)
def test_graphs_of_other_functions_are_not_padded(equations: str) -> None:
    with pytest.raises(MorelloError, match="convolutions with padding"):
        goal(f"{equations}, {CONV}").apply("pad to L1 as nhwc")
