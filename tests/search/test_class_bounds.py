"""Class bounds are a fixed point: no step of the relaxed problem, computed limit by limit, lowers any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from morello.frontend.parser import parse_spec
from morello.kernels.target import Target
from morello.search.arrays import Floats, Ints
from morello.search.bounds.class_tuples import SpaceBounds
from morello.search.bounds.loops import LoopBounds
from morello.search.bounds.moves import MoveBounds
from morello.search.bounds.pipelines import PipelineBounds
from morello.search.bounds.solve import Bounds
from morello.search.solve.engine import Engine

#: Only every EVERY-th of many class tuples is checked.
EVERY = 5


def columns_of(bounds: Bounds, own: SpaceBounds, number: int) -> tuple[Ints, Ints]:
    """Return the columns of a class tuple, [n], and their limits as codes, [n, levels]."""
    columns, limits = [own.full[number : number + 1]], [bounds.limit_codes.full[None]]
    for level, first in enumerate(own.per_level[number, :-1].tolist()):
        if first >= 0:
            steps = bounds.step_codes[level]
            columns.append(first + np.arange(len(steps)))
            limits.append(np.tile(bounds.limit_codes.full, (len(steps), 1)))
            limits[-1][:, level] = steps
    return np.concatenate(columns), np.concatenate(limits)


def under(bounds: Bounds, own: SpaceBounds, tuple_: int, shape: int, limits: Ints, held: Mapping[int, int]) -> Floats:
    """Return the bounds of a class tuple and a shape under limits, [n], while bytes of levels are held."""
    found = np.full(len(limits), own.values[shape, own.full[tuple_]])
    for level, first in enumerate(own.per_level[tuple_, :-1].tolist()):
        left = limits[:, level]
        if level in held:
            left = bounds.limit_codes.lower(level, left, held[level])
            found[left < 0] = np.inf
        if first >= 0:
            found = np.maximum(found, own.values[shape, first + bounds.limit_steps[level, np.maximum(left, 0)]])
    return found


def moved(bounds: Bounds, own: SpaceBounds, number: int, shape: int, limits: Ints) -> list[Floats]:
    """Return the least costs of all moves of a class tuple."""
    moves, found = bounds.of(MoveBounds), []
    for operand, cls in enumerate(own.classes[number].tolist()):
        for move in moves.classes(own.space.key, operand, cls):
            after, tensor = int(own.after[operand][number, move.into]), own.space.tensors[operand][shape]
            cost = bounds.cheapest[move.into][tensor] + bounds.cheapest[cls][tensor]
            copies = bounds.by_key[moves.copy_key(own.space, operand)]
            for copied in {} if move.view else moves.copies(own.space, move, cls).values():
                cost += copies.values[moves.copy_shapes(own.space, operand)[shape], copies.full[copied]]
            used = {move.level: int(bounds.smallest[move.into][tensor])}
            found.append(cost + under(bounds, own, after, shape, limits, used))
    return found


def looped(bounds: Bounds, own: SpaceBounds, number: int, shape: int, limits: Ints) -> list[Floats]:
    """Return the least costs of all loops of a class tuple that leave its space."""
    found = []
    for loop in bounds.of(LoopBounds).leaving(own.space):
        classes = own.classes[number : number + 1]
        if loop.valid[shape] and bounds.apply_to(loop.suits, classes)[0]:
            total = np.full(len(limits), float(loop.cost[shape]))
            for part in (part for part in loop.parts if part.shape[shape] >= 0):
                below = bounds.by_key[part.space.key]
                (tuple_,) = below.number(classes[:, list(part.args)]).tolist()
                total += part.times[shape] * under(bounds, below, tuple_, part.shape[shape], limits, {})
            found.append(total)
    return found


def staged(bounds: Bounds, own: SpaceBounds, number: int, shape: int, limits: Ints) -> list[Floats]:
    """Return the least costs of all pipelines of a class tuple."""
    found = []
    for pipeline in bounds.of(PipelineBounds).on(own):
        if number not in pipeline.rows or any(part.shape[shape] < 0 for part in pipeline.table.parts):
            continue
        tensors = [
            (cls, numbers[shape]) for cls, numbers in zip(pipeline.new_classes, pipeline.table.tensors, strict=True)
        ]
        total = np.full(len(limits), sum((float(bounds.cheapest[cls][tensor]) for cls, tensor in tensors), 0.0))
        for part, tuples in zip(pipeline.table.parts, pipeline.parts.T, strict=True):
            held: dict[int, int] = {}
            for cls, tensor in (tensors[held_one] for held_one in part.holds):
                level = bounds.states.classes[cls].level
                held[level] = held.get(level, 0) + int(bounds.smallest[cls][tensor])
            tuple_ = int(tuples[np.flatnonzero(pipeline.rows == number)[0]])
            total += under(bounds, bounds.by_key[part.space.key], tuple_, part.shape[shape], limits, held)
        found.append(total)
    return found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uneven", "Matmul(1×2×3×2, MEM, MEM, MEM)"),
        ("packing", "Matmul(1×2×2×3, MEM, C, MEM, serial)"),
        ("sharing", "Matmul(1×2×3×2, MEM, MEM, MEM)"),
        ("dear", "Matmul(1×2×3×2, MEM, MEM, MEM)"),
        pytest.param("x86_avx2", "Softmax(2×3, (f32, GL), (f32, GL), serial)", marks=pytest.mark.slow),
        ("x86_avx512", "Compose([Matmul, Matmul], [(1×3×2, GL), (1×2×2, GL), (1×2×3, GL), (1×2×2, GL)], serial)"),
    ],
)
def test_no_step_lowers_a_bound(target_named: Callable[[str], Target], name: str, text: str) -> None:
    bounds = Engine([parse_spec(text, target_named(name)).logical], target_named(name)).bounds
    compared = 0
    for own in bounds.by_key.values():
        assert np.all(np.isinf(own.values[-1]))
        assert np.all(np.isinf(own.values[:, -1]))
        for number in range(0, len(own.tuples), EVERY):
            columns, limits = columns_of(bounds, own, number)
            for shape in range(own.space.count):
                values = own.values[shape, columns]
                for steps in (moved, looped, staged):
                    for cost in steps(bounds, own, number, shape, limits):
                        assert np.all(values <= cost), (str(own.space.key.op), number, shape, steps.__name__)
                        compared += 1
    assert compared
