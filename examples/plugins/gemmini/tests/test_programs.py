"""Search finds correct programs for the arrays, and refuses Specs that an array cannot compute."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from gemmini.array import INT8  # pyright: ignore[reportMissingImports]

from morello import api
from morello.api.goals import Goal
from morello.build.toolchain import find_compiler
from morello.errors import MorelloError
from morello.plugins.registry import Registry

BYTES = "(i8, GL), (i8, GL), (i32, GL)"
FLOATS = "(f32, GL), (f32, GL), (f32, GL)"


@pytest.fixture(scope="module")
def goal(registry: Registry) -> Callable[[str], Goal]:
    """A goal for the array that has its type of values."""

    def make(text: str) -> Goal:
        return api.goal(text, target="gemmini" if "i8" in text else "gemmini_fp32", registry=registry)

    return make


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        f"Matmul(1×16×16×16, {BYTES}, serial)",
        f"Matmul(1×37×48×80, {BYTES})",
        f"Matmul(3×8×32×16, {BYTES}, serial)",
        f"MatmulAccum(1×20×32×48, {BYTES}, serial)",
        f"Matmul(1×1×12×4, {FLOATS}, serial)",
        f"Matmul(1×13×8×12, {FLOATS}, serial)",
        "Compose([Matmul, Matmul], [(1×8×8, f32, GL), (1×8×4, f32, GL), (1×4×8, f32, GL), (1×8×8, f32, GL)], serial)",
        "Move(1×5×32, (i8, GL), (i8, GL), serial)",
    ],
)
def test_search_finds_programs_that_are_right(text: str, goal: Callable[[str], Goal]) -> None:
    kernel = api.compile(goal(text).synthesize())
    kernel.check()
    work, *_ = kernel.readings()
    assert (work.metric.name, work.value) == ("work", kernel.cost)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sums", "scratchpad", "reads_of_rhs"),
    [
        (64 << 10, 256 << 10, 1),
        # Parts of both factors suffice where all sums are held meanwhile.
        (16 << 10, 2 << 10, 1),
        # A row of tiles of one factor is held, and all of the other one comes by for each.
        (1 << 10, 8 << 10, 4),
    ],
)
def test_less_memory_takes_more_traffic(
    sums: int, scratchpad: int, reads_of_rhs: int, goal: Callable[[str], Goal]
) -> None:
    text = f"(Matmul(1×64×256×64, {BYTES}, serial), [{sums}, {scratchpad}, {2 << 30}])"
    kernel = api.compile(goal(text).synthesize())
    found = {reading.metric.name: reading.value for reading in kernel.readings()}
    assert found["traffic"] == 64 * 256 * (1 + reads_of_rhs) + 4 * 64 * 64


def test_c_says_where_tensors_are(goal: Callable[[str], Goal]) -> None:
    source = api.compile(goal(f"Matmul(1×16×16×32, {BYTES}, serial)").synthesize()).source
    body = source[source.index("    gemmini_begin();") :]
    assert "int8_t *const lhs_spad = (int8_t *)((char *)gemmini.scratchpad + 0);" in body
    assert "int8_t *const rhs_spad = (int8_t *)((char *)gemmini.scratchpad + 256);" in body
    assert "int32_t *const out_acc = (int32_t *)((char *)gemmini.accumulator + 0);" in body
    assert body.rstrip().endswith("gemmini_fence();\n}")


def test_sizes_that_are_no_whole_blocks_have_no_program(goal: Callable[[str], Goal]) -> None:
    with pytest.raises(MorelloError):
        goal(f"Matmul(1×16×16×20, {BYTES}, serial)").synthesize()


def test_parallel_loops_are_refused(registry: Registry) -> None:
    text = f"""
        target gemmini
        spec shared = Matmul(1×32×16×16, {BYTES})
        schedule shared {{
            tile [1, 16, 16, 16] parallel
            synthesize
        }}
    """
    with pytest.raises(MorelloError, match="there is one array, which threads cannot share"):
        api.parse(text, registry=registry)


@pytest.mark.parametrize(
    ("statement", "rule"),
    [
        ("gemmini_mvin(memory, 0, 65, 1);", "a tile has 1 to DIM columns, and mvin up to 4 DIM"),
        ("gemmini_mvin(NULL, 0, 17, 1);", "a tile has 1 to DIM columns, and mvin up to 4 DIM"),
        ("gemmini_mvin(memory, 0, 16, 17);", "a tile has 1 to DIM rows"),
        ("gemmini_mvin(memory, 16384 - 15, 16, 16);", "the address is behind the end of the scratchpad"),
        ("gemmini_mvin(memory, GEMMINI_ACC | 1023, 16, 2);", "the address is behind the end of the accumulator"),
        ("gemmini_preload(0, 0, 16, 16, 16, 16);", "results go to the accumulator"),
        ("gemmini_config_ld(16, 1.0f, 16, 3);", "there are three mvin instructions, 0 to 2"),
        ("gemmini_config_ex(GEMMINI_OUTPUT_STATIONARY, 0, 1, 0, 0);", "only the weight-stationary dataflow"),
        ("gemmini_address(memory);", "the pointer is to neither of its memories"),
        ("gemmini_address((char *)gemmini.accumulator + 4);", "the pointer is not to a row's start"),
    ],
)
def test_programs_that_break_a_rule_are_stopped(statement: str, rule: str, tmp_path: Path) -> None:
    headers = "".join(f"#include <{name}.h>\n" for name in ("math", "stdint", "stdio", "stdlib", "string"))
    body = f"int main(void) {{\n    static char memory[4096];\n    (void)memory;\n    {statement}\n}}\n"
    (tmp_path / "program.c").write_text(f"{headers}{INT8.model}{body}", encoding="utf-8")
    command = [*find_compiler().command, "-w", "-o", "program", "program.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    done = subprocess.run([tmp_path / "program"], capture_output=True, text=True, timeout=60)
    assert done.returncode < 0
    assert rule in done.stderr
