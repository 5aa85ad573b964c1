"""Programs shown in [Hong2025] issue the instructions that are counted there: written by hand, and as schedules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from gemmini.array import FP32, INT8, Array  # pyright: ignore[reportMissingImports]

from morello import api
from morello.api.goals import Goal
from morello.build.library import build
from morello.build.toolchain import find_compiler
from morello.plugins.registry import Registry

PROGRAMS = Path(__file__).parent / "programs"
SPECS = Path(__file__).parents[1] / "examples" / "gemm.spec"
ROWS, DEPTH, COLUMNS = 12544, 256, 64
A_BYTES, B_BYTES, ALL_B_BYTES = ROWS * DEPTH, DEPTH * COLUMNS, 12_845_056
#: What each program issues.
PLAIN = {"zero": 3136, "preload": 50176, "compute": 50176, "mvout": 3136}
RESIDENT = {**PLAIN, "zero": 0}


class HandMade:
    """C programs against the model of an array; calls take arrays, and return counts by name."""

    def __init__(self, array: Array, prototype: str, *files: str):
        parts = ["#include <math.h>", "#include <stdint.h>", "#include <stdio.h>", "#include <stdlib.h>"]
        parts += ["#include <string.h>", array.model, *((PROGRAMS / file).read_text() for file in files)]
        library = build({"program.c": "\n".join(parts)}, ["-O2", "-Wall", "-Wextra", "-Werror"], find_compiler())
        self._ffi = cffi.FFI()
        names = ("zero", "mvin", "mvin2", "mvin3", "preload", "compute", "mvout", "config", "fence")
        self._names = (*names, "read", "read2", "read3", "written")
        counts = "\n".join(f"uint64_t gemmini_count_{name}(void);" for name in self._names)
        self._ffi.cdef(f"{prototype};\n{counts}")
        self._library: Any = self._ffi.dlopen(str(library))
        self._function = getattr(self._library, prototype.split("(")[0].split()[-1])

    def __call__(self, *arrays: np.ndarray) -> dict[str, int]:
        before = self._counts()
        self._function(*(self._ffi.cast(f"{_c_type(one)} *", one.ctypes.data) for one in arrays))
        return {name: count - before[name] for name, count in self._counts().items()}

    def _counts(self) -> dict[str, int]:
        return {name: getattr(self._library, f"gemmini_count_{name}")() for name in self._names}


def _c_type(array: np.ndarray) -> str:
    return {"int8": "int8_t", "float32": "float"}[array.dtype.name]


@pytest.fixture(scope="module")
def factors() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    lhs = rng.integers(-128, 128, (ROWS, DEPTH), np.int8)
    return lhs, rng.integers(-128, 128, (DEPTH, COLUMNS), np.int8)


@pytest.mark.parametrize(
    ("file", "issued", "loads", "traffic"),
    [
        ("gemm_plain.c", PLAIN, (3136, 12544), (A_BYTES, ALL_B_BYTES)),
        ("gemm_resident.c", RESIDENT, (3136, 16), (A_BYTES, B_BYTES)),
    ],
)
def test_products_by_hand(
    file: str,
    issued: Mapping[str, int],
    loads: tuple[int, int],
    traffic: tuple[int, int],
    factors: tuple[np.ndarray, np.ndarray],
) -> None:
    lhs, rhs = factors
    out = np.zeros((ROWS, COLUMNS), np.int8)
    found = HandMade(INT8, "void gemm(const int8_t *, const int8_t *, int8_t *)", file)(lhs, rhs, out)
    assert {name: found[name] for name in issued} == issued
    assert (found["mvin2"], found["mvin3"]) == loads
    assert (found["read2"], found["read3"]) == traffic
    assert found["mvin"] == found["zero"]
    # Sums below 2^24 are exact in f32.
    exact = lhs.astype(np.float32) @ rhs.astype(np.float32)
    assert np.array_equal(out, np.clip(exact, -128, 127))


@pytest.fixture(scope="module")
def goals(registry: Registry) -> Mapping[str, Goal]:
    return api.parse(SPECS.read_text(encoding="utf-8"), registry=registry)


@pytest.mark.parametrize(
    ("name", "issued", "loads"),
    [
        ("plain", PLAIN, {(3136, A_BYTES), (12544, ALL_B_BYTES)}),
        ("resident", RESIDENT, {(3136, A_BYTES), (16, B_BYTES)}),
        pytest.param("searched", RESIDENT, {(3136, A_BYTES), (16, B_BYTES)}, marks=pytest.mark.slow),
    ],
)
def test_products_as_schedules_and_by_search(
    name: str, issued: Mapping[str, int], loads: set[tuple[int, int]], goals: Mapping[str, Goal]
) -> None:
    kernel = api.compile(goals[name].synthesize())
    found = {reading.metric.name: reading.value for reading in kernel.readings()}
    assert {count: found[count] for count in issued} == issued
    # Which of the two instructions carries A depends on the order in which they are first needed.
    assert {(found["mvin2"], found["read2"]), (found["mvin3"], found["read3"])} == loads
    assert found["work"] == kernel.cost


def test_the_best_program_known_is_proven_optimal(goals: Mapping[str, Goal]) -> None:
    best = goals["searched"].synthesize()
    costs = {name: api.compile(goal).cost for name, goal in {**goals, "searched": best}.items()}
    assert best.proof == "optimal"
    assert costs["searched"] == costs["resident"] < costs["plain"]


def _forward(a: np.ndarray, b: np.ndarray, k: np.ndarray, x: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, ...]:
    states, inputs = [x.astype(np.float64)], []
    for disturbance in d:
        inputs.append(-k @ states[-1] - disturbance)
        states.append(a @ states[-1] + b @ inputs[-1])
    return np.array(states), np.array(inputs)


@pytest.mark.parametrize(
    ("file", "issued"),
    [
        ("tinympc_plain.c", (35, 35, 75, 75, 35, 15, 75)),
        ("tinympc_resident.c", (7, 41, 68, 68, 17, 4, 15)),
    ],
)
def test_model_predictive_control_by_hand(file: str, issued: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    a, b, k = (rng.uniform(-0.25, 0.25, shape).astype(np.float32) for shape in ((12, 12), (12, 4), (4, 12)))
    d = rng.uniform(-1, 1, (5, 4)).astype(np.float32)
    x, u = np.zeros((6, 12), np.float32), np.zeros((5, 4), np.float32)
    x[0] = rng.uniform(-1, 1, 12)
    run = HandMade(
        FP32, f"void forward({', '.join(['const float *'] * 3)}, float *, const float *, float *)", "tinympc.h", file
    )
    states, inputs = _forward(a, b, k, x[0], d)
    found = run(a, b, k, x, d, u)
    names = ("mvin", "mvin2", "preload", "compute", "mvout", "fence", "config")
    assert tuple(found[name] for name in names) == issued
    assert np.abs(u - inputs).max() < 1e-6
    assert np.abs(x[:5] - states[:5]).max() < 1e-6
