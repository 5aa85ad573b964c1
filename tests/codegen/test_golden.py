"""The emitted C, held by golden files: a change of code generation shows as a diff of what people read.

Write them anew with `MORELLO_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import morello
from morello.errors import EmitError
from morello.runtime import CompiledKernel

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"

CASES = {
    "figure1": (EXAMPLES / "figure1.spec").read_text(),
    "gemm_6x16": (EXAMPLES / "gemm_6x16.spec").read_text(),
    "boundaries": """
        target x86_avx2
        spec boundaries = MatmulAccum(1×7×5×3, L1, L1, L1, serial)
        schedule boundaries {
            tile [1, 4, 2]
            subschedule [0] { split 2
                              subschedule [0] { tile [1, 1, 1]
                                                split 1
                                                select MultAdd }
                              subschedule [1] { tile [1, 1, 1]
                                                select MultAdd } }
            subschedule [1] { tile [0, 1, 1, 1]
                              select MultAdd }
            subschedule [2] { tile [0, 1, 1, 1]
                              select MultAdd }
            subschedule [3] { tile [0, 1, 1, 1]
                              select MultAdd }
        }""",
    "strides": """
        target x86_avx2
        spec strides = Move(4×16, (f32, L1, row_major, c1), (f32, L1, row_major, c1), serial)
        schedule strides {
            tile [1, 16]
            move 0 to VRF as row_major v8
            subschedule [0] { select VectorMove }
            select VectorMove
        }""",
    "packed": """
        target x86_avx2
        spec packed = Move(8×32, (f32, L1, layout[1, 0, 1p8]), (f32, L1, layout[0, 1, 1oe16]), serial)
        schedule packed {
            tile [1, 1]
            select Assign
        }""",
    "transpose": """
        target x86_avx2
        spec transpose = Move(16×16, (f32, L1, row_major), (f32, L1, col_major), serial)
        schedule transpose {
            tile [8, 8]
            move 0 to VRF as row_major v8
            subschedule [0] { tile [1, 8]
                              select VectorMove }
            move 1 to VRF as col_major v8
            subschedule [1] { tile [8, 1]
                              select VectorMove }
            select Transpose8x8Rows
        }""",
    "buffers": """
        target x86_avx2
        spec buffers = FillZero(64×64, (f32, GL), serial)
        schedule buffers {
            move 0 to L1 as col_major
            subschedule [1] { tile [1, 1]
                              move 1 to L1
                              select Assign }
            tile [64, 8]
            move 0 to L1 as row_major
            subschedule [1] { tile [1, 1]
                              select Assign }
            select MemsetZero
        }""",
    "threads": """
        target x86_avx2
        spec threads = Move(2×100×40, (f32, GL, c1), (f32, GL))
        schedule threads {
            tile [1, 0, 0]
            move 0 to GL as row_major               # for all threads
            subschedule [0] { tile [0, 1, 1]
                              move 0 to L1
                              move 1 to L1
                              select Assign }
            tile [0, 32, 20] parallel
            subschedule [0] { move 1 to L1 as layout[0, 2, 1]
                              subschedule [0] { tile [0, 1, 1]
                                                move 0 to L1
                                                select Assign }
                              subschedule [1] { tile [0, 1, 1]
                                                move 1 to L1
                                                select Assign } }
            subschedule [1] { tile [0, 1, 1]
                              move 0 to L1
                              move 1 to L1
                              select Assign }
        }""",
    "dot": """
        target x86_avx2
        spec dot = MatmulAccum(1×1×96×1, L1, (f32, L1, col_major), RF, serial)
        schedule dot { select DotProductLoop }""",
    "jam": """
        target x86_avx2
        spec jam = MatmulAccum(1×5×64×16, GL, (f32, L1, col_major), GL, serial)
        schedule jam {
            tile [1, 4, 16]
            subschedule [0] { tile [1, 2, 16]          # one loop over m: 2 tiles of 2 rows of 1
                              tile [1, 1, 16]
                              move 0 to L1
                              tile [1, 1, 8]           # one over n, of 16 calls
                              move 2 to L1
                              tile [1, 1, 1]
                              select DotProductLoop }
            subschedule [1] { move 0 to L1
                              move 2 to L1
                              tile [1, 1, 6]           # 6 and 4
                              subschedule [0] { tile [1, 1, 1]
                                                select DotProductLoop }
                              subschedule [1] { tile [1, 1, 1]
                                                select DotProductLoop } }
        }""",
}


@pytest.fixture(params=CASES)
def kernel(request: pytest.FixtureRequest, prove) -> CompiledKernel:
    goal = morello.parse(CASES[request.param])[request.param].synthesize()
    return prove(goal.impl, goal.target, goal.name)


def test_emitted_c_is_as_reviewed(kernel: CompiledKernel) -> None:
    for suffix, text in ((".c", kernel.source), (".h", kernel.header)):
        path = GOLDEN / f"{kernel.program.name}{suffix}"
        if os.environ.get("MORELLO_UPDATE_GOLDEN"):
            path.write_text(text)
        assert text == path.read_text(), f"{path.name} differs: see the docstring of this file"


def test_unfinished_programs_are_not_printed() -> None:
    goal = morello.goal("Matmul(1×4×4×4, GL, GL, GL, serial)", target="x86_avx2").tile(1, 2, 2)
    with pytest.raises(EmitError, match=r"1 Specs are not implemented yet: Matmul\(1×2×4×2, GL, GL, GL\)"):
        goal.target.emitter.emit(goal.impl, goal.target, "kernel")


@pytest.mark.parametrize("name", ["int", "main", "größe", "2x", "_f", "morello_time"])
def test_names_that_c_does_not_know(name: str) -> None:
    goal = morello.goal("FillZero(8, (f32, L1), serial)", target="x86_avx2").select("MemsetZero")
    with pytest.raises(EmitError, match="cannot name a C function"):
        goal.target.emitter.emit(goal.impl, goal.target, name)


def test_names_of_what_the_code_defines_are_refused() -> None:
    goal = morello.goal("Move(1×8, (f32, L1), (f32, VRF, v8), serial)", target="x86_avx2").select("VectorMove")
    with pytest.raises(EmitError, match="'load_f32x8' is the name of a type or function"):
        goal.target.emitter.emit(goal.impl, goal.target, "load_f32x8")


@pytest.mark.parametrize("name", ["kernel", "calls", "strides", "out", "function"])
def test_kernels_can_be_timed_whatever_their_name(name: str) -> None:
    goal = morello.goal("FillZero(8, (f32, L1), serial)", target="x86_avx2").select("MemsetZero")
    program = goal.target.emitter.emit(goal.impl, goal.target, name)
    assert CompiledKernel(goal.impl, goal.target, program).bench(min_time=0.001, repeats=1).median > 0
