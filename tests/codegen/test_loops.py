"""Loops that are printed as one, and calls of a microkernel that are printed together."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import morello
from morello.kernels.target import Target

DOT = "MatmulAccum(1×{m}×{k}×{n}, L1, (f32, L1, col_major), L1, serial)"


def source(spec: str, schedule: str, target: Target, prove: Callable) -> str:
    goal = morello.goal(spec, target=target.name).apply(schedule)
    return prove(goal.impl, target).source


def heads(text: str) -> list[str]:
    """The loops over tiles, each as the counter and its number of values."""
    return re.findall(r"for \(ptrdiff_t (\w+) = 0; \1 < (\d+); \+\+\1\)", text)


@pytest.mark.parametrize(
    ("schedule", "loops"),
    [
        ("tile [1, 6, 8]; tile [1, 2, 8]; tile [1, 1, 8]; tile [1, 1, 1]; split 1; select MultAdd", "m12 n8 k5"),
        ("tile [1, 6, 8]; tile [1, 6, 4]; tile [1, 1, 4]; tile [1, 1, 1]; split 1; select MultAdd", "m2 n2 m6 n4 k5"),
        ("tile [1, 6, 4]; tile [1, 6, 2]; tile [1, 6, 1]; tile [1, 1, 1]; split 1; select MultAdd", "m2 n2 n4 m6 k5"),
    ],
    ids=["one dimension", "another in between", "two dimensions at once"],
)
def test_loops_over_one_dimension_are_one(schedule: str, loops: str, avx2: Target, prove: Callable) -> None:
    text = source(DOT.format(m=12, k=5, n=8), schedule, avx2, prove)
    assert " ".join(f"{name.rstrip('0123456789')}{count}" for name, count in heads(text)) == loops


def test_loops_stay_apart_where_something_happens_between_them(avx2: Target, prove: Callable) -> None:
    spec = "Move(8×8, (f32, L1, row_major), (f32, L1, row_major), serial)"
    schedule = """
        tile [4, 8]
        move 0 to L1 as col_major
        subschedule [0] { tile [2, 8]; tile [1, 8]; tile [1, 1]; select Assign }
        subschedule [1] { tile [3, 8]
                          subschedule [0] { tile [1, 8]; tile [1, 1]; select Assign }
                          subschedule [1] { tile [1, 1]; select Assign } }"""
    counts = [int(count) for _, count in heads(source(spec, schedule, avx2, prove))]
    assert counts == [2, 4, 8, 3, 8, 8]


@pytest.mark.parametrize(
    ("columns", "loops", "together"), [(16, ["2"], 8), (12, ["2"], 6), (7, [], 7), (11, ["11"], 1)]
)
def test_as_many_calls_together_as_divide_their_number(
    columns: int, loops: list[str], together: int, avx2: Target, prove: Callable
) -> None:
    text = source(DOT.format(m=1, k=40, n=columns), "tile [1, 1, 1]; select DotProductLoop", avx2, prove)
    assert [count for _, count in heads(text)] == loops
    assert re.findall(r"DotProductLoop, (\d+) at once", text) == ([str(together)] if together > 1 else [])


@pytest.mark.slow
def test_calls_are_printed_together_only_where_registers_are_left(avx2: Target, prove: Callable) -> None:
    """8 sums and 4 temporaries: a vector more than 11."""
    schedule = "tile [1, 1, 1]; select DotProductLoop"
    for vectors, together in ((12, True), (11, False)):
        spec = f"({DOT.format(m=1, k=64, n=8)}, [0, {32 * vectors}, 0, 0, 0])"
        assert ("8 at once" in source(spec, schedule, avx2, prove)) is together


def test_calls_along_the_reduction_add_to_one_value(avx2: Target, prove: Callable) -> None:
    schedule = "split 32; split 8; select DotProductLoop"
    assert "8 at once" in source(DOT.format(m=1, k=128, n=1), schedule, avx2, prove)


def test_calls_of_unrolled_loops_are_printed_together(avx2: Target, prove: Callable) -> None:
    """Outputs in registers are named one by one: 10 of them are 8 calls and 2."""
    spec = "MatmulAccum(1×2×40×5, L1, (f32, L1, col_major), L1, serial)"
    schedule = "move 2 to RF; subschedule [1] { tile [1, 1, 5]; tile [1, 1, 1]; select DotProductLoop }; synthesize"
    text = source(spec, schedule, avx2, prove)
    assert re.findall(r"DotProductLoop, (\d+) at once", text) == ["8", "2"]
    assert "for (ptrdiff_t n" not in text


@pytest.mark.slow
def test_outputs_that_are_no_neighbours_are_added_one_by_one(avx2: Target, prove: Callable) -> None:
    text = source(DOT.format(m=8, k=32, n=1), "tile [1, 1, 1]; select DotProductLoop", avx2, prove)
    assert "8 at once" in text
    assert "add_up_four" in text
    spec = "MatmulAccum(1×8×32×2, L1, (f32, L1, col_major), L1, serial)"
    text = source(spec, "tile [1, 8, 1]; tile [1, 1, 1]; select DotProductLoop", avx2, prove)
    assert "8 at once" in text
    assert "add_up_four" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "schedule", "loops"),
    [
        ("layout[1, 0, 1p8]", "tile [1, 1]; select Assign", ["4", "4", "8"]),
        ("layout[1, 0, 1oe8]", "tile [1, 1]; select Assign", ["4", "4", "4", "2"]),
        ("layout[1, 0, 1p2, 0p2, 1p4]", "tile [1, 1]; select Assign", ["2", "2", "4", "2", "4"]),
        ("layout[0, 1, 0p2, 1p16]", "tile [1, 1]; select Assign", ["2", "2", "2", "16"]),
        ("layout[1, 0, 1p16]", "tile [1, 32]; tile [1, 4]; tile [1, 1]; select Assign", ["4", "2", "16"]),
        ("layout[1, 0, 1p8]", "tile [4, 16]; tile [1, 16]; tile [1, 1]; select Assign", ["2", "4", "2", "8"]),
    ],
    ids=["one", "odd and even", "within strips", "of both dimensions", "loops that are one", "tiles of whole strips"],
)
def test_loops_go_along_strips(layout: str, schedule: str, loops: list[str], avx2: Target, prove: Callable) -> None:
    """No offset divides by the size of a strip."""
    text = source(f"Move(4×32, (f32, L1), (f32, L1, {layout}), serial)", schedule, avx2, prove)
    assert [count for _, count in heads(text)] == loops
    assert not re.search(r"[%/] \d", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "schedule", "loops"),
    [
        ("layout[1, 0]", "tile [1, 32]; tile [1, 1]; select Assign", ["4", "32"]),
        ("layout[1, 0, 1p16]", "tile [4, 16]; tile [1, 16]; tile [1, 1]; select Assign", ["2", "4", "16"]),
    ],
    ids=["no strips", "loops within a strip"],
)
def test_loops_are_whole_where_nothing_is_divided(
    layout: str, schedule: str, loops: list[str], avx2: Target, prove: Callable
) -> None:
    text = source(f"Move(4×32, (f32, L1), (f32, L1, {layout}), serial)", schedule, avx2, prove)
    assert [count for _, count in heads(text)] == loops


def test_parts_that_a_program_repeats_are_functions(avx2: Target, prove: Callable) -> None:
    schedule = "select Assign"
    for bits in range(1, 13):
        schedule = (
            f"tile [{1 << bits}]\nsubschedule [0] {{ tile [1]; select Assign }}\nsubschedule [1] {{ {schedule} }}"
        )
    text = source("Move(8191, (i32, L1), (i32, L1), serial)", schedule, avx2, prove)
    assert text.count("static void kernel_tile1(") == 1
    assert text.count("kernel_tile1(") == 14
