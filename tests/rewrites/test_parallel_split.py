"""parallel_split: threads share a reduction whose parts are reduced alone."""

from __future__ import annotations

import attrs
import pytest

import morello
from morello.errors import MorelloError
from morello.frontend.parser import parse_spec
from morello.ir.impl import Node, walk
from morello.kernels.machine import Weights
from morello.kernels.target import Target
from morello.rewrites import parallel_split
from morello.rewrites.parallel_split import ParallelSplit
from morello.rewrites.tile import Tile
from morello.search.session import SearchSession
from morello.testing.textbook import Textbook, differences

PROGRAMS = {
    "product": ("Matmul(1×3×24×5, GL, GL, GL)", "[1, 0, 0, 0]"),
    "more of a product": ("MatmulAccum(1×3×24×5, GL, (f32, GL, col_major), GL)", "[2, 0, 0, 0]"),
    "dot product": ("Matmul(1×1×24×1, GL, GL, GL)", "[1, 0, 0, 0]"),
    "strips of columns": ("Matmul(1×2×24×16, GL, (f32, GL, layout[0, 2, 1, 2p8]), GL)", "[1, 0, 0, 0]"),
    "rows apart": ("Matmul(1×3×24×5, (f32, GL, c1), (f32, GL, c1), GL)", "[1, 0, 0, 0]"),
    "bytes": ("Matmul(1×3×24×5, (u8, GL), (i8, GL), (i32, GL))", "[1, 0, 0, 0]"),
    "bytes that saturate": ("Matmul[saturating](1×3×24×5, (u8, GL), (i8, GL), (i16, GL))", "[1, 0, 0, 0]"),
    "sum": ("Sum(1×24, GL, GL)", "[1, 0]"),
    "more of a sum": ("SumAccum(1×24, GL, GL)", "[2, 0]"),
    "sum of a column": ("Sum[dim=0](24×1, GL, GL)", "[0, 1]"),
    "sum along the middle": ("Sum[dim=1](3×24×1, GL, GL)", "[0, 0, 1]"),
    "maximum": ("Max(1×24, GL, GL)", "[1, 0]"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "tile"), PROGRAMS.values(), ids=PROGRAMS)
def test_parts_add_up(spec: str, tile: str, prove) -> None:
    steps = f"parallel_split to GL 8\n subschedule [0] {{ tile {tile} parallel }}\n synthesize"
    goal = morello.parse(f"target x86_avx2\nspec s = {spec}\nschedule s {{ {steps} }}")["s"].synthesize()
    prove(goal.impl, goal.target)


@pytest.mark.parametrize(
    ("text", "step", "rule"),
    [
        ("Matmul(1×3×24×5, GL, GL, GL)", "parallel_split to GL 9", "not several parts of 9"),
        ("Matmul(1×3×24×5, GL, GL, GL)", "parallel_split to GL 24", "not several parts of 24"),
        ("Matmul(1×3×24×5, GL, GL, GL)", "parallel_split to GL 1", "multiple of 2: 1"),
        ("Matmul[saturating](1×3×24×5, (u8, GL), (i8, GL), (i16, GL))", "parallel_split to GL 3", "multiple of 2: 3"),
        ("Matmul(2×3×24×5, GL, GL, GL)", "parallel_split to GL 8", "no dimension of size 1"),
        ("Sum(24, GL, GL)", "parallel_split to GL 8", "no dimension of size 1"),
        ("Sum(1×24, GL, (bf16, GL))", "parallel_split to GL 8", "use convert first"),
        ("Matmul(1×3×24×5, (f32, GL, layout[0, 2, 1, 2p8]), GL, GL)", "parallel_split to GL 8", "in strips or vectors"),
        (
            "Mean(1×24, GL, GL)",
            "parallel_split to GL 8",
            "products, and Sum, Prod, Max and Min along one dimension, not for Mean",
        ),
    ],
)
def test_preconditions(text: str, step: str, rule: str) -> None:
    with pytest.raises(MorelloError, match=rule):
        morello.parse(f"target x86_avx2\nspec s = {text}\nschedule s {{ {step} }}")


@pytest.mark.parametrize(
    ("text", "tried"),
    [
        ("Matmul(1×8×1000000×8, GL, GL, GL)", True),
        ("Matmul(1×8×1000000×8, GL, GL, GL, serial)", False),
        # 1,024 results are tiles enough for 16 threads.
        ("Matmul(1×32×1000000×32, GL, GL, GL)", False),
        # Many products of networks have tiles like this.
        ("Matmul(1×8×8192×8, GL, GL, GL)", False),
        ("Sum(1×1000000, GL, GL)", True),
    ],
)
def test_search_splits_where_threads_have_nothing_else(text: str, tried: bool, avx2: Target) -> None:
    logical = parse_spec(f"({text}, [16, 1024, 32768, 524288, 2147483648])", avx2).logical
    assert any(step.worth_trying(logical, avx2) for step in ParallelSplit.steps(logical, avx2)) == tried


def test_threads_share_a_sum() -> None:
    found = morello.goal("Sum(1×100000, GL, GL)", target="x86_avx2").synthesize(db=False).impl
    steps = [node.expansion.step for node in walk(found) if isinstance(node, Node)]
    assert any(isinstance(step, ParallelSplit) for step in steps)
    assert any(isinstance(step, Tile) and step.parallel for step in steps)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["Matmul(1×1×4×2, GL, L1, GL)", "Sum(1×8, GL, L1)", "MaxAccum(1×8, L1, GL)"])
def test_search_equals_the_textbook(text: str, avx2: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_split, "_LONG", 2)
    monkeypatch.setattr(parallel_split, "_PARTS", 1)
    target = attrs.evolve(avx2, weights=Weights(threads=2))
    textbook = Textbook(target)
    textbook.solve(parse_spec(f"({text}, [4, 4, 1024, 0, 64])", target))
    assert any(spec.logical.shape[0] == 2 for spec in textbook.seen if spec.logical.op.reductions(2))
    assert not [*differences(textbook.seen, SearchSession(target).programs)]
