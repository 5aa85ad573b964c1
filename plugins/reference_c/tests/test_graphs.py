"""Composes, whose operations run one after another, against their meaning in numpy."""

from __future__ import annotations

import random

import pytest

from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.build.library import build
from morello.build.toolchain import Compiler
from morello.errors import EmitError
from morello.frontend import parse_spec
from morello.ir.dtypes import BF16, F32
from morello.ir.impl import Node
from morello.ir.layout import col_major, row_major
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.plugins import Target
from morello.testing.graphs import random_compose

LARGE = (
    "Compose([y = Add(h, x), h = Relu(g), g = Matmul(x, w)], [w: (1×40×40, GL), x: (1×40×40, GL), y: (1×40×40, GL)])"
)


def compiled(goal: Goal, compiler: Compiler | None = None) -> Kernel:
    program = goal.target.emitter.emit(goal.impl, goal.target, "graph", goal.signature)
    return Kernel.of(goal.impl, goal.target, program, compiler)


@pytest.mark.parametrize("seed", [2, 4, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, 1, 3, 5, 6))])
def test_random_graphs_agree_with_the_meaning(target: Target, seed: int) -> None:
    rng = random.Random(seed)
    op, shape, types = random_compose(rng, numbers=[F32, BF16])
    layouts = [rng.choice([row_major, col_major])(len(one.dims)) for one in op.operands(len(shape))]
    states = tuple(
        OperandState(dtype, "GL", layout, len(layout.dims)) for dtype, layout in zip(types, layouts, strict=True)
    )
    goal = Goal.of(target.spec(LogicalSpec(op, shape, states)), target).synthesize(db=False)
    assert compiled(goal).check(reference=target).worst <= 1


def test_large_intermediates_are_in_the_workspace(target: Target, compiler: Compiler) -> None:
    goal = Goal.of(parse_spec(LARGE, target), target).synthesize(db=False)
    kernel = compiled(goal, compiler)
    assert kernel.program.workspace == 2 * 6400
    assert "#define GRAPH_WORKSPACE 12800" in kernel.header
    flags = (*kernel.program.flags, "-Wall", "-Wextra", "-Werror")
    assert build(kernel.files, flags, compiler).is_file()


def test_all_intermediates_become_tensors_at_once(target: Target) -> None:
    goal = Goal.of(parse_spec(LARGE, target), target).synthesize(db=False)
    assert goal.schedule.split("\n")[0] == "bufferize to GL"
    assert isinstance(goal.impl, Node)
    assert len(goal.impl.children) == 3


@pytest.mark.slow
def test_pieces_may_be_cut_by_hand(target: Target) -> None:
    goal = Goal.of(parse_spec(LARGE, target), target).apply("bufferize to GL at [1]; subschedule [0] { synthesize }")
    kernel = compiled(goal.synthesize(db=False))
    assert kernel.schedule.startswith("bufferize to GL at [1]")
    assert kernel.check(reference=target).worst <= 1


def test_a_graph_must_be_finished(target: Target) -> None:
    goal = Goal.of(parse_spec(LARGE, target), target).apply("bufferize to GL")
    with pytest.raises(EmitError, match="whole operations only"):
        compiled(goal)
