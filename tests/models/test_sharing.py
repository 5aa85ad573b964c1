"""Threads share loops of finished programs where that saves more than it costs."""

from __future__ import annotations

import numpy as np
import pytest

import morello
from morello import api
from morello.build.toolchain import find_compiler
from morello.models.sharing import shared
from morello.run.arrays import empty
from morello.testing.sanitize import run_sanitized

#: A kernel of a whole operation, a fit of one size, which is a loop, and an operation of a microsecond.
POOL = "MaxPool[stride=2](1×64×28×28×3×3, (f32, GL, nhwc), (f32, GL, nhwc), serial)"
#: Threads have unequal numbers of rows, as half of the channels are short runs of values.
ODD = "MaxPool[stride=2](1×64×27×27×3×3, (f32, GL, nhwc), (f32, GL, nhwc), serial)"
#: Threads could share the channels alone.
SHORT = "Softmax[dim=0](243×64, (f32, GL), (f32, GL), serial)"
ROW = "Matmul(1×1×1024×1000, (f32, GL), (f32, GL, constant), (f32, GL), serial)"
LARGE, SMALL = (f"Relu({shape}, (f32, GL), (f32, GL), serial)" for shape in ("1024×256", "16×64"))


@pytest.mark.parametrize("text", [POOL, LARGE])
def test_loops_that_take_long_are_shared(text: str) -> None:
    kernel = api.compile(f"target x86_avx2\nspec p = {text}\n", db=False)
    goal = shared(kernel.goal, 2)
    assert " parallel" in str(goal.schedule)
    assert not goal.spec.logical.serial
    two = api.compile(goal, db=False)
    assert two.cost < 0.7 * kernel.cost
    assert "passed" in str(two.check())


def test_each_thread_has_half_of_all_loops() -> None:
    """Rows are odd: of 15 tiles of one, a thread has eight, and each has half of the columns instead."""
    goal = morello.goal("Relu(15×16384, (f32, GL), (f32, GL), serial)", target="x86_avx2")
    rows = goal.tile(1, 0).tile(1, 1024).synthesize(db=False, progress=False)
    assert shared(rows, 2).schedule.startswith("tile [0, 8192] parallel\ntile [1, 0]\ntile [1, 1024]\n")


def test_threads_have_unequal_numbers_of_equal_parts() -> None:
    """Of 27 rows: results are the same bits for any number of threads, also where some have none, and none race."""
    goal = shared(api.compile(f"target x86_avx2\nspec p = {ODD}\n", db=False).goal, 2)
    assert str(goal.schedule).startswith("tile [0, 0, 3, 0, 0, 0] parallel\n")
    kernel = api.compile(goal, db=False)
    (values, _) = map(empty, kernel.spec.operands)
    values[...] = np.random.default_rng(0).standard_normal(values.shape)
    alone = kernel(values, threads=1)
    assert all(np.array_equal(kernel(values, threads=threads), alone) for threads in (2, 3, 40))
    out = np.zeros_like(alone)
    assert np.array_equal(
        run_sanitized(kernel.program, kernel.spec, [values, out], find_compiler(), "thread")[0], alone
    )


def test_parts_leave_out_tiles_that_are_as_large() -> None:
    """Of 40,960 columns, a tile of 32,768 leaves 8,192: a thread has 20,480 of them, in the tiles of 16,384 inside."""
    goal = morello.goal("Relu(1×40960, (f32, GL), (f32, GL), serial)", target="x86_avx2")
    columns = goal.tile(1, 32768).synthesize(db=False, progress=False)
    both = shared(columns, 2)
    assert both.schedule.startswith("tile [0, 20480] parallel\ntile [0, 16384]\nsubschedule [0] {")
    assert "passed" in str(api.compile(both, db=False).check())


def test_each_part_of_a_constant_is_in_one_piece() -> None:
    """A row times a matrix: threads share its columns, and read half of the matrix each, one row after another."""
    text = f"target x86_avx2\nspec p = {ROW}\nschedule p {{\npack 1 as row_major\nmove 2 to L1\nto_accum\n}}"
    row = api.compile(text, db=False).goal
    two = shared(row, 2)
    assert two.schedule.startswith("pack 1 as layout[2, 1, 2p500]\ntile [0, 0, 0, 500] parallel\n")
    kernel, alone = api.compile(two, db=False), api.compile(row, db=False)
    assert kernel.cost < 0.6 * alone.cost
    assert "passed" in str(kernel.check())


@pytest.mark.parametrize("text", [SMALL, SHORT])
def test_short_loops_and_short_runs_are_not_shared(text: str) -> None:
    kernel = api.compile(f"target x86_avx2\nspec p = {text}\n", db=False)
    assert shared(kernel.goal, 2) is kernel.goal
    assert shared(kernel.goal, 1) is kernel.goal
