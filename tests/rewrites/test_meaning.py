"""Random programs have every rewrite in them; what a schedule begins and they finish is emitted, run and judged.

`tests/testing/test_programs.py` runs many more of them.
"""

from __future__ import annotations

import random

import pytest

import morello
from morello.ir.dtypes import F32, I8, I32, U8, U32, DType
from morello.ir.impl import Impl, Node, walk
from morello.ir.ops import by_name
from morello.ir.ops.base import Operation
from morello.ir.ops.binary import Add
from morello.ir.ops.compose import Compose
from morello.ir.ops.conv import Conv, GroupedConv
from morello.ir.ops.divide import DivideVecScalar
from morello.ir.ops.matmul import Matmul
from morello.ir.ops.one_prefix import OnePrefix
from morello.ir.ops.rand_matmul import RandMatmul, Random
from morello.ir.ops.reduce import Mean
from morello.ir.ops.softmax import Softmax
from morello.ir.ops.softmax_parts import SoftmaxDenominatorAndMax, SoftmaxDenominatorAndUnscaled
from morello.ir.ops.softmax_per_part import SoftmaxDenominatorAndMaxPerPart
from morello.ir.ops.unary import Relu
from morello.kernels.target import Target
from morello.testing.generate import RandomPrograms, random_spec

SHAPES = {
    "Matmul": [(1, 3, 5, 7), (2, 4, 3, 8), (1, 6, 4, 16), (1, 5, 9, 3), (1, 8, 8, 8)],
    "MatmulAccum": [(1, 4, 4, 16), (1, 3, 8, 5), (2, 2, 8, 4), (1, 1, 24, 3)],
    "Move": [(8, 8), (5, 16), (3, 4, 8), (16, 12), (1, 8, 8)],
    "FillZero": [(8, 8), (10, 5), (2, 4, 8)],
}
#: Operations and shapes that every rewrite is for some of; those that take long are last.
DRAWN: dict[Operation, list[tuple[int, ...]]] = {
    **{by_name(name): shapes for name, shapes in SHAPES.items()},
    OnePrefix(): [(4, 8)],
    Mean(dim=1): [(4, 8), (3, 5)],
    Softmax(dim=1): [(3, 8), (4, 5)],
    DivideVecScalar(dim=1): [(4, 8), (3, 5)],
    Conv(accumulate=True): [(1, 4, 2, 1, 4, 1, 1)],
    GroupedConv(): [(1, 2, 1, 2, 3, 4, 1, 2)],
    Add(): [(2, 8), (3, 5)],
    RandMatmul(seed=1): [(1, 3, 4, 8), (2, 2, 8, 4)],
    Random(): [(1, 3, 8)],
    Compose.chain([Relu(), Matmul()], [3, 4]): [(1, 2, 4, 3)],
    Conv(padding=(1, 1, 1, 1)): [(1, 2, 2, 3, 3, 3, 3)],
    SoftmaxDenominatorAndUnscaled(dim=1): [(3, 8)],
    SoftmaxDenominatorAndMax(): [(4, 8)],
    SoftmaxDenominatorAndMaxPerPart(of=4): [(2, 1, 4), (1, 3, 4)],
}
#: Operands' data types where they are not all f32.
DTYPES: dict[Operation, list[DType]] = {
    Add(): [U8, I8, I32],
    RandMatmul(seed=1): [U32, U32, F32, F32],
    Random(): [U32, U32, F32],
}


def draw(seed: int, target: Target, op: Operation) -> Impl:
    """A random program of a random Spec."""
    rng = random.Random(seed)
    programs = RandomPrograms(target, rng, wild=rng.choice([2, 4, 6]))
    for _ in range(200):
        shape = rng.choice(DRAWN[op])
        levels = rng.choice([["GL"], ["GL", "L1"], ["L1", "VRF", "RF"]])
        dtypes = DTYPES.get(op, [F32] * len(op.operands(len(shape))))
        spec = random_spec(rng, target, op, shape, dtypes, levels)
        impl = programs.draw(spec)
        if impl is not None:
            return impl
    raise AssertionError("no program in 200 draws")


@pytest.mark.slow
def test_random_programs_meet_every_rewrite(avx2: Target) -> None:
    wanted = {rewrite.__name__ for rewrite in avx2.rewrites}
    wanted |= {"MultAdd", "Assign", "VectorMove", "ValueZero", "VectorZero", "MemsetZero"}
    # Programs of FillZero are drawn at once.
    draws = [(op, seed) for op in DRAWN for seed in range(30 if op.name == "FillZero" else 6)]
    for op, seed in draws:
        if not wanted:
            break
        for node in walk(draw(seed, avx2, op)):
            if isinstance(node, Node):
                wanted -= {type(node.expansion.step).__name__, getattr(node.expansion, "kernel", "")}
    assert not wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    "schedule",
    [
        "tile [1, 4, 3]",
        "to_accum\nsplit 3\nsubschedule [0] { tile [1, 2, 4] }",
        "move 2 to L1 as col_major\nto_accum",
        "move 1 to GL as layout[0, 2, 1, 2p2]\ntile [1, 4, 2]",
        "to_accum\nsplit 4",
        "fit 1 [3, 2]",
        "move 1 to L1 as layout[0, 2, 1, 2p2]\nto_accum\nfit 2 [4, 3]\nsubschedule [0] { fit 3 [2] }",
    ],
)
def test_hand_made_starts_are_completed_and_right(schedule: str, avx2: Target, prove) -> None:
    """Random programs finish what a schedule begins; sizes do not divide, so boundary bodies are in all of them."""
    goal = morello.goal("Matmul(1×5×7×6, GL, GL, GL, serial)", target="x86_avx2")
    start = goal.apply(schedule)
    programs = RandomPrograms(avx2, random.Random(0), wild=0)

    def complete(impl: Impl) -> Impl:
        if isinstance(impl, Node):
            children = tuple(complete(child) for child in impl.children)
            return Node(impl.spec, impl.expansion, children, impl.grids)
        found = programs.draw(impl.spec)
        assert found is not None
        return found

    prove(complete(start.impl), avx2)
