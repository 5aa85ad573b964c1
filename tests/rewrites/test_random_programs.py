"""Random programs contain every rewrite; they complete partial schedules, and are emitted, run and verified.

`python -m tools.fuzz.random_programs` runs many more of them.
"""

from __future__ import annotations

import random
from itertools import product

import pytest

import morello
from morello.ir.impl import Impl, Node, walk
from morello.ir.ops import by_name
from morello.ir.ops.views import Concat, Slice, Transpose
from morello.kernels.target import Target
from morello.rewrites import STANDARD, Example
from morello.testing.generate import RandomPrograms, random_spec

SHAPES = {
    "Matmul": [(1, 3, 5, 7), (2, 4, 3, 8), (1, 6, 4, 16), (1, 5, 9, 3), (1, 8, 8, 8)],
    "MatmulAccum": [(1, 4, 4, 16), (1, 3, 8, 5), (2, 2, 8, 4), (1, 1, 24, 3)],
    "Move": [(8, 8), (5, 16), (3, 4, 8), (16, 12), (1, 8, 8)],
    "FillZero": [(8, 8), (10, 5), (2, 4, 8)],
}
EXAMPLES = [
    *(Example(by_name(name), shape) for name, shapes in SHAPES.items() for shape in shapes),
    *dict.fromkeys(one.example for one in STANDARD),
    Example(Transpose(order=(2, 0, 1)), (3, 4, 8)),
    Example(Slice(start=(1, 2), step=(1, 2), rest=(0, 1)), (3, 8)),
    Example(Concat(sizes=(1, 4, 3)), (3, 8)),
]


def draw(seed: int, target: Target, example: Example) -> Impl:
    """Draw a random program of a random Spec."""
    rng = random.Random(seed)
    programs = RandomPrograms(target, rng, wild=rng.choice([2, 4, 6]))
    for _ in range(200):
        levels = rng.choice([["GL"], ["GL", "L1"], ["L1", "VRF", "RF"]])
        spec = random_spec(rng, target, example.op, example.shape, list(example.dtypes), levels)
        impl = programs.draw(spec)
        if impl is not None:
            return impl
    raise AssertionError("no program in 200 draws")


@pytest.mark.slow
def test_random_programs_meet_every_rewrite(avx2: Target) -> None:
    wanted = {rewrite.__name__ for rewrite in avx2.rewrites}
    wanted |= {"MultAdd", "Assign", "VectorMove", "ValueZero", "VectorZero", "MemsetZero"}
    for seed, example in product(range(40), EXAMPLES):
        # Few programs complete the rarest rewrites, which later seeds draw from their own examples.
        if seed < 10 or any(one.__name__ in wanted and one.example == example for one in STANDARD):
            for node in walk(draw(seed, avx2, example)):
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
    """Random programs complete a schedule; sizes do not divide, so all have boundary tiles."""
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
