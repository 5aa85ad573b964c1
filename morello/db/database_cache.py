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

from morello.db.answers import LARGEST_COST, AnswerBlock, AnswerKind
from morello.db.boxes import of_limits, of_sizes, volumes
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

#: Seconds between two times that a running search is saved.
_PAUSE = 10.0


class DatabaseCache:
    """A `SolutionCache` that stores answers in a SpecStore."""

    def __init__(self, store: SpecStore):
        self.store = store
        #: Cells that were saved, by engine.
        self._saved: WeakKeyDictionary[Engine, npt.NDArray[np.bool_]] = WeakKeyDictionary()
        #: Engines that use unverified answers, so that all they find is unverified.
        self._unverified: WeakSet[Engine] = WeakSet()
        #: Coordinates of the sizes and limits of each space, by engine.
        self._coordinates: WeakKeyDictionary[Engine, dict[Key, dict[str, object]]] = WeakKeyDictionary()
        #: Whether search has got any answer.
        self.used = False
        self._verified_only = False
        self._failed = False
        self._saved_at = self._bounds_saved_at = time.monotonic()
        self._target: Target

    @property
    def unverified(self) -> bool:
        return bool(self._unverified)

    def attach(self, target: Target, *, verified_only: bool = False) -> bool:
        self._target, self._verified_only = target, verified_only
        return self.store.has_any(target)

    def program(self, spec: Spec) -> Impl | None:
        return self.store.program(self._target, spec)

    def answer(self, engine: Engine, request: Suspended) -> None:
        """Pass to an engine the stored answers of a table, the answer to a cell, or the peak of its program."""
        table = int(engine.core.nodes(request.node, 1).table[0])
        if request.what == "answers":
            engine.core.set_answers(table, self._answers(engine, table))
        elif request.what == "assumption":
            self._pass_answer(engine, request.node)
        else:
            found = self.store.find(engine.target, engine.directory.spec(request.node))
            peak = [int(one) for one in found.peak] if found and found.kind == AnswerKind.EXACT else None
            engine.core.set_program(request.node, engine.limit_codes.least(peak) if peak else None)

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        """Store the cells solved since the last time, in one transaction, if that was ten seconds ago or `final`.

        An answer that cannot be stored is a NotSaved warning, after which nothing more is stored.
        """
        self.used = self.used or engine.core.progress.recalled > 0
        if final or time.monotonic() - self._saved_at >= _PAUSE:
            self._try(lambda: self._save(engine, solver))
            self._saved_at = time.monotonic()

    def save_bounds(self, engine: Engine, solver: Solver) -> bool:
        if time.monotonic() - self._bounds_saved_at < _PAUSE:
            return False
        self._try(lambda: self._store(engine, bounds_of(solver)))
        self._bounds_saved_at = time.monotonic()
        return True

    def store_incumbent(self, found: Incumbent) -> None:
        """Store a program whose optimality is unproven, unless its bound may rest on unverified answers."""
        if not self._unverified:
            self._try(lambda: self.store.store_incumbent(self._target, found))

    def drop_incumbent(self, spec: Spec) -> None:
        self._try(lambda: self.store.drop_incumbent(self._target, spec))

    def incumbent(self, spec: Spec) -> Incumbent | None:
        found = self.store.incumbent(self._target, spec)
        answer = self.store.find(self._target, spec)
        if found and answer and answer.kind == AnswerKind.LOWER:
            # Another search may have proven more.
            return attrs.evolve(found, low=min(max(found.low, answer.cost), found.cost))
        return found

    def _try(self, work: Callable[[], None]) -> None:
        """Do work that stores something, unless such work has failed before."""
        if self._failed:
            return
        try:
            work()
        except MorelloError as error:
            self._failed = True
            warnings.warn(f"answers are not saved: {error}", NotSaved, stacklevel=2)

    def _save(self, engine: Engine, solver: Solver) -> None:
        snapshot = engine.core.nodes()
        fresh = snapshot.solved & ~snapshot.recalled
        before = self._saved.get(engine, np.zeros(1, dtype=np.bool_))
        fresh[: len(before)] &= ~before
        # Larger costs are not exact.
        fresh &= (snapshot.low <= LARGEST_COST) | (snapshot.low == np.inf)
        fresh[0] = False
        # Cells whose program is not chosen yet are left for the next time.
        cells, found = solved(solver, snapshot, np.flatnonzero(fresh))
        self._store(engine, chain(map(block_of, found), bounds_of(solver)))
        done = np.zeros(len(snapshot.low), dtype=np.bool_)
        done[: len(before)] = before
        done[cells] = True
        self._saved[engine] = done

    def _store(self, engine: Engine, blocks: Iterator[AnswerBlock]) -> None:
        if first := next(blocks, None):
            self.store.add(engine.target, chain([first], blocks), unverified=engine in self._unverified)

    def _answers(self, engine: Engine, table: int) -> dict[str, object] | None:
        """Return the stored answers of a table as the arrays that search takes."""
        stored = self.store.table(engine.target, engine.directory.labels(table))
        if stored is None:
            return None
        boxes, space = stored.boxes, engine.directory.space_of(table)
        if self._verified_only:
            boxes = boxes.take(~boxes.unverified)
        coordinates = self._coordinates.setdefault(engine, {})
        if space.key not in coordinates:
            coordinates[space.key] = _coordinates_of(engine, space)
        return {
            **coordinates[space.key],
            "count": len(boxes),
            "low": boxes.low,
            "high": boxes.high,
            "kind": boxes.kind,
            "unverified": boxes.unverified,
            "numerator": boxes.numerator,
            "denominator": boxes.denominator,
        }

    def _pass_answer(self, engine: Engine, cell: int) -> None:
        """Pass the best answer to a cell. An unverified one counts only if its program can be built. Raises Damaged."""
        spec = engine.directory.spec(cell)
        for found in self.store.answers(engine.target, spec):
            if found.unverified and (self._verified_only or self.store.program(engine.target, spec) is None):
                continue
            if found.unverified:
                self._unverified.add(engine)
            cost = np.inf if found.kind == AnswerKind.NONE else float(found.cost)
            engine.core.assume(cell, cost, cost if found.kind == AnswerKind.EXACT else np.inf)
            return


def _coordinates_of(engine: Engine, space: Space) -> dict[str, object]:
    """Return the coordinates of all shapes of a space and of all limits, and the volumes of the shapes."""
    grids = engine.target.grids
    limit_at: list[npt.NDArray[np.int64]] = []
    for level, column in enumerate(engine.limit_codes.values):
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
    """Yield the proven lower bounds of goals that are not solved."""
    for cell in solver.goals:
        low, high = solver.core.costs(cell)
        if low < high and 1 <= low <= LARGEST_COST:
            spec = solver.engine.directory.spec(cell)
            shapes, limits = (np.array([row], dtype=np.int64) for row in (spec.shape, spec.limits))
            kinds, step = np.array([AnswerKind.LOWER], dtype=np.int8), np.array([-1], dtype=np.int32)
            costs = np.array([int(low)], dtype=np.int64)
            yield AnswerBlock(spec.logical, shapes, limits, np.zeros_like(limits), costs, kinds, (), step)


def block_of(answers: Solved) -> AnswerBlock:
    """Return answers of search as a block."""
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
