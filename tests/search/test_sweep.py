"""Search on blocks equals the textbook recursion on every Spec below a fixed set of goals.

`python -m tools.fuzz.sweep` does the same for random goals, many more of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from morello.frontend.parser import parse_spec
from morello.ir.impl import Impl, Loop, Node, cost_and_peak, walk
from morello.kernels.target import Target
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook, differences
from tools.fuzz.sweep import FULL, full_spec

#: Specs that each set compares at least.
LEAST = 500
#: Per set: the target and the goals.
GOALS = {
    "matmul": (
        "x86_avx2",
        (
            "(Matmul(1×3×5×7, L1, L1, L1, serial), [8, 64, 0, 0, 0, 0])",
            "(Matmul(1×1×2×3, GL, GL, GL, serial), [16, 0, 512, 0, 0, 0])",
            "(MatmulAccum(1×6×1×5, (f32, L1), (f32, L1, ua), (f32, L1, c0), serial), [8, 0, 128, 0, 0, 0])",
            "(MatmulAccum(1×2×1×8, RF, (f32, VRF, v8), (f32, VRF, v8)), [8, 64, 0, 0, 0, 0])",
            "(MatmulAccum(1×1×3×2, (bf16, L1), L1, L1, serial), [8, 32, 64, 0, 0, 0])",
            "(MatmulAccum(1×2×2×3, (f32, L1, ua), L1, (f32, L1, c0), serial), [8, 64, 128, 64, 0, 0])",
        ),
    ),
    "move": (
        "x86_avx2",
        (
            "(Move(2×5, (bf16, GL), (f32, GL, col_major), serial), [8, 32, 256, 0, 0, 0])",
            "(Move(2×6, (i32, GL, ua, c0), (i32, L1), serial), [8, 32, 128, 0, 0, 0])",
            "(Move(4×8, (f32, L1, layout[0, 1, 0p2]), (f32, VRF, v8), serial), [8, 96, 128, 0, 0, 0])",
            "(Move(2×3, (f32, GL, c0), (f32, GL, col_major)), [8, 0, 128, 0, 0, 64])",
            "(Move(2×7, (f32, L1), (f32, GL, col_major)), [8, 64, 128, 0, 0, 64])",
            "(FillZero(5×2×3, (bf16, L1, c1), serial), [4, 0, 64, 0, 0, 0])",
        ),
    ),
    "stages": (
        "x86_avx2",
        (
            "(OnePrefix(2×3, L1, (f32, L1, col_major), serial), [8, 0, 0, 0, 0, 0])",
            "(Transpose[order=[1, 0, 2]](2×2×2, (f32, GL, c2), L1, serial), [8, 32, 128, 0, 0, 0])",
            "(Slice[start=[1, 0], step=[1, 2], rest=[0, 1]](2×3, (bf16, GL), L1, serial), [8, 32, 128, 0, 0, 0])",
            "(Slice[start=[1, 2], rest=[1, 0]](1×5, (i32, L1, col_major), (i32, L1)), [8, 32, 128, 0, 0, 64])",
            "(Concat[dim=0, sizes=[1, 2]](3×4, L1, (f32, L1, col_major), (f32, L1, c1), serial), [8, 32, 0, 0, 0, 0])",
            "(Mean(2×3, L1, L1, serial), [8, 0, 128, 0, 0, 0])",
            "(DivideVecScalar(2×3, L1, L1, serial), [12, 0, 128, 0, 0, 0])",
            "(Softmax(1×3, L1, L1, serial), [12, 0, 128, 0, 0, 0])",
            "(SoftmaxDenominatorAndMax(2×2, L1, L1, L1, serial), [12, 0, 0, 0, 0, 0])",
            "(Conv[padding=1](1×1×1×2×2×2×2, L1, L1, L1, serial), [12, 0, 64, 0, 0, 0])",
            "(ConvAccum(1×2×2×1×2×1×1, L1, L1, L1, serial), [12, 0, 64, 0, 0, 0])",
            "(GroupedConv(1×2×1×1×1×2×1×2, L1, L1, L1, serial), [12, 0, 64, 0, 0, 0])",
            "(Conv3d[padding=[1, 0, 0, 0, 0, 0]](1×1×1×9×1×1×2×1×1, L1, L1, L1, serial), [8, 0, 64, 0, 0, 0])",
            "(Conv3d[padding=[1, 0, 0, 1, 0, 0]](1×1×1×2×1×1×3×1×1, L1, L1, L1, serial), [8, 0, 64, 0, 0, 0])",
            "(GroupedConvTranspose[stride=2](1×1×1×1×1×2×1×2, L1, L1, L1, serial), [8, 0, 64, 0, 0, 0])",
            "(Matmul(1×1×2×1, (bf16, L1), (bf16, L1), (bf16, L1), serial), [12, 0, 64, 0, 0, 0])",
            "(RandMatmul(1×2×2×2, (u32, L1), (u32, L1), L1, L1, serial), [8, 32, 64, 0, 0, 0])",
            "(Add(2×3, (u8, L1), (i8, L1), (i32, L1), serial), [12, 32, 128, 0, 0, 0])",
            "(Compose([Relu, Matmul], [(1×2×2, L1), (1×2×3, L1), (1×2×3, L1)], serial), [12, 0, 128, 0, 0, 0])",
        ),
    ),
    "wide": (
        "x86_avx512",
        (
            "(Matmul(1×2×3×2, L1, L1, L1, serial), [8, 64, 128, 0, 0, 0])",
            "(Move(3×6, (bf16, L1), (f32, L1), serial), [8, 64, 128, 0, 0, 0])",
            "(FillZero(7×4, L1, serial), [8, 64, 128, 0, 0, 0])",
        ),
    ),
    "toy": (
        "toy_cpu",
        (
            "(Matmul(1×3×2×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 128, 0])",
            "(Move(6×7, (i32, MEM), (i32, MEM, col_major), serial), [32, 256, 0])",
            "(FillZero(3×7, (f32, MEM, ua), serial), [32, 256, 0])",
            "(MatmulAccum(1×10×2×1, (i32, MEM), (i32, MEM), (i32, MEM), serial), [12, 128, 0])",
        ),
    ),
    "packing": (
        "packing",
        (
            "(MatmulAccum(1×2×1×4, MEM, (f32, MEM, ua), MEM, serial), [8, 32, 64])",
            "(Matmul(1×2×2×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 0, 128])",
            "(Matmul(1×3×3×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 0, 64])",
        ),
    ),
    "uneven": (
        "uneven",
        (
            "(Matmul(1×2×2×4, MEM, (f32, MEM, col_major), MEM, serial), [12, 0, 288])",
            "(MatmulAccum(1×5×1×6, (i32, C), (i32, MEM), (i32, MEM), serial), [24, 224, 0])",
            "(Move(5×7, (f32, MEM), (f32, MEM, col_major), serial), [4, 224, 0])",
        ),
    ),
    "dear": (
        "dear",
        (
            "(Matmul(1×2×3×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 128, 0])",
            "(MatmulAccum(1×5×1×6, (i32, C), (i32, MEM), (i32, MEM), serial), [12, 128, 0])",
        ),
    ),
    "sharing": (
        "sharing",
        (
            "(Matmul(2×1×2×3, (i32, MEM), (i32, MEM), (i32, MEM)), [12, 64, 0])",
            "(MatmulAccum(1×3×1×5, (f32, R), (f32, MEM), (f32, MEM)), [12, 64, 0])",
            "(Move(3×4, (i32, MEM), (i32, MEM, col_major)), [12, 128, 0])",
            "(FillZero(3×5, (f32, MEM, ua)), [8, 64, 0])",
        ),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", GOALS)
def test_every_spec_below_a_goal(name: str, target_named: Callable[[str], Target]) -> None:
    target_name, texts = GOALS[name]
    target = target_named(target_name)
    textbook = Textbook(target)
    for text in texts:
        textbook.solve(parse_spec(text, target))
    assert len(textbook.seen) >= LEAST
    wrong = [*differences(textbook.seen, SearchSession(target).programs)]
    assert not wrong, f"{len(wrong)} of {len(textbook.seen)} Specs differ, the first of them:\n{wrong[0]}"


def test_loops_of_one_and_two_dimensions_are_shared(target_named: Callable[[str], Target]) -> None:
    """Choose parallel loops, with remainders and without, for Specs that the sweep compares."""
    target = target_named("sharing")
    texts = ("FillZero(3×7, MEM)", "FillZero(7×3, MEM)", "Move(2×2, MEM, (f32, MEM, col_major))")
    found = [SearchSession(target).synthesize(parse_spec(text, target)) for text in texts]
    loops = [node.expansion for impl in found for node in walk(impl) if isinstance(node, Node)]
    shared = [one for one in loops if isinstance(one, Loop) and one.parallel]
    cut = {sum(int(tile_range.trips) > 1 for tile_range in one.parts[0].ranges or ()) for one in shared}
    assert cut == {1, 2}
    assert {len(one.parts) for one in shared} >= {1, 2}
    assert all(node.spec.logical.serial for impl in found for node in below_shared(impl))


def below_shared(impl: Impl) -> Iterator[Node]:
    """Yield every node inside a parallel loop."""
    for node in walk(impl):
        if isinstance(node, Node) and isinstance(node.expansion, Loop) and node.expansion.parallel:
            for child in node.children:
                yield from (one for one in walk(child) if isinstance(one, Node))


def test_limits_of_memory_bind_in_the_sweep(target_named: Callable[[str], Target]) -> None:
    """Some programs found without the limit of memory exceed it, so that the limit raises the cost."""
    target = target_named("packing")
    text = "(Matmul(1×3×3×4, MEM, (f32, MEM, col_major), MEM, serial), [8, 0, {}])"
    search = SearchSession(target)
    full = target.levels[-1].capacity
    costs = [
        cost_and_peak(search.synthesize(parse_spec(text.format(limit), target))).cost for limit in (0, 32, 64, full)
    ]
    assert costs[0] > costs[1] > costs[2] == costs[3]


@pytest.mark.slow
def test_all_memory_of_the_target(avx2: Target) -> None:
    known = {**FULL, (1, 16, 16, 16): 13794, (1, 64, 64, 64): 251511}
    found = SearchSession(avx2).programs([full_spec(shape, avx2) for shape in known])
    assert {shape: cost_and_peak(impl).cost for shape, impl in zip(known, found, strict=True) if impl} == known
