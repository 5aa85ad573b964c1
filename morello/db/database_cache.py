"""A `SolutionCache` of search that is a database."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from weakref import WeakKeyDictionary, WeakSet

import attrs
import numpy as np
import numpy.typing as npt

from morello.db import unproven
from morello.db.block import LARGEST_COST, AnswerBlock, AnswerKind
from morello.db.coordinates import of_limits, of_sizes, volumes
from morello.db.store import SpecStore
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.incumbents import Incumbent
from morello.search.solve.core import Suspended
from morello.search.solve.engine import Engine
from morello.search.solve.export import Solved, solved
from morello.search.solve.solver import Solver
from morello.search.tables.shapes import Key, Space

#: Seconds between two times that a search which goes on is saved.
_PAUSE = 10.0


class DatabaseCache:
    """A `SolutionCache` that stores answers in a SpecStore."""

    def __init__(self, store: SpecStore):
        self.store = store
        self._saved: WeakKeyDictionary[Engine, npt.NDArray[np.bool_]] = WeakKeyDictionary()
        #: Engines that rest on another's word, so that what they find is no better proven.
        self._doubtful: WeakSet[Engine] = WeakSet()
        #: Per engine and space, where sizes and limits lie among the boxes of answers.
        self._places: WeakKeyDictionary[Engine, dict[Key, dict[str, object]]] = WeakKeyDictionary()
        #: Whether search was told anything.
        self.used = False
        self._failed = False
        self._last = self._noted = time.monotonic()
        self._target: Target

    def attach(self, target: Target) -> bool:
        """Return whether there are answers for a target, so that an engine should ask."""
        self._target = target
        return self.store.has_any(target)

    def program(self, spec: Spec) -> Impl | None:
        """Return a program that is stored."""
        return self.store.program(self._target, spec)

    def answer(self, engine: Engine, request: Suspended) -> None:
        """Give an engine what the store knows."""
        table = int(engine.core.nodes(request.node, 1).table[0])
        if request.what == "answers":
            engine.core.set_answers(table, self._answers(engine, table))
        elif request.what == "assumption":
            self._believe(engine, request.node)
        else:
            entry = self.store.find(engine.target, _spec_of(engine, request.node))
            peak = [int(one) for one in entry.peak] if entry and entry.kind == AnswerKind.EXACT else None
            engine.core.set_program(request.node, engine.packed_limits.least(peak) if peak else None)

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        """Store cells solved since the last time, in one transaction. What is in progress waits for a while.

        An answer is worth having also where it cannot be stored, so that is a warning, and nothing more is stored.
        """
        self.used = self.used or engine.core.progress.recalled > 0
        if final or time.monotonic() - self._last >= _PAUSE:
            self._try(lambda: self._save(engine, solver))
            self._last = time.monotonic()

    def save_bounds(self, engine: Engine, solver: Solver) -> bool:
        """Store now and then what is proven of the goals, which takes search nowhere else."""
        if time.monotonic() - self._noted < _PAUSE:
            return False
        self._try(lambda: self._store(engine, bounds_of(solver)))
        self._noted = time.monotonic()
        return True

    def store_incumbent(self, found: Incumbent) -> None:
        """Store a program that is not proven to be the one that is chosen, unless it may rest on another's word."""
        if not self._doubtful:
            self._try(lambda: unproven.keep(self.store.file, self._target, found))

    def drop_incumbent(self, spec: Spec) -> None:
        """Drop what `keep` stored of a Spec that is solved."""
        self._try(lambda: unproven.drop(self.store.file, self._target, spec))

    def incumbent(self, spec: Spec) -> Incumbent | None:
        """Return the best program so far that is stored."""
        found, entry = unproven.find(self.store.file, self._target, spec), self.store.find(self._target, spec)
        if found and entry and entry.kind == AnswerKind.LOWER:
            # Another search may have proven more.
            return attrs.evolve(found, low=min(max(found.low, entry.cost), found.cost))
        return found

    def _try(self, work: Callable[[], None]) -> None:
        """Do some work that stores something, unless that has failed before."""
        if self._failed:
            return
        try:
            work()
        except MorelloError as error:
            self._failed = True
            warnings.warn(f"what was found is not saved: {error}", NotSaved, stacklevel=2)

    def _save(self, engine: Engine, solver: Solver) -> None:
        snapshot = engine.core.nodes()
        fresh = snapshot.solved & ~snapshot.recalled
        before = self._saved.get(engine, np.zeros(1, dtype=np.bool_))
        fresh[: len(before)] &= ~before
        # Costs that are not counted exactly are no answers.
        fresh &= (snapshot.low <= LARGEST_COST) | (snapshot.low == np.inf)
        fresh[0] = False
        # Where it is not known yet which program is chosen, that waits for the next time.
        cells, found = solved(solver, snapshot, np.flatnonzero(fresh))
        self._store(engine, chain(map(block_of, found), bounds_of(solver)))
        done = np.zeros(len(snapshot.low), dtype=np.bool_)
        done[: len(before)] = before
        done[cells] = True
        self._saved[engine] = done

    def _store(self, engine: Engine, blocks: Iterator[AnswerBlock]) -> None:
        if first := next(blocks, None):
            self.store.add(engine.target, chain([first], blocks), foreign=engine in self._doubtful)

    def _answers(self, engine: Engine, table: int) -> dict[str, object] | None:
        """Return what the store knows of a table, as search wants it."""
        boxes = self.store.boxes(engine.target, engine.directory.labels(table))
        if boxes is None:
            return None
        space = engine.directory.space_of(table)
        places = self._places.setdefault(engine, {})
        if space.key not in places:
            places[space.key] = _places_in(engine, space)
        return {
            **places[space.key],
            "count": len(boxes),
            "low": boxes.low,
            "high": boxes.high,
            "kind": boxes.kind,
            "foreign": boxes.foreign,
            "numerator": boxes.numerator,
            "denominator": boxes.denominator,
        }

    def _believe(self, engine: Engine, cell: int) -> None:
        """Let an engine go by what of several answers to a cell is to be believed. Raises Damaged."""
        spec = _spec_of(engine, cell)
        shapes, limits = (np.array([row], dtype=np.int64) for row in (spec.shape, spec.limits))
        costs, kinds, foreign = self.store.believed(engine.target, spec.logical, shapes, limits)
        if foreign[0]:
            self._doubtful.add(engine)
        if kinds[0] >= 0:
            cost = np.inf if kinds[0] == AnswerKind.NONE else float(costs[0])
            engine.core.assume(cell, cost, cost if kinds[0] == AnswerKind.EXACT else np.inf)


def _spec_of(engine: Engine, cell: int) -> Spec:
    (limits,) = engine.packed_limits.bytes(engine.core.nodes(cell, 1).limits).tolist()
    return Spec(engine.directory.logical(cell), tuple(limits))


def _places_in(engine: Engine, space: Space) -> dict[str, object]:
    """Return the coordinates of all shapes of a space and of all limits, and the shapes' volumes."""
    grids = engine.target.grids
    limit_at: list[npt.NDArray[np.int64]] = []
    for level, column in enumerate(engine.packed_limits.values):
        limits = np.zeros((len(column), len(grids)), dtype=np.int64)
        limits[:, level] = column
        limit_at.append(of_limits(limits, grids)[:, level])
    return {
        "rank": len(space.sizes),
        "size_at": [*of_sizes(space.sizes)],
        "limit_at": limit_at,
        "volume": volumes(space.sizes.T),
    }


def bounds_of(solver: Solver) -> Iterator[AnswerBlock]:
    """Yield what is proven that the goals cost at least which are not solved yet."""
    for cell in solver.goals:
        low, high = solver.core.costs(cell)
        if low < high and 1 <= low <= LARGEST_COST:
            spec = _spec_of(solver.engine, cell)
            shapes, limits = (np.array([row], dtype=np.int64) for row in (spec.shape, spec.limits))
            kinds, step = np.array([AnswerKind.LOWER], dtype=np.int8), np.array([-1], dtype=np.int32)
            costs = np.array([int(low)], dtype=np.int64)
            yield AnswerBlock(spec.logical, shapes, limits, np.zeros_like(limits), costs, kinds, (), step)


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
