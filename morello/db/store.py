"""Solved Specs on disk: one SQLite file that any number of processes may use at once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from morello.db import measured, records
from morello.db.block import UNKNOWN, AnswerBlock, AnswerKind, Entry, Ints
from morello.db.coordinates import costs_of, of_limits, of_sizes, to_limits, to_sizes, volumes
from morello.db.file import File
from morello.db.fingerprint import fingerprint
from morello.db.gather import NewBoxes, gathered
from morello.db.labels import write
from morello.db.measured import Machine, Measured
from morello.db.programs import Programs, program, solved_blocks
from morello.db.records import Header, Print, Stored
from morello.db.rectangles import Boxes, joined, merged, settle
from morello.db.tree import Tree
from morello.errors import MorelloError
from morello.ir.impl import Impl
from morello.ir.limits import LimitGrid
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target

__all__ = ["AnswerBlock", "AnswerKind", "Conflict", "Entry", "SpecStore"]

#: Boxes kept in memory per thread; beyond that all are forgotten and read again when needed.
_KEPT = 4_000_000
#: Contradictions told of in a message.
_TOLD = 5


class Conflict(MorelloError):
    """Answers that contradict each other."""


@attrs.frozen(eq=False)
class Table:
    """The answers of one table, in memory. `step` of the boxes indexes `steps`."""

    boxes: Boxes
    tree: Tree
    steps: dict[int, str]


class _Seen(threading.local):
    """The tables that this thread has read, as of a version of the file."""

    def __init__(self) -> None:
        self.forget((0, 0))

    def forget(self, version: tuple[int, int]) -> None:
        self.version = version
        self.prints: dict[str, Print] = {}
        self.tables: dict[tuple[str, str], Table | None] = {}
        self.steps: dict[int, str] = {}
        #: Programs of others that check out, by fingerprint.
        self.programs: dict[str, Programs] = {}
        self.kept = 0


def entries_of(boxes: Boxes, shapes: Ints, grids: Sequence[LimitGrid], steps: dict[int, str]) -> list[Entry]:
    """Return the answer of each of N boxes to a Spec in it, given the shapes [N, rank] of those Specs."""
    costs = costs_of(boxes.numerator, boxes.denominator, volumes(shapes)).tolist()
    peaks = map(tuple, to_limits(boxes.low[:, shapes.shape[1] :], grids).tolist())
    columns = zip(costs, boxes.kind.tolist(), peaks, boxes.step.tolist(), boxes.foreign.tolist(), strict=True)
    return [
        Entry(cost, AnswerKind(kind), peak, steps.get(step), foreign) for cost, kind, peak, step, foreign in columns
    ]


def contradict(best: Entry, other: Entry) -> bool:
    """Return True if two answers to one Spec cannot both be right, the second no better known than the first."""
    if other.kind == AnswerKind.LOWER:
        return best.kind == AnswerKind.EXACT and other.cost > best.cost
    return (best.kind, best.cost) != (other.kind, other.cost)


class SpecStore:
    """Answers to Specs, by Spec and by what the target was when they were found.

    What another fingerprint answered is never used. May be used by several threads. Raises MorelloError for a file
    that cannot be used, when it is opened as well as later.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.file = File(path)
        self._seen = _Seen()

    def close(self) -> None:
        """Close this thread's connection; it is opened again when needed."""
        self.file.close()
        self.forget()

    def forget(self) -> None:
        """Let go of what this thread has read; it is read again when needed."""
        self._seen.forget((0, 0))

    def add(self, target: Target, blocks: Iterable[AnswerBlock], *, foreign: bool = False) -> None:
        """Store answers that search has found: all of them, or none if that fails.

        `foreign` ones rest on another's word. Raises Conflict if they contradict what is stored and was proven.
        """
        whose = records.print_of(target)
        fresh = gathered(blocks, target.grids, foreign=foreign)
        with self.file.writing():
            self._add(((whose, one) for one in fresh), searched=True)

    def add_boxes(self, batches: Iterable[tuple[Print, NewBoxes]]) -> None:
        """Store boxes under the fingerprints given with them. Raises Conflict if they contradict what is stored."""
        with self.file.writing():
            self._add(batches, searched=False)

    def replace(self, gone: Mapping[Header, set[tuple[int, int]]], proven: Iterable[tuple[Print, NewBoxes]]) -> None:
        """Take boxes out of tables, given by number and checksum, and store what was proven in place of them."""
        with self.file.writing():
            steps = records.read_steps(self.file)
            for old, rows in gone.items():
                for header in records.read_headers(self.file, old.print, old.labels):
                    stored = records.read_boxes(self.file, header, steps)
                    pairs = zip(stored.ids.tolist(), stored.crcs.tolist(), strict=True)
                    kept = stored.boxes.take(np.array([pair not in rows for pair in pairs], dtype=np.bool_))
                    origin = np.full(len(stored.ids), header.id), stored.ids
                    records.write_boxes(self.file, {header.id: stored}, kept, origin, steps)
            self._add(proven, searched=True)
        self.forget()

    def _add(self, batches: Iterable[tuple[Print, NewBoxes]], *, searched: bool) -> None:
        prints = {one.hash: one for one in records.read_prints(self.file)}
        steps = records.read_steps(self.file)
        for whose, fresh in batches:
            if whose.hash not in prints:
                prints[whose.hash] = records.write_print(self.file, whose)
            records.expect_same(self.file, prints[whose.hash], whose)
            self._write(prints[whose.hash], fresh, steps, searched)
            # What this connection writes does not change the version that it sees.
            self._seen.prints, self._seen.steps, self._seen.programs = {}, {}, {}
            for labels in fresh.labels:
                self._seen.tables.pop((whose.hash, labels), None)

    def find(self, target: Target, spec: Spec) -> Entry | None:
        """Return the answer to a Spec: EXACT or NONE if it is known, else the best LOWER bound, else None.

        Of another's word only EXACT answers count, which `program` proves to be costs that can be had.
        """
        table = self._table(target, spec.logical)
        if table is None:
            return None
        shape = np.array([spec.shape], dtype=np.int64)
        point = np.concatenate(
            [of_sizes(shape), of_limits(np.array([spec.limits], dtype=np.int64), target.grids)], axis=1
        )
        _, rows = table.tree.containing(point)
        if not len(rows):
            return None
        boxes = table.boxes.take(rows)
        boxes = boxes.take(~boxes.foreign | (boxes.kind == AnswerKind.EXACT))
        rows = rows[: len(boxes)]
        entries = entries_of(boxes, np.repeat(shape, len(rows), axis=0), target.grids, table.steps)

        def preference(entry: Entry) -> tuple[Any, ...]:
            # Answers before bounds, and high bounds first. Several answers are equal; what is left makes sure that
            # the choice does not depend on the order in which they came.
            bound = entry.kind == AnswerKind.LOWER
            return bound, entry.foreign, -entry.cost if bound else 0, entry.peak, entry.step or ""

        best = min(entries, key=preference, default=None)
        if best and any(contradict(best, one) for one in entries if one.foreign == best.foreign):
            raise self.file.damaged(f"answers to one Spec contradict each other: {best}")
        return best

    def has_any(self, target: Target) -> bool:
        """Return True if there are answers of a target as it is."""
        with self.file.reading():
            return any(one.hash == fingerprint(target) for one in records.read_prints(self.file))

    def boxes(self, target: Target, labels: LogicalSpec) -> Boxes | None:
        """Return all answers of a table; None if there are none."""
        table = self._table(target, labels)
        return table and table.boxes

    def known(
        self, target: Target, labels: LogicalSpec, shapes: Ints, limits: Ints
    ) -> tuple[Ints, npt.NDArray[np.int8]]:
        """Return costs and kinds of N cells of a table (shapes [N, rank], limits [N, levels] in bytes); -1: unknown."""
        costs, kinds, _ = self.believed(target, labels, shapes, limits)
        return costs, kinds

    def believed(
        self, target: Target, labels: LogicalSpec, shapes: Ints, limits: Ints
    ) -> tuple[Ints, npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        """Return costs and kinds as `known`, and which are another's word: costs of programs that check out."""
        costs = np.zeros(len(shapes), dtype=np.int64)
        kinds = np.full(len(shapes), UNKNOWN, dtype=np.int8)
        foreign = np.zeros(len(shapes), dtype=np.bool_)
        table = self._table(target, labels)
        if table is None:
            return costs, kinds, foreign
        points = np.concatenate([of_sizes(shapes), of_limits(limits, target.grids)], axis=1)
        cell, row = table.tree.containing(points)
        boxes = table.boxes
        told = boxes.foreign[row]
        claimed = np.unique(cell[told & (boxes.kind[row] == AnswerKind.EXACT)])
        cell, row = cell[~told], row[~told]
        cost = costs_of(boxes.numerator[row], boxes.denominator[row], volumes(shapes)[cell])
        kind = boxes.kind[row]
        order = np.lexsort((cost, kind != AnswerKind.LOWER, cell))
        self._expect_one_answer(cell[order], kind[order], cost[order])
        best = order[np.flatnonzero(np.diff(cell[order], append=-1))]
        costs[cell[best]] = cost[best]
        kinds[cell[best]] = kind[best]
        for i in claimed[(kinds[claimed] < 0) | (kinds[claimed] == AnswerKind.LOWER)].tolist():
            logical = attrs.evolve(labels, shape=tuple(shapes[i].tolist()))
            proven = self._proven(target, Spec(logical, tuple(limits[i].tolist())))
            if proven is not None:
                costs[i], kinds[i], foreign[i] = proven, AnswerKind.EXACT, True
        return costs, kinds, foreign

    def _expect_one_answer(self, cell: Ints, kind: npt.NDArray[np.int8], cost: Ints) -> None:
        """Raise Damaged where answers to one cell differ; they are sorted by cell, bounds first, then by cost."""
        same = cell[1:] == cell[:-1]
        settled = kind != AnswerKind.LOWER
        differ = (kind[1:] != kind[:-1]) | (cost[1:] != cost[:-1])
        beyond = ~settled[:-1] & (kind[1:] == AnswerKind.EXACT) & (cost[1:] < cost[:-1])
        if (same & ((settled[:-1] & differ) | beyond)).any():
            raise self.file.damaged("answers to one Spec contradict each other")

    def _proven(self, target: Target, spec: Spec) -> int | None:
        """Return the cost of a Spec's stored program; None if it is not there. Raises Damaged if it is wrong."""
        done = self._seen.programs.setdefault(fingerprint(target), {})
        found = program(spec, target, lambda one: self.find(target, one), self.path, done)
        return None if found is None else done[spec][1].cost  # pyright: ignore

    def program(self, target: Target, spec: Spec) -> Impl | None:
        """Return the program that solves a Spec; None unless it and all Specs on the way are solved."""
        return program(spec, target, lambda one: self.find(target, one), self.path)

    def measured(self, target: Target, spec: Spec) -> list[Measured]:
        """Return the programs that were measured to be the fastest of a Spec, one for each kind of machine."""
        return measured.every(self.file, target.name, spec)

    def keep_measured(self, target: Target, spec: Spec, best: Measured) -> None:
        """Store a program that was measured to be the fastest of a Spec."""
        measured.keep(self.file, target.name, spec, best)

    def forget_measured(self, target: Target, spec: Spec, machine: Machine) -> None:
        """Drop the program of a Spec that was measured on such a machine."""
        measured.forget(self.file, target.name, spec, machine)

    def remember(self, target: Target, impl: Impl) -> None:
        """Store an optimal program: every Spec in it is solved."""
        self.add(target, solved_blocks(impl))

    def _table(self, target: Target, labels: LogicalSpec) -> Table | None:
        """Return the table that a Spec belongs to; None if nothing is known of it."""
        # The version is that of the state which is read, so nothing is taken for newer than it is.
        with self.file.reading():
            self._catch_up()
            seen = self._seen
            key = fingerprint(target), write(labels)
            if key not in seen.tables:
                if not seen.prints:
                    seen.prints = {one.hash: one for one in records.read_prints(self.file)}
                    if key[0] in seen.prints:
                        records.expect_same(self.file, seen.prints[key[0]], records.print_of(target))
                headers = records.read_headers(self.file, seen.prints[key[0]], key[1]) if key[0] in seen.prints else []
                if headers and not seen.steps:
                    seen.steps = records.read_steps(self.file)
                seen.tables[key] = self._load(headers[0], seen.steps) if headers else None
            return seen.tables[key]

    def _load(self, header: Header, steps: dict[int, str]) -> Table:
        boxes = records.read_boxes(self.file, header, steps).boxes
        self._seen.kept += len(boxes)
        return Table(boxes, Tree(boxes.low, boxes.high), steps)

    def _catch_up(self) -> None:
        """Forget what was read if another process or thread has written since, or if it is too much."""
        version = self.file.version()
        if version != self._seen.version or self._seen.kept > _KEPT:
            self._seen.forget(version)

    def _write(self, whose: Print, fresh: NewBoxes, steps: dict[int, str], searched: bool) -> None:
        """Merge boxes into the tables they belong to."""
        ids = records.step_ids(self.file, fresh.steps, steps)
        tables: dict[int, Stored] = {}
        numbers = []
        stored: list[Boxes] = []
        for labels in fresh.labels:
            header = next(iter(records.read_headers(self.file, whose, labels)), None)
            stored_table = (
                records.read_boxes(self.file, header, steps)
                if header
                else Stored.empty(records.new_header(self.file, whose, labels))
            )
            numbers.append(stored_table.header.id)
            tables[stored_table.header.id] = stored_table
            if len(stored_table.boxes):
                stored.append(stored_table.boxes)
        boxes = attrs.evolve(
            fresh.boxes,
            table=np.array(numbers, dtype=np.int64)[fresh.boxes.table],
            step=np.where(fresh.boxes.step < 0, -1, ids[fresh.boxes.step] if len(ids) else -1),
        )
        origin = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        if stored:
            old = joined(stored)
            origin = old.table, np.concatenate([tables[int(one.table[0])].ids for one in stored])
            old = attrs.evolve(old, row=np.arange(len(old)))
            boxes = merged(joined([old, boxes]), fresh.rank)
        boxes = boxes.take(np.argsort(boxes.table, kind="stable"))
        new = boxes.row < 0
        kept, contradictions = settle(boxes, fresh.rank, new, new & (~boxes.foreign | searched))
        if len(contradictions):
            raise self._conflict(boxes, contradictions, tables, fresh.rank)
        records.write_boxes(self.file, tables, kept, origin, steps)

    def _conflict(self, boxes: Boxes, pairs: Ints, tables: dict[int, Stored], rank: int) -> Conflict:
        """Say of the first few pairs of contradicting boxes where they meet and what they say."""
        told = []
        for i, j in pairs[:_TOLD].tolist():
            header = tables[int(boxes.table[i])].header
            meeting = np.maximum(boxes.low[i], boxes.low[j])[None]
            sizes, limits = to_sizes(meeting[:, :rank]), to_limits(meeting[:, rank:], header.print.grids)
            here = volumes(sizes)
            costs = [costs_of(boxes.numerator[[k]], boxes.denominator[[k]], here)[0] for k in (i, j)]
            said = [f"{AnswerKind(int(boxes.kind[k])).name} {cost}" for k, cost in zip((i, j), costs, strict=True)]
            shape = "×".join(map(str, sizes[0].tolist()))
            told.append(f"{header.labels}, {shape} within {limits[0].tolist()}: {said[0]} and {said[1]}")
        return Conflict(
            f"database {self.path}: {len(pairs)} answers contradict others, so nothing was stored:\n  "
            + "\n  ".join(told),
            "`morello db verify` says which of the files is wrong",
        )
