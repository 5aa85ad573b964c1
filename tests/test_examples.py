"""Every example runs: synthesized, emitted, built, verified with each compiler and under the sanitizers."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

import morello
from morello.frontend import read_file
from morello.ir.impl import KernelCall, Loop, Node, walk

EXAMPLES = Path(__file__).parent.parent / "examples"


#: Sizes of examples that take minutes to verify, and those that stand for them here.
SCALED = {"batch_parallel": ("4×2048×2048×2048", "4×128×128×128")}


@cache
def example(name: str) -> Mapping[str, morello.Goal]:
    """The goals of an example, scaled down where it is slow."""
    path = EXAMPLES / f"{name}.spec"
    before, after = SCALED.get(name, ("", ""))
    text = read_file(path)
    assert before in text
    return morello.parse(text.replace(before, after) if before else text, filename=str(path))


@cache
def synthesized(name: str) -> list[morello.Goal]:
    return [goal.synthesize() for goal in example(name).values()]


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.spec")))
def test_examples_run(name: str, prove) -> None:
    assert synthesized(name)
    for done in synthesized(name):
        kernel = prove(done.impl, done.target, done.name)
        assert kernel.bench(min_time=0.01, repeats=2).median > 0


def test_search_shares_the_batch_among_threads() -> None:
    (goal,) = example("batch_parallel").values()
    assert goal.schedule == ""
    (done,) = synthesized("batch_parallel")
    assert isinstance(done.impl, Node)
    loop = done.impl.expansion
    assert isinstance(loop, Loop)
    assert loop.parallel
    assert loop.parts[0].tiles >= 4
    assert morello.compile(done).program.parallel


def test_the_main_example_is_found_by_search_through_all_levels() -> None:
    (goal,) = morello.parse(read_file(EXAMPLES / "matmul.spec")).values()
    assert goal.schedule == ""
    assert [level.name for level in goal.target.levels] == ["RF", "VRF", "L1", "GL"]


def test_figure_1_is_the_papers_program() -> None:
    """Papers' Figure 1 and §2.3, through the scheduling API as the paper prints it."""
    goal = (
        morello.goal("MatmulAccum(1×4×4×16, RF, VRF, L1)", target="x86_avx2")
        .tile(1, 1, 1, 16)
        .move_param(2, "VRF", "row_major", 8)
        .subschedule(0, lambda load: load.select("VectorMove"))
        .subschedule(1, lambda matmul: matmul.select("BroadcastVecMultAdd"))
        .subschedule(2, lambda store: store.select("VectorMove"))
    )
    by_default = (
        morello.goal("MatmulAccum(1×4×4×16, RF, VRF, L1)", target="x86_avx2")
        .tile([1, 1, 1, 16])
        .move_param(2, "VRF", "row_major", 8)
        .select("BroadcastVecMultAdd")
        .synthesize()
    )
    assert goal.impl == by_default.impl
    (from_file,) = morello.parse(read_file(EXAMPLES / "figure1.spec")).values()
    assert from_file.synthesize().impl == goal.impl
    nodes = [node.expansion for node in walk(goal.impl) if isinstance(node, Node)]
    assert [one.kernel for one in nodes if isinstance(one, KernelCall)] == [
        "VectorMove",
        "BroadcastVecMultAdd",
        "VectorMove",
    ]


def test_the_hand_schedule_keeps_a_6x16_tile_in_twelve_registers() -> None:
    (goal,) = morello.parse(read_file(EXAMPLES / "gemm_6x16.spec")).values()
    source = morello.compile(goal).source
    body = source[source.index("split 1 */") :]
    assert body.count("_mm256_fmadd_ps") == 12
