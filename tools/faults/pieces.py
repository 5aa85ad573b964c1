"""Answers that are stored in the databases to break, and checks of what these must say of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import attrs
import numpy as np

from morello.db.answers import AnswerBlock, AnswerKind
from morello.db.store import SpecStore
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
def _specs(number: int, table: int) -> list[tuple[int, Spec]]:
    """Return the Specs of a block of a piece, with their rows."""
    shapes = _block(number, table).shapes.tolist()
    return [(i, Spec(attrs.evolve(LABELS[table], shape=tuple(shape)), tuple(FULL))) for i, shape in enumerate(shapes)]


def look(store: SpecStore, number: int) -> str:
    """Return how much of a piece is there: `all`, `some` or `none` of it. Raises Broken for a wrong answer."""
    answered = total = 0
    for table in range(len(LABELS)):
        block, own = _block(number, table), len(own_shapes(number))
        costs, steps = truth(block.shapes, table)
        for i, spec in _specs(number, table):
            found, cost = store.find(TARGET, spec), int(costs[i])
            exact = found is not None and found.kind == AnswerKind.EXACT
            if found and exact:
                require((found.cost, found.step) == (cost, STEPS[steps[i]]), "a wrong answer")
            elif found:
                require(found.kind == AnswerKind.LOWER and found.cost <= cost, "a wrong bound")
            if i < own:
                total += 1
                answered += exact or (found is not None and block.kinds[i] == AnswerKind.LOWER)
    return "none" if not answered else "all" if answered == total else "some"


def make(path: Path, pieces: int) -> None:
    """Make a database of that many pieces, all of it in one file."""
    store = SpecStore(path)
    for number in range(pieces):
        store.add(TARGET, piece(number))
    store.close()
