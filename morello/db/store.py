"""Answers to Specs on disk: one SQLite file that any number of processes may use at once."""

from __future__ import annotations

import functools
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import attrs
import numpy as np

from morello.db import measured
from morello.db.answers import AnswerBlock, AnswerKind, SpecAnswer
from morello.db.boxes import MOST_PAIRS, Boxes, of_limits, of_sizes, to_limits, to_sizes
from morello.db.file import DatabaseFile
from morello.db.fingerprint import fingerprint
from morello.db.labels import write
from morello.db.measured import MachineKind, Measured
from morello.db.program_texts import drop_incumbent, find_incumbent, store_incumbent
from morello.db.programs import Programs, program, solved_blocks
from morello.db.tables import AnswerTable, FingerprintedTarget, merged_tables, read_tables, table_of, write_tables
from morello.errors import MorelloError, NotSaved
from morello.ir.impl import Impl
from morello.ir.spec import LogicalSpec, Spec
from morello.kernels.target import Target

if TYPE_CHECKING:
    from morello.search.incumbents import Incumbent

_P = ParamSpec("_P")
_T = TypeVar("_T")
_S = TypeVar("_S", bound="SpecStore")

#: Boxes kept in memory per thread; beyond that all are dropped, and read again when needed.
_MOST_CACHED = 4_000_000
#: Contradictions listed in a message.
_MOST_LISTED = 5


class Conflict(MorelloError):
    """Answers that contradict each other."""


class _Cache(threading.local):
    """The tables that this thread has read, of one version of the file."""

    def __init__(self) -> None:
        self.clear((0, 0))

    def clear(self, version: tuple[int, int]) -> None:
        self.version = version
        self.tables: dict[tuple[str, str], AnswerTable | None] = {}
        #: Programs built from stored steps, by fingerprint.
        self.programs: dict[str, Programs] = defaultdict(dict)
        self.boxes = 0


def optional(
    otherwise: Callable[[], Any],
) -> Callable[[Callable[Concatenate[_S, _P], _T]], Callable[Concatenate[_S, _P], _T]]:
    """Let a method of a tolerant store return `otherwise()` once any such method has failed."""

    def decorate(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
        @functools.wraps(method)
        def call(store: _S, *args: _P.args, **options: _P.kwargs) -> _T:
            if store.failed:
                return otherwise()
            try:
                return method(store, *args, **options)
            except MorelloError as error:
                if not store.tolerant:
                    raise
                store.failed = True
                warnings.warn(f"going on without a database: {error}", NotSaved, stacklevel=2)
                return otherwise()

        return call

    return decorate


class SpecStore:
    """Answers to Specs, by Spec and by the fingerprint of the target. Answers of other fingerprints are never used.

    May be used by several threads. Raises MorelloError for a file that cannot be used, here and in each method. In a
    `tolerant` store, the first error of a method is a NotSaved warning; it stores and finds nothing from then on.
    `address` opens it in another process, `name` is its name in messages.
    """

    def __init__(self, path: str | Path, *, tolerant: bool = False):
        self.path, self.tolerant, self.failed = Path(path), tolerant, False
        self.address = self.name = str(self.path)
        self.file = DatabaseFile(path)
        self._cache = _Cache()

    def close(self) -> None:
        """Close this thread's connection; it is opened again when needed."""
        self.file.close()
        self.clear_cache()

    def clear_cache(self) -> None:
        """Drop the tables that this thread has read."""
        self._cache.clear((0, 0))

    def prepare(self, target: Target, specs: Iterable[Spec]) -> None:
        """Copy answers from a server that may help to solve Specs, before a snapshot. A file has all of its answers."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Within a block, let this thread find answers stored before, and none stored meanwhile."""
        with ExitStack() as stack:
            self._begin(stack)
            yield

    @optional(lambda: None)
    def _begin(self, stack: ExitStack) -> None:
        stack.enter_context(self.file.snapshot())

    @optional(lambda: None)
    def add(self, target: Target, blocks: Iterable[AnswerBlock], *, unverified: bool = False) -> None:
        """Store answers that search has found: all of them, or none if that fails.

        `unverified` ones rest on imported answers. Raises Conflict if they contradict stored answers that do not.
        """
        owner = FingerprintedTarget.of(target)
        tables = [table_of(block, owner, unverified=unverified) for block in blocks if len(block.shapes)]
        self.add_tables(tables, searched=True)

    def add_tables(self, tables: Iterable[AnswerTable], *, searched: bool = False) -> None:
        """Merge tables into the stored ones: all, or none if that fails. Raises Conflict."""
        groups: dict[tuple[str, int], list[AnswerTable]] = defaultdict(list)
        for table in tables:
            groups[table.owner.fingerprint, table.boxes.axes].append(table)
        written: list[AnswerTable] = []
        with self.file.writing():
            for new in groups.values():
                old: list[AnswerTable] = []
                for key in dict.fromkeys(table.key for table in new):
                    old += read_tables(self.file, "fingerprint = ? AND labels = ?", *key)
                    # This connection's own writes do not change the version that it sees.
                    self._cache.tables.pop(key, None)
                if any(one.owner != new[0].owner for one in (*old, *new)):
                    raise self.file.damaged("tables of one fingerprint are of different targets")
                merged, contradictions = merged_tables(old, new, searched=searched)
                if contradictions:
                    raise self._conflict(contradictions)
                written += merged
            write_tables(self.file, written)
            self._cache.programs.clear()

    def tables(self) -> Iterable[AnswerTable]:
        """Return all tables, by fingerprint and labels."""
        return read_tables(self.file)

    def whole(self) -> SpecStore:
        """Return a database of all answers that this one has or gets from elsewhere, to read them."""
        return self

    def size(self) -> int:
        """Return the bytes that are stored."""
        return self.file.size()

    def drop(self, fingerprints: Iterable[str], *, lower: bool) -> None:
        """Delete the answers of fingerprints, and with `lower` all bounds and unproven programs; return the space."""
        self.file.check()
        with self.file.writing() as connection:
            gone = [(key,) for key in fingerprints]
            connection.executemany("DELETE FROM tables WHERE fingerprint = ?", gone)
            connection.executemany("DELETE FROM programs WHERE fingerprint = ?", gone)
            if lower:
                connection.execute("DELETE FROM programs WHERE fingerprint != ''")
                rest = [attrs.evolve(one, boxes=one.boxes.take(one.boxes.settled)) for one in self.tables()]
                write_tables(self.file, rest)
            self.clear_cache()
        self.file.compact()

    def drop_measured(self) -> int:
        """Drop all measured programs; return their number."""
        return measured.drop(self.file)

    @optional(list)
    def answers(self, target: Target, spec: Spec) -> list[SpecAnswer]:
        """Return the answers to a Spec, the best first: EXACT or NONE, then LOWER by descending bounds.

        Among unverified answers only EXACT ones count, since their programs can be built.
        """
        table = self.table(target, spec.logical)
        if table is None:
            return []
        shape = np.array([spec.shape], dtype=np.int64)
        limits = of_limits(np.array([spec.limits], dtype=np.int64), target.grids)
        boxes = table.boxes.containing(np.concatenate([of_sizes(shape), limits], axis=1)[0])
        boxes = boxes.take(~boxes.unverified | (boxes.kind == AnswerKind.EXACT))
        found = table.answers(boxes, np.repeat(shape, len(boxes), axis=0))
        found.sort(key=preference)
        if found and any(_contradict(found[0], one) for one in found if one.unverified == found[0].unverified):
            raise self.file.damaged(f"answers to one Spec contradict each other: {found[0]}")
        return found

    def find(self, target: Target, spec: Spec) -> SpecAnswer | None:
        """Return the answer to a Spec: EXACT or NONE, otherwise the best LOWER bound, otherwise None."""
        return next(iter(self.answers(target, spec)), None)

    def is_solved(self, target: Target, spec: Spec) -> bool:
        """Return whether the answer to a Spec is stored: its program as a whole, or that there is none."""
        found = self.find(target, spec)
        if found is None or found.kind == AnswerKind.LOWER:
            return False
        return found.kind == AnswerKind.NONE or self.program(target, spec) is not None

    @optional(lambda: False)
    def has_any(self, target: Target) -> bool:
        """Return whether any answer for a target, as it is now, is stored."""
        query = "SELECT 1 FROM tables WHERE fingerprint = ? LIMIT 1"
        with self.file.reading() as connection:
            return connection.execute(query, (fingerprint(target),)).fetchone() is not None

    @optional(lambda: None)
    def table(self, target: Target, labels: LogicalSpec) -> AnswerTable | None:
        """Return the table of the Specs that differ from `labels` in sizes and limits only, or None."""
        key = fingerprint(target), write(labels)
        # In one transaction, so that the version is that of the state which is read.
        with self.file.reading():
            version = self.file.version()
            if version != self._cache.version or self._cache.boxes > _MOST_CACHED:
                self._cache.clear(version)
            if key not in self._cache.tables:
                found = next(read_tables(self.file, "fingerprint = ? AND labels = ?", *key), None)
                if found and found.owner != FingerprintedTarget.of(target):
                    raise self.file.damaged(f"a table of {target.stored_name} has other levels than the target")
                self._cache.tables[key] = found
                self._cache.boxes += len(found.boxes) if found else 0
            return self._cache.tables[key]

    @optional(lambda: None)
    def program(self, target: Target, spec: Spec) -> Impl | None:
        """Return the program that solves a Spec, or None unless all Specs in it are solved.

        It is built from the stored steps. Raises Damaged where that gives another cost or peak than stored.
        """
        _ = self.table(target, spec.logical)  # drops what another process has changed
        return program(
            spec, target, lambda one: self.find(target, one), self.file, self._cache.programs[fingerprint(target)]
        )

    @optional(lambda: None)
    def incumbent(self, target: Target, spec: Spec) -> Incumbent | None:
        """Return the best stored program of a Spec whose optimality is unproven, or None."""
        return find_incumbent(self.file, target, spec)

    @optional(list)
    def measured(self, target: Target, spec: Spec) -> list[Measured]:
        """Return the programs of a Spec that were measured to be the fastest, one for each kind of machine."""
        return [one for _, one in measured.specs(self.file, target.full_name, spec)]

    def keep_measured(self, target: Target, spec: Spec, best: Measured) -> None:
        """Store a program that was measured to be the fastest of a Spec. A failure is a NotSaved warning."""
        try:
            measured.write_measured(self.file, target.full_name, spec, best)
        except MorelloError as error:
            warnings.warn(f"a measured program is not saved: {error}", NotSaved, stacklevel=2)

    def forget_measured(self, target: Target, spec: Spec, machine: MachineKind) -> None:
        """Drop the program of a Spec that was measured on such a machine."""
        measured.drop(self.file, target.full_name, spec, machine)

    def store_incumbent(self, target: Target, found: Incumbent) -> None:
        """Store a program whose optimality is unproven, unless a cheaper one is stored."""
        store_incumbent(self.file, target, found)

    def drop_incumbent(self, target: Target, spec: Spec) -> None:
        """Drop the unproven program of a Spec, which is solved."""
        drop_incumbent(self.file, target, spec)

    def remember(self, target: Target, impl: Impl) -> None:
        """Store an optimal program: every Spec in it is solved."""
        self.add(target, solved_blocks(impl))

    def _conflict(self, contradictions: Sequence[tuple[AnswerTable, Boxes]]) -> Conflict:
        """Return the error that lists the first contradictions: a Spec in both boxes, and both answers."""
        lines: list[str] = []
        for table, boxes in contradictions[:_MOST_LISTED]:
            meeting = boxes.low.max(axis=0)[None]
            sizes = to_sizes(meeting[:, : table.rank])
            limits = to_limits(meeting[:, table.rank :], table.owner.grids)[0].tolist()
            one, other = (
                f"{found.kind.name} {found.cost}" for found in table.answers(boxes, np.repeat(sizes, 2, axis=0))
            )
            shape = "×".join(map(str, sizes[0].tolist()))
            lines.append(f"{table.labels}, {shape} within {limits}: {one} and {other}")
        count = f"{len(contradictions)}{' or more' * (len(contradictions) == MOST_PAIRS)}"
        return Conflict(
            f"database {self.name}: {count} answers contradict others, so nothing was stored:\n  " + "\n  ".join(lines),
            "`morello db verify` checks each of the files",
        )


def preference(one: SpecAnswer) -> tuple[Any, ...]:
    """Return the key that sorts answers to one Spec, the best first.

    Several answers are equal; peak and step make the choice independent of the order of insertion.
    """
    bound = one.kind == AnswerKind.LOWER
    return bound, one.unverified, -one.cost if bound else 0, one.peak, one.step or ""


def _contradict(best: SpecAnswer, other: SpecAnswer) -> bool:
    """Return whether two answers to one Spec cannot both be right."""
    if other.kind == AnswerKind.LOWER:
        return best.kind == AnswerKind.EXACT and other.cost > best.cost
    return (best.kind, best.cost) != (other.kind, other.cost)
