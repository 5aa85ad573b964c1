"""Answers that are stored in the databases to break, and checks of what these must say of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import attrs
import numpy as np

from morello.db.store import AnswerBlock, AnswerKind, SpecStore
from morello.frontend.parser import parse_spec
from morello.ir.spec import Spec
from morello.plugins.registry import installed

TARGET = installed().target("reference_c")
TEXTS = ("FillZero(4×8, {}, serial)", "FillZero(4×8, {})", "Move(4×8, {}, {}, serial)")
FULL = TARGET.full_limits()
LEVEL = TARGET.levels[-1].name
LABELS = [parse_spec(text.format(LEVEL, LEVEL), TARGET).logical for text in TEXTS]
STEPS = ("tile [1, 1]", "tile [0, 1]", "tile [1, 0]")


class Broken(AssertionError):
    """A law that a fault has broken: an answer that is wrong, or something committed that is lost."""


def require(holds: object, what: str) -> None:
    """Raise Broken unless a law holds."""
    if not holds:
        raise Broken(what)


def truth(shapes: np.ndarray, table: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the optimal costs [N] of Specs of a table (shapes [N, rank]), and the numbers of their steps [N]."""
    step = (shapes[:, 0] + table) % len(STEPS)
    return shapes.prod(axis=1) * (1 + step), step


def piece(number: int) -> list[AnswerBlock]:
    """Return what one transaction stores: Specs that no other piece has, and some that many have."""
    return [_block(number, table) for table in range(len(LABELS))]


def own_shapes(number: int) -> np.ndarray:
    """Return the shapes [N, rank] of the Specs that only this piece has."""
    return np.array([[1 << bit, 2 * number + 3] for bit in range(8)], dtype=np.int64)


@cache
def _block(number: int, table: int) -> AnswerBlock:
    common = np.array([[1 << (number + bit) % 8, 1 << number % 11] for bit in range(4)], dtype=np.int64)
    shapes = np.concatenate([own_shapes(number), common])
    costs, step = truth(shapes, table)
    kinds = np.where(np.arange(len(shapes)) % 4 == 3, AnswerKind.LOWER, AnswerKind.EXACT).astype(np.int8)
    nothing = np.zeros((len(shapes), len(FULL)), dtype=np.int64)
    exact = kinds == AnswerKind.EXACT
    step = np.where(exact, step, -1).astype(np.int32)
    limits = nothing + np.array(FULL, dtype=np.int64)
    return AnswerBlock(LABELS[table], shapes, limits, nothing, np.where(exact, costs, costs - 1), kinds, STEPS, step)


@cache
def _asked(number: int, table: int) -> list[tuple[int, Spec]]:
    """Some rows of a block of a piece, and their Specs."""
    shapes = own_shapes(number)
    specs = [attrs.evolve(LABELS[table], shape=tuple(shape)) for shape in shapes.tolist()]
    return [(i, TARGET.spec(specs[i])) for i in range(0, len(specs), 3)]


def look(store: SpecStore, number: int) -> str:
    """Return how much of a piece is there: `all`, `some` or `none` of it. Raises Broken for a wrong answer."""
    answered = total = 0
    for table, labels in enumerate(LABELS):
        block = _block(number, table)
        costs, kinds = store.known(TARGET, labels, block.shapes, block.limits)
        right, step = truth(block.shapes, table)
        require((costs[kinds == AnswerKind.EXACT] == right[kinds == AnswerKind.EXACT]).all(), "a wrong cost")
        require((costs[kinds == AnswerKind.LOWER] <= right[kinds == AnswerKind.LOWER]).all(), "a wrong bound")
        require(not (kinds == AnswerKind.NONE).any(), "a program denied")
        own = len(own_shapes(number))
        exact = block.kinds[:own] == AnswerKind.EXACT
        answered += int((kinds[:own][exact] == AnswerKind.EXACT).sum()) + int((kinds[:own][~exact] >= 0).sum())
        total += own
        for i, spec in _asked(number, table):
            entry = store.find(TARGET, spec)
            if entry and entry.kind == AnswerKind.EXACT:
                require((entry.cost, entry.step) == (right[i], STEPS[step[i]]), "a wrong entry")
    return "none" if not answered else "all" if answered == total else "some"


def make(path: Path, pieces: int) -> None:
    """Make a database of that many pieces, all of it in one file."""
    store = SpecStore(path)
    for number in range(pieces):
        store.add(TARGET, piece(number))
    store.close()
