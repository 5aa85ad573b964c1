"""A rewrite of a batch of Specs is the rewrite of each of them: one definition serves arrays and ints."""

from __future__ import annotations

import contextlib
import itertools
import random
from typing import Any

import attrs
import numpy as np
import pytest

from morello.errors import Inapplicable, SpecError
from morello.ir.dtypes import F32
from morello.ir.impl import Expansion
from morello.ir.ops import by_name
from morello.ir.ops.reduce import Mean
from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.rewrites import STANDARD
from morello.rewrites.base import Example, Rewrite, rewrites_of
from morello.rewrites.pipeline import PipelineRewrite
from morello.rewrites.tile import Tile
from morello.rewrites.to_sum import ToSum
from morello.testing.generate import random_spec

SHAPES = {
    "Matmul": [(1, 8, 16, 32), (1, 7, 16, 24), (1, 16, 3, 16), (1, 8, 8, 8)],
    "MatmulAccum": [(1, 8, 16, 32), (1, 7, 5, 24), (2, 12, 16, 16), (1, 1, 8, 8), (1, 1, 1, 16)],
    "Move": [(16, 32), (8, 8), (24, 16), (1, 32), (32, 7)],
    "FillZero": [(16, 32), (1, 8), (24, 5)],
}
#: Examples of pipeline rewrites, each operation once.
PIPELINES = {str(one.example.op): one.example for one in STANDARD if issubclass(one, PipelineRewrite)}
FAST = {"Softmax[dim=1]", "GroupedConv", "Mean[dim=1]"}
each_pipeline = pytest.mark.parametrize(
    "example",
    [pytest.param(one, id=name, marks=() if name in FAST else pytest.mark.slow) for name, one in PIPELINES.items()],
)


def pick(value: Any, cell: int) -> Any:
    """The part of a batch's expansion that belongs to one cell, with plain ints for numbers."""
    if isinstance(value, np.ndarray):
        return int(value[cell])
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, tuple):
        return tuple(pick(one, cell) for one in value)
    if attrs.has(type(value)) and not isinstance(value, Rewrite):
        return type(value)(
            **{field.name: pick(getattr(value, field.name), cell) for field in attrs.fields(type(value))}
        )
    return value


def alone(logical: LogicalSpec, step: Rewrite, target: Target) -> Expansion | None:
    try:
        return step.expansion(logical, target)
    except Inapplicable:
        return None


def family(rng: random.Random, logical: LogicalSpec) -> list[LogicalSpec]:
    """Specs with the same labels and other sizes, if their normal form has the same labels."""
    found = [logical]
    for _ in range(25):
        factors = [rng.choice([1, 2, 3, 4]) if size > 1 else 1 for size in logical.shape]
        shape = tuple(size * factor for size, factor in zip(logical.shape, factors, strict=True))
        other = attrs.evolve(logical, shape=shape)
        with contextlib.suppress(SpecError):
            if other.canonical() == other:
                found.append(other)
    return found


def together(batch: LogicalSpec, step: Rewrite, target: Target, count: int) -> list[Expansion | None]:
    results: list[Expansion | None] = [None] * count
    try:
        for case in step.cases(batch, target):
            cells = range(count) if case.cells is None else case.cells
            for position, cell in enumerate(cells):
                assert results[cell] is None, f"{step}: cell {cell} comes in two cases"
                results[cell] = pick(case.expansion, position)
    except Inapplicable:
        pass
    return results


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("seed", range(10))
def test_batches_agree_with_single_specs(name: str, seed: int, avx2: Target) -> None:
    rng = random.Random(seed)
    agree(rng, Example(by_name(name), rng.choice(SHAPES[name])), seed, avx2)


@each_pipeline
def test_batches_of_pipeline_rewrites(example: Example, avx2: Target) -> None:
    met = agree(random.Random(0), example, 0, avx2)
    assert any(issubclass(rewrite, PipelineRewrite) for rewrite in met)


@each_pipeline
def test_sizes_without_whole_vectors_leave_the_others_alone(example: Example, avx2: Target) -> None:
    """Sizes of 1 have layouts of their own and fill no vectors; search takes them together with all others."""
    op, dtypes = example.op, example.dtypes
    every = itertools.product(*({1, size} for size in example.shape))
    shapes = [shape for shape in every if op.refusal(shape, dtypes) is None][::-1][:40]
    states = tuple(OperandState(dtype, "GL", None) for dtype in dtypes)
    batch = LogicalSpec(op, tuple(map(np.array, zip(*shapes, strict=True))), states, serial=False)
    applied = 0
    for rewrite in (one for one in rewrites_of(avx2) if issubclass(one, PipelineRewrite)):
        for step in rewrite.steps(batch, avx2):
            expected = [alone(attrs.evolve(batch, shape=shape), step, avx2) for shape in shapes]
            assert together(batch, step, avx2, len(shapes)) == expected, str(step)
            applied += any(one is not None for one in expected)
    assert applied


def test_a_length_that_a_place_refuses_leaves_the_others_alone(avx2: Target) -> None:
    """A row's sum fills no vector; the sums of eight do. How long rows are makes them plans of their own."""
    op, shapes = Mean(dim=1), [(1, 4), (8, 8), (1, 16)]
    states = tuple(OperandState(F32, "GL", None) for _ in range(2))
    batch = LogicalSpec(op, tuple(map(np.array, zip(*shapes, strict=True))), states)
    step = ToSum("VRF", "row_major", 8)
    expected = [alone(attrs.evolve(batch, shape=shape), step, avx2) for shape in shapes]
    assert [one is not None for one in expected] == [False, True, False]
    assert together(batch, step, avx2, len(shapes)) == expected


@pytest.mark.parametrize(("name", "parallel"), [("Matmul", False), ("MatmulAccum", True)])
def test_tiles_of_whole_dimensions_cover_them(name: str, parallel: bool, avx2: Target) -> None:
    """Search offers none, but schedules may."""
    op = by_name(name)
    states = tuple(OperandState(F32, "GL", None) for _ in op.operands(4))
    specs = [LogicalSpec(op, (1, 4, k, 4), states, serial=not parallel) for k in (4, 8, 16)]
    batch = attrs.evolve(specs[0], shape=tuple(map(np.array, zip(*(one.shape for one in specs), strict=True))))
    step = Tile((0, 2, 8, 0), parallel)
    expected = [alone(one, step, avx2) for one in specs]
    assert [one is not None for one in expected] == [False, True, False]
    assert together(batch, step, avx2, len(specs)) == expected


def agree(rng: random.Random, example: Example, seed: int, avx2: Target) -> set[type[Rewrite]]:
    """Compare every step on a random batch with the same step on each Spec alone; return those that apply."""
    op, shape, dtypes = example.op, example.shape, example.dtypes
    levels = ["L1", "GL", *(["VRF", "RF"] if seed % 5 else [])]
    logical = attrs.evolve(random_spec(rng, avx2, op, shape, list(dtypes), levels).logical, serial=bool(seed % 5))
    specs = family(rng, logical)
    sizes = tuple(np.array([one.shape[dim] for one in specs]) for dim in range(len(shape)))
    batch = attrs.evolve(logical, shape=sizes)
    steps = [step for rewrite in rewrites_of(avx2) for step in rewrite.steps(batch, avx2)]
    assert steps
    applied: set[type[Rewrite]] = set()
    for step in steps:
        expected = [alone(one, step, avx2) for one in specs]
        assert together(batch, step, avx2, len(specs)) == expected, str(step)
        applied |= {type(step) for one in expected if one is not None}
    assert applied
    return applied
