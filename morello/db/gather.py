"""Blocks of answers become boxes, merged as far as they can be without knowing what is stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np

from morello.db.block import LARGEST_COST, AnswerBlock, AnswerKind
from morello.db.coordinates import of_limits, of_sizes, reduced, volumes
from morello.db.labels import write
from morello.db.rectangles import Boxes, merged
from morello.ir.limits import LimitGrid


@attrs.frozen(eq=False)
class NewBoxes:
    """Boxes that are not stored yet, of tables of one rank. `table` and `step` index `labels` and `steps`."""

    rank: int
    labels: list[str]
    steps: list[str]
    boxes: Boxes


def gathered(blocks: Iterable[AnswerBlock], grids: Sequence[LimitGrid], *, foreign: bool = False) -> list[NewBoxes]:
    """Return boxes for the answers of blocks, one group per rank. Raises ValueError for blocks that make no sense."""
    groups: dict[int, list[AnswerBlock]] = defaultdict(list)
    for block in blocks:
        if len(block.shapes):
            groups[len(block.labels.shape)].append(block)
    return [_group(rank, group, grids, foreign) for rank, group in sorted(groups.items())]


def _group(rank: int, blocks: list[AnswerBlock], grids: Sequence[LimitGrid], foreign: bool) -> NewBoxes:
    tables: dict[str, int] = {}
    steps: dict[str, int] = {}
    table = [tables.setdefault(write(block.labels), len(tables)) for block in blocks]
    counts = [len(block.shapes) for block in blocks]
    # Steps are numbered per block: `numbers[offset of its block + step]` is the step's number here.
    numbers = [steps.setdefault(text, len(steps)) for block in blocks for text in block.steps]
    sizes = [len(block.steps) for block in blocks]
    offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), counts)
    step = np.concatenate([block.step for block in blocks]).astype(np.int64)
    kinds = np.concatenate([block.kinds for block in blocks]).astype(np.int8)
    exact = kinds == AnswerKind.EXACT
    shapes = np.concatenate([block.shapes for block in blocks])
    limits = np.concatenate([block.limits for block in blocks])
    peaks = np.concatenate([block.peaks for block in blocks])
    width = (len(kinds), len(grids))
    _check({f"limits and peaks are [N, {len(grids)}]": width != limits.shape or width != peaks.shape})
    peaks = np.where(exact[:, None], peaks, 0)
    costs = np.where(kinds == AnswerKind.NONE, 0, np.concatenate([block.costs for block in blocks]))
    _check(
        {
            "sizes are at least 1": shapes < 1,
            "kinds are EXACT, LOWER or NONE": (kinds < 0) | (kinds > max(AnswerKind)),
            f"costs are from 0 to {LARGEST_COST:,}": (costs < 0) | (costs > LARGEST_COST),
            "the peak of an EXACT answer is within its limits": peaks > limits,
            "an EXACT answer has a step": exact & ((step < 0) | (step >= np.repeat(sizes, counts))),
        }
    )
    step = np.where(exact, np.array([*numbers, -1], dtype=np.int64)[np.where(exact, offsets + step, -1)], -1)
    numerator, denominator = reduced(costs, volumes(shapes))
    sides = of_sizes(shapes)
    boxes = Boxes(
        np.repeat(np.array(table, dtype=np.int64), counts),
        np.concatenate([sides, of_limits(peaks, grids)], axis=1),
        np.concatenate([sides, of_limits(limits, grids)], axis=1),
        kinds,
        numerator,
        denominator,
        step,
        np.full(len(kinds), -1, dtype=np.int64),
        np.full(len(kinds), foreign),
    )
    return NewBoxes(rank, list(tables), list(steps), merged(boxes, rank))


def _check(faults: dict[str, Any]) -> None:
    """Raise ValueError with the first rule that is broken anywhere."""
    for rule, broken in faults.items():
        if np.any(broken):
            raise ValueError(f"blocks break the rule: {rule}")
