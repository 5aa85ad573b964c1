"""one_group: groups of a convolution are convolutions, and search tiles a GroupedConv along them."""

from __future__ import annotations

import attrs
import pytest

import morello
from morello import SearchBudget
from morello.errors import MorelloError
from morello.ir.impl import KernelCall, Node, leaves, walk
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import rewrites_of
from morello.rewrites.bufferize import Bufferize
from morello.rewrites.move import MoveStep
from morello.rewrites.one_group import OneGroup
from morello.rewrites.select import Select
from morello.rewrites.tile import Tile
from morello.rewrites.to_accum import ToAccum


def grouped(shape: str, flags: str = "") -> morello.Goal:
    return morello.goal(f"GroupedConv({shape}, L1, L1, L1{flags})", target="x86_avx2")


def tiled(logical: LogicalSpec, target: Target) -> set[int]:
    """The dimensions that search tiles."""
    return {dim for step in Tile.steps(logical, target) for dim, size in enumerate(step.sizes) if size}


@pytest.mark.slow
def test_groups_get_the_vector_kernels_of_convolutions(prove) -> None:
    goal = grouped("1×3×2×2×2×8×2×1", ", serial").synthesize()
    expansions = [node.expansion for node in walk(goal.impl) if isinstance(node, Node)]
    assert "ConvTilePixels" in {one.kernel for one in expansions if isinstance(one, KernelCall)}
    prove(goal.impl, goal.target)


def test_a_group_is_a_convolution_of_all_images() -> None:
    impl = grouped("4×1×2×3×2×8×2×1").apply("one_group").impl
    assert isinstance(impl, Node)
    assert [child.spec.logical.shape for child in impl.children] == [(4, 2, 3, 2, 8, 2, 1)]


def test_functions_of_each_value_follow_the_convolution_of_a_group(prove) -> None:
    graph = "y = Relu(a), a = Add[over=[0, 3, 4]](c, b), c = GroupedConv[stride=2](x, w)"
    operands = "x: (1×2×3×5×7, f32, L1), w: (2×4×3×1×1, f32, L1), b: (1×2×4×1×1, f32, L1), y: (1×2×4×3×4, f32, L1)"
    goal = morello.goal(f"Compose([{graph}], [{operands}], serial)", target="x86_avx2")
    assert not [*Bufferize.steps(goal.spec.logical, goal.target)]
    done = goal.tile(0, 1, 0, 0, 0).apply("one_group")
    assert str(next(leaves(done.impl)).spec.op) == "Compose([Relu, Add[over=[0, 2, 3]], Conv[stride=2]])"
    goal = done.synthesize(budget=SearchBudget(expansions=500), db=False)
    prove(goal.impl, goal.target)


def test_search_only_tiles_images_and_groups(avx2: Target) -> None:
    logical = grouped("4×8×2×2×2×8×2×1").spec.logical
    tried = {rewrite for rewrite in rewrites_of(avx2) if rewrite is not Select for _ in rewrite.steps(logical, avx2)}
    assert tried == {Tile, MoveStep, OneGroup}
    assert tiled(logical, avx2) == {0, 1}


def test_without_it_search_does_all_it_can(avx2: Target) -> None:
    plain = attrs.evolve(avx2, rewrites=tuple(one for one in avx2.rewrites if one is not OneGroup))
    logical = grouped("4×8×2×2×2×8×2×1").spec.logical
    tried = {rewrite for rewrite in rewrites_of(plain) if rewrite is not Select for _ in rewrite.steps(logical, plain)}
    assert tried == {Tile, ToAccum, MoveStep}
    assert tiled(logical, plain) == {0, 1, 2, 4, 5}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("GroupedConv(1×2×1×1×2×2×1×1, L1, L1, L1)", "there are several groups"),
        ("Conv(1×1×1×2×2×1×1, L1, L1, L1)", "for GroupedConv, not for Conv"),
    ],
)
def test_preconditions(text: str, rule: str) -> None:
    with pytest.raises(MorelloError, match=rule):
        morello.parse(f"target x86_avx2\nspec s = {text}\nschedule s {{ one_group }}")
