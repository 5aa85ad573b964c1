"""Random Composes have operations of every kind."""

from __future__ import annotations

import random

from morello.ir.ops.base import Operation
from morello.testing.graphs import COMPOSABLE, random_compose


def kind(op: Operation) -> str:
    return type(op).__module__


def test_every_kind_of_operation_is_drawn() -> None:
    drawn = {kind(stage.op) for seed in range(150) for stage in random_compose(random.Random(seed))[0].stages}
    assert drawn == {kind(op) for op in COMPOSABLE}
