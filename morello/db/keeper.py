"""Keeps what search on blocks solves in a database, and lets it go on from what is there."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import numpy.typing as npt

from morello.db.block import LARGEST_COST, AnswerBlock, AnswerKind
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.solve.deepening import Rounds
from morello.search.solve.engine import Engine
from morello.search.solve.export import Solved, by_table, bytes_of, solved

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Seconds between two times that a search which goes on is saved.
_PAUSE = 10.0


class StoreKeeper:
    """A `Keeper` of `morello.search.block_search` that uses a SpecStore."""

    def __init__(self, store: SpecStore):
        self.store = store
        self._saved: WeakKeyDictionary[Engine, npt.NDArray[np.bool_]] = WeakKeyDictionary()
        #: Engines that rest on another's word, so that what they find is no better proven.
        self._doubtful: WeakSet[Engine] = WeakSet()
        #: Whether search was told anything.
        self.used = False
        self._failed = False
        self._last = time.monotonic()
        self._target: Target

    def attach(self, engine: Engine) -> None:
        """Let an engine ask the store about every cell that it meets."""

        def recall(table: Ints, shape: Ints, limits: Ints) -> tuple[Floats, Floats]:
            return self._recall(engine, table, shape, limits)

        def peak(cell: int) -> Sequence[int] | None:
            limits = bytes_of(engine, engine.cells.limits.values[cell : cell + 1])[0].tolist()
            entry = self.store.find(engine.target, Spec(engine.directory.logical(cell), tuple(limits)))
            return [int(one) for one in entry.peak] if entry and entry.kind == AnswerKind.EXACT else None

        engine.cells.recall, engine.cells.recall_peak = recall, peak
        self._target = engine.target

    def program(self, spec: Spec) -> Impl | None:
        """Return a program that is stored."""
        return self.store.program(self._target, spec)

    def save(self, engine: Engine, rounds: Rounds, *, final: bool) -> None:
        """Store cells solved since the last time, in one transaction. What is in progress waits for a while.

        An answer is worth having also where it cannot be stored, so that is a warning, and nothing more is stored.
        """
        if self._failed or (not final and time.monotonic() - self._last < _PAUSE):
            return
        try:
            self._save(engine, rounds)
        except MorelloError as error:
            self._failed = True
            warnings.warn(f"what was found is not saved: {error}", NotSaved, stacklevel=2)

    def _save(self, engine: Engine, rounds: Rounds) -> None:
        done = engine.cells.solved
        engine.cells.remember()
        done |= engine.cells.recalled.values
        before = self._saved.get(engine, np.zeros(1, dtype=np.bool_))
        fresh = done.copy()
        fresh[: len(before)] &= ~before
        fresh &= ~engine.cells.recalled.values
        # Costs that are not counted exactly are no answers.
        low = engine.cells.low.values
        fresh &= (low <= LARGEST_COST) | (low == np.inf)
        fresh[0] = False
        cells = np.flatnonzero(fresh)
        if len(cells):
            found = map(block_of, solved(rounds, cells))
            self.store.add(engine.target, found, foreign=engine in self._doubtful)
            # Where it is not known yet which program is chosen, that waits for the next time.
            unknown = (rounds.choices.peaks(cells)[:, 0] < 0) & (low[cells] < np.inf)
            done[cells[unknown]] = False
        self._saved[engine] = done
        self._last = time.monotonic()

    def _recall(self, engine: Engine, table: Ints, shape: Ints, limits: Ints) -> tuple[Floats, Floats]:
        """Between which costs cells must be, as far as the store knows: [0, infinity] where it does not."""
        low, high = np.zeros(len(table)), np.full(len(table), np.inf)
        for number, cells in by_table(table):
            labels = engine.directory.labels(number)
            if not self.store.has(engine.target, labels):
                continue
            space = engine.tables.spaces[int(engine.tables.space.values[number])].space
            sizes = space.sizes[:, shape[cells]].T
            given = bytes_of(engine, limits[cells])
            costs, kinds, foreign = self.store.believed(engine.target, labels, sizes, given)
            if foreign.any():
                self._doubtful.add(engine)
            self.used = self.used or bool((kinds >= 0).any())
            low[cells] = np.where(kinds == AnswerKind.NONE, np.inf, np.where(kinds >= 0, costs, 0))
            high[cells] = np.where(kinds == AnswerKind.EXACT, costs, np.inf)
        return low, high


def block_of(answers: Solved) -> AnswerBlock:
    """Return the answers of search as the store takes them."""
    none = answers.costs < 0
    kinds = np.where(none, AnswerKind.NONE, AnswerKind.EXACT).astype(np.int8)
    return AnswerBlock(
        labels=answers.labels,
        shapes=answers.shapes,
        limits=answers.limits,
        peaks=answers.peaks,
        costs=np.where(none, 0, answers.costs),
        kinds=kinds,
        steps=answers.steps,
        step=answers.step.astype(np.int32),
    )
