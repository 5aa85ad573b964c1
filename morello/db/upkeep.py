"""Count what is in a database, check that it is whole and right, and drop what is not needed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import numpy as np

from morello.db import measured, records, unproven
from morello.db.block import AnswerKind, Entry
from morello.db.coordinates import to_limits, to_sizes, volumes
from morello.db.exchange import stored_tables
from morello.db.file import Damaged
from morello.db.fingerprint import fingerprint
from morello.db.guard import patiently
from morello.db.labels import read
from morello.db.records import Print, Stored
from morello.db.rectangles import Boxes, joined, pairs
from morello.db.store import SpecStore, entries_of
from morello.db.tree import covered
from morello.ir.spec import Spec
from morello.kernels.target import Target

#: Boxes that are counted together.
_TOGETHER = 50_000
#: Solves Specs of a target: what an entry of the database should be, for each.
Solver = Callable[[Target, Sequence[Spec]], list[Entry]]


@attrs.define
class Summary:
    """Counts of what is stored under one fingerprint. Specs are counted once; those of `lower` are not answered."""

    print: Print
    tables: int = 0
    boxes: int = 0
    foreign: int = 0
    exact: int = 0
    none: int = 0
    lower: int = 0
    #: Specs whose best program so far is kept.
    unproven: int = 0
    weight: int = 0

    @property
    def specs(self) -> int:
        return self.exact + self.none + self.lower


def summaries(store: SpecStore) -> list[Summary]:
    """Return counts by fingerprint. `weight` is a share of the file's size: bytes of rows, without SQLite's own."""
    by_print: dict[int, Summary] = {}
    waiting: dict[tuple[int, int], list[Boxes]] = {}
    for whose, stored, _ in stored_tables(store):
        summary, boxes = by_print.setdefault(whose.id, Summary(whose)), stored.boxes
        summary.tables += 1
        summary.boxes += len(boxes)
        summary.foreign += int(boxes.foreign.sum())
        summary.weight += len(stored.header.labels) + len(boxes) * (16 + 2 * boxes.axes)
        tables = waiting.setdefault((whose.id, boxes.axes), [])
        tables.append(boxes)
        if sum(map(len, tables)) > _TOGETHER:
            _count(summary, joined(waiting.pop((whose.id, boxes.axes))))
    for (number, _), tables in waiting.items():
        _count(by_print[number], joined(tables))
    counts = unproven.counts(store.file)
    for whose in records.read_prints(store.file):
        if whose.id in counts:
            by_print.setdefault(whose.id, Summary(whose)).unproven = counts[whose.id]
    return list(by_print.values())


def _count(into: Summary, boxes: Boxes) -> None:
    """Add the Specs that the boxes of some tables cover, each counted once."""
    alone = np.ones(len(boxes), dtype=bool)
    for i, _ in pairs(boxes, alone.copy()):
        alone[i] = False
    # Most boxes meet no other, and are quickly counted.
    sizes = volumes(boxes.high - boxes.low + 1)
    into.exact += sum(sizes[alone & (boxes.kind == AnswerKind.EXACT)].tolist())
    into.none += sum(sizes[alone & (boxes.kind == AnswerKind.NONE)].tolist())
    into.lower += sum(sizes[alone & (boxes.kind == AnswerKind.LOWER)].tolist())
    rest = boxes.take(~alone)
    ends = np.flatnonzero(np.diff(rest.table)) + 1
    for which in np.split(np.arange(len(rest)), ends):
        one = rest.take(which)
        exact, none, every = (
            covered(one.low[kind], one.high[kind])
            for kind in (one.kind == AnswerKind.EXACT, one.kind == AnswerKind.NONE, one.kind >= 0)
        )
        into.exact, into.none, into.lower = into.exact + exact, into.none + none, into.lower + every - exact - none


def damage(store: SpecStore, targets: Iterable[Target] = ()) -> Iterator[str]:
    """Yield whatever SQLite and checksums find wrong, in words, and programs of these targets that are none."""
    try:
        with store.file.reading() as connection:
            for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
                if line != "ok":
                    yield line
            steps = records.read_steps(store.file)
            for whose in records.read_prints(store.file):
                yield from _damaged_tables(store, whose, steps)
            for number, table in store.file.rows(
                "SELECT id, tab FROM rectangles WHERE tab NOT IN (SELECT id FROM tables) LIMIT 20"
            ):
                yield f"there is no table {table}, of which there is a box {number}"
            for (number,) in store.file.rows(
                "SELECT id FROM tables WHERE fingerprint NOT IN (SELECT id FROM fingerprints) LIMIT 20"
            ):
                yield f"there is no fingerprint for table {number}"
            yield from unproven.faults(store.file, targets)
            yield from measured.faults(store.file)
    except Damaged as error:
        yield error.message


def _damaged_tables(store: SpecStore, whose: Print, steps: dict[int, str]) -> Iterator[str]:
    query = "SELECT id, labels FROM tables NOT INDEXED WHERE fingerprint = ?"
    for number, labels in [*store.file.rows(query, whose.id)]:
        try:
            headers = records.read_headers(store.file, whose, labels)
            if not headers:
                yield f"table {number} is not found by its labels ({labels})"
            for header in headers:
                records.read_boxes(store.file, header, steps)
        except Damaged as error:
            yield f"{error.message} ({number}: {labels})"


@attrs.frozen
class Difference:
    """An entry that is not what solving the Spec gives."""

    target: Target
    spec: Spec
    stored: Entry
    solved: Entry


@attrs.frozen(eq=False)
class _Drawn:
    """A Spec that was drawn, and what the box it was drawn from says of it."""

    luck: float
    target: Target
    spec: Spec
    entry: Entry


def differences(
    store: SpecStore, targets: Iterable[Target], solve: Solver, *, sample: int, seed: int, points: int
) -> tuple[int, list[Difference]]:
    """Solve Specs drawn from random boxes again: how many were, and those whose entries differ.

    Only Specs of these targets and with at most `points` points in their iteration space are drawn.
    """
    drawn = _drawn(store, {fingerprint(target): target for target in targets}, sample, random.Random(seed), points)
    wrong = []
    for target in dict.fromkeys(one.target for one in drawn):
        own = [one for one in drawn if one.target is target]
        for one, solved in zip(own, solve(target, [each.spec for each in own]), strict=True):
            if not agree(one.entry, solved):
                wrong.append(Difference(target, one.spec, one.entry, solved))
    return len(drawn), wrong


def agree(stored: Entry, solved: Entry) -> bool:
    """Return True if the stored answer to a Spec is the one that solving it gives."""
    if stored.kind == AnswerKind.LOWER:
        return solved.kind == AnswerKind.NONE or stored.cost <= solved.cost
    return stored == solved


def _drawn(store: SpecStore, targets: dict[str, Target], sample: int, luck: random.Random, points: int) -> list[_Drawn]:
    """Return Specs from `sample` boxes, or from all boxes if they are fewer; every box is as likely."""
    drawn: list[_Drawn] = []
    for whose, stored, steps in stored_tables(store):
        target = targets.get(whose.hash)
        if target is None:
            continue
        rank = stored.boxes.axes - len(whose.grids)
        small = np.flatnonzero(volumes(to_sizes(stored.boxes.low[:, :rank])) <= points)
        for i in small.tolist():
            chance = luck.random()
            if len(drawn) < sample or (drawn and chance < drawn[-1].luck):
                drawn.append(_draw(target, stored, steps, i, chance, luck, points))
                drawn.sort(key=lambda one: one.luck)
                del drawn[sample:]
    return drawn


def _draw(
    target: Target, stored: Stored, steps: dict[int, str], i: int, chance: float, luck: random.Random, points: int
) -> _Drawn:
    """Return a random Spec of box i. Sizes are the smallest ones where random ones are too large."""
    box = stored.boxes.take(np.array([i]))
    grids = stored.header.print.grids
    rank = box.axes - len(grids)
    point = np.array([[luck.randint(low, high) for low, high in zip(box.low[0], box.high[0], strict=True)]])
    shape = to_sizes(point[:, :rank])
    if volumes(shape)[0] > points:
        shape = to_sizes(box.low[:, :rank])
    logical = attrs.evolve(read(stored.header.labels, target.operations), shape=tuple(shape[0].tolist()))
    spec = Spec(logical, tuple(to_limits(point[:, rank:], grids)[0].tolist()))
    return _Drawn(chance, target, spec, entries_of(box, shape, grids, steps)[0])


@attrs.frozen
class Pruning:
    """Counts of what `prune` would drop of a fingerprint: rectangles, unproven programs, and its share of all bytes."""

    print: Print
    #: All of it goes, as it belongs to no target.
    whole: bool
    rectangles: int
    unproven: int
    share: float


def prunable(store: SpecStore, targets: Iterable[Target], *, lower: bool) -> list[Pruning]:
    """Return what `prune` would drop, for each fingerprint of which it would drop something."""
    wanted = {fingerprint(target) for target in targets}
    query = (
        "SELECT count(*), coalesce(sum(length(box) + 16), 0) FROM rectangles "
        "WHERE tab IN (SELECT id FROM tables WHERE fingerprint = ?) AND kind IN (?, ?, ?)"
    )
    programs = "SELECT count(*), coalesce(sum(length(spec) + length(schedule)), 0) FROM unproven WHERE fingerprint = ?"
    found, total = [], 0
    with store.file.reading():
        for one in records.read_prints(store.file):
            (every,) = store.file.rows(query, one.id, *AnswerKind)
            (bounds,) = store.file.rows(query, one.id, *[AnswerKind.LOWER] * 3)
            (unproven,) = store.file.rows(programs, one.id)
            total += every[1] + unproven[1]
            whole = one.hash not in wanted
            rectangles, told = (every if whole else bounds), unproven
            if whole or (lower and (rectangles[0] or told[0])):
                found.append(Pruning(one, whole, rectangles[0], told[0], rectangles[1] + told[1]))
    return [attrs.evolve(one, share=one.share / max(1, total)) for one in found]


def prune(store: SpecStore, targets: Iterable[Target], *, lower: bool) -> tuple[int, int]:
    """Drop all fingerprints but those of `targets`, and with `lower` all that is unproven; then give the space back.

    How many fingerprints and how many rectangles were dropped.
    """
    wanted = {fingerprint(target) for target in targets}
    store.file.check()
    with store.file.writing() as connection:
        (before,) = connection.execute("SELECT count(*) FROM rectangles").fetchone()
        unwanted = [(one.id,) for one in records.read_prints(store.file) if one.hash not in wanted]
        which = "(SELECT id FROM tables WHERE fingerprint = ?)"
        connection.executemany(f"DELETE FROM rectangles WHERE tab IN {which}", unwanted)
        connection.executemany("DELETE FROM unproven WHERE fingerprint = ?", unwanted)
        connection.executemany("DELETE FROM tables WHERE fingerprint = ?", unwanted)
        connection.executemany("DELETE FROM fingerprints WHERE id = ?", unwanted)
        if lower:
            _drop_bounds(store)
            connection.execute("DELETE FROM unproven")
        connection.execute("DELETE FROM steps WHERE id NOT IN (SELECT step FROM rectangles WHERE step IS NOT NULL)")
        (after,) = connection.execute("SELECT count(*) FROM rectangles").fetchone()
    store.forget()
    with store.file.messages():
        with store.file.connection.lifted():
            patiently(store.file.connection, "VACUUM")
        store.file.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return len(unwanted), before - after


def _drop_bounds(store: SpecStore) -> None:
    """Drop LOWER boxes, and tables that have no others."""
    connection = store.file.connection
    steps = records.read_steps(store.file)
    for whose in records.read_prints(store.file):
        for header in records.read_headers(store.file, whose):
            stored = records.read_boxes(store.file, header, steps)
            kept = stored.boxes.take(stored.boxes.settled)
            origin = np.full(len(stored.ids), header.id), stored.ids
            records.write_boxes(store.file, {header.id: stored}, kept, origin, steps)
            if not len(kept):
                connection.execute("DELETE FROM tables WHERE id = ?", (header.id,))
