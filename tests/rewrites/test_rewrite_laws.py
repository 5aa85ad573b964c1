"""Laws of every standard rewrite, on its example; new rewrites are covered automatically."""

from __future__ import annotations

import pytest

from morello.errors import Inapplicable
from morello.frontend import parse_schedule
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites import STANDARD, Rewrite
from morello.schedule import schedule_text

each_rewrite = pytest.mark.parametrize("rewrite", STANDARD, ids=lambda one: one.keyword)


def specs(rewrite: type[Rewrite], target: Target) -> list[LogicalSpec]:
    """The example with all operands in one level, in each level other than registers."""
    op, shape = rewrite.example.op, rewrite.example.shape
    shapes = [one.shape(shape) for one in op.operands(len(shape))]
    levels = [level.name for level in target.levels if not level.is_register]
    return [
        target.spec(
            LogicalSpec(
                op,
                shape,
                tuple(
                    target.state(level, dtype, target.layouts(dtype, len(own))[0])
                    for own, dtype in zip(shapes, rewrite.example.dtypes, strict=True)
                ),
                serial,
            )
        ).logical
        for level in levels
        for serial in (True, False)
    ]


@each_rewrite
def test_steps_are_written_as_they_are_read(rewrite: type[Rewrite], avx2: Target) -> None:
    steps = [step for spec in specs(rewrite, avx2) for step in rewrite.steps(spec, avx2)]
    for step in dict.fromkeys(steps):
        assert parse_schedule(schedule_text((step,)), avx2) == (step,)
        assert str(step).startswith(rewrite.keyword)


@each_rewrite
def test_the_example_is_rewritten_without_change_of_operands(rewrite: type[Rewrite], avx2: Target) -> None:
    applied = 0
    for spec in specs(rewrite, avx2):
        for step in rewrite.steps(spec, avx2):
            try:
                expansion = step.expansion(spec, avx2)
            except Inapplicable:
                continue
            tensors = (*spec.operands, *expansion.tensors)
            for part in expansion.parts:
                assert part.logical == part.logical.canonical()
                if part.ranges is None and part.dim_maps is None:
                    given = [(tensors[arg].shape, tensors[arg].state) for arg in part.args]
                    assert [(one.shape, one.state) for one in part.logical.operands] == given
            applied += 1
    # Search splits softmax only for long rows.
    assert applied or rewrite.keyword == "parallel_split_softmax"


def test_the_order_of_ties_is_that_of_its_numbers() -> None:
    orders = [rewrite.order for rewrite in STANDARD]
    assert orders == sorted(orders)
    assert len({*orders}) == len(orders)
    assert len({rewrite.keyword for rewrite in STANDARD}) == len(STANDARD)
