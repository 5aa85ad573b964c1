"""Emitted C equals the golden files, so that a change of code generation shows as a diff of C.

Update them with `MORELLO_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import morello
from morello.api.kernel import Kernel
from morello.codegen.threads import RUNTIME
from morello.errors import EmitError
from morello.host import missing_features

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"

#: Files of a Spec each, named like it; their schedules leave little to search.
CASES = {path.stem: path for path in (*GOLDEN.glob("*.spec"), EXAMPLES / "figure1.spec", EXAMPLES / "gemm_6x16.spec")}
#: The most lines of a golden file, not counting the runtime of threads, which is always the same.
READABLE = 220


@pytest.fixture(params=sorted(CASES))
def kernel(request: pytest.FixtureRequest) -> Kernel:
    goal = morello.parse(CASES[request.param].read_text(encoding="utf-8"))[request.param]
    return morello.compile(goal)


def test_emitted_c_is_as_reviewed(kernel: Kernel) -> None:
    for suffix, text in ((".c", kernel.source), (".h", kernel.header)):
        path = GOLDEN / f"{kernel.program.name}{suffix}"
        if os.environ.get("MORELLO_UPDATE_GOLDEN"):
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs: see the docstring of this file"
        assert text.replace(RUNTIME, "").count("\n") < READABLE


@pytest.mark.slow
def test_emitted_c_is_right(kernel: Kernel, prove: Callable[..., Kernel]) -> None:
    if missing := missing_features((*kernel.target.info.cpu_features, *kernel.program.cpu_features)):
        pytest.skip(f"this machine lacks {', '.join(missing)}")
    prove(kernel.impl, kernel.target, kernel.program.name, each_compiler=True)


def test_both_targets_have_golden_files_of_each_kind() -> None:
    for kind in ("bf16", "compose", "conv", "softmax", "threads"):
        assert {f"{kind}_avx2", f"{kind}_avx512"} <= {*CASES}


@pytest.mark.parametrize("name", ["int", "main", "größe", "2x", "_f", "morello_time"])
def test_names_that_c_does_not_allow(name: str) -> None:
    goal = morello.goal("FillZero(8, (f32, L1), serial)", target="x86_avx2").select("MemsetZero")
    with pytest.raises(EmitError, match="cannot name a C function"):
        goal.target.emitter.emit(goal.impl, goal.target, name)


def test_names_that_the_code_defines_are_refused() -> None:
    goal = morello.goal("Move(1×8, (f32, L1), (f32, VRF, v8), serial)", target="x86_avx2").select("VectorMove")
    with pytest.raises(EmitError, match="'load_f32x8' is the name of a type or function"):
        goal.target.emitter.emit(goal.impl, goal.target, "load_f32x8")


@pytest.mark.parametrize(
    "name", ["calls", *(pytest.param(one, marks=pytest.mark.slow) for one in ("kernel", "strides", "out", "function"))]
)
def test_kernels_can_be_timed_whatever_their_name(name: str) -> None:
    goal = morello.goal("FillZero(8, (f32, L1), serial)", target="x86_avx2").select("MemsetZero")
    program = goal.target.emitter.emit(goal.impl, goal.target, name)
    assert Kernel.of(goal.impl, goal.target, program).bench(min_time=0.001, repeats=1).median > 0
