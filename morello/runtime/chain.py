"""Runs the operations of a Compose one after another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from morello.ir.ops.base import Operation
from morello.ir.ops.compose import Compose

T = TypeVar("T")


def chain(
    op: Compose, shape: tuple[int, ...], inputs: Sequence[T], run: Callable[[Operation, tuple[int, ...], list[T]], T]
) -> list[T]:
    """Fold `run(operation, its shape, its inputs)` over a chain; the result of each operation, first run first."""
    waiting = list(inputs)
    head = op.components[0]
    accumulator = [waiting.pop()] if any(each.reads and each.writes for each in head.operands(head.rank or 0)) else []
    results: list[T] = []
    for position, own in reversed(list(enumerate(op.split_shape(shape)))):
        one = op.components[position]
        before = results[-1:]
        count = sum(not each.writes for each in one.operands(one.rank or 0)) - len(before)
        start = len(waiting) - count
        fresh, waiting = waiting[start:], waiting[:start]
        results.append(run(one, own, [*before, *fresh, *(accumulator if position == 0 else [])]))
    return results
