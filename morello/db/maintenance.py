"""Statistics of a database, checks for damage and wrong answers, and removal of answers that are not needed."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

import attrs
import numpy as np

from morello.db.answers import AnswerKind, Ints, SpecAnswer
from morello.db.boxes import Boxes, covered, to_limits, to_sizes, volumes
from morello.db.file import Damaged
from morello.db.fingerprint import fingerprint
from morello.db.labels import read
from morello.db.measured import parse_measured
from morello.db.program_texts import read_programs, rebuilt
from morello.db.store import SpecStore
from morello.db.tables import AnswerTable, read_tables, write_tables
from morello.errors import MorelloError
from morello.ir.impl import Node, cost_and_peak
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.session import SearchSession

#: Solves Specs of a target.
Solver = Callable[[Target, Sequence[Spec]], list[SpecAnswer]]
#: Unverified rectangles that are proven before the result is stored.
_BATCH = 256


@attrs.define
class Summary:
    """Counts of the answers of one fingerprint. Specs are counted once."""

    fingerprint: str
    target: str
    tables: int = 0
    rectangles: int = 0
    unverified: int = 0
    exact: int = 0
    none: int = 0
    lower: int = 0
    #: Specs with a program whose optimality is unproven.
    unproven: int = 0
    bytes: int = 0

    @property
    def specs(self) -> int:
        return self.exact + self.none + self.lower


def target_names(store: SpecStore) -> list[str]:
    """Return the names of targets that have answers, whatever their fingerprints."""
    query = "SELECT target FROM tables UNION SELECT target FROM programs WHERE fingerprint != '' ORDER BY 1"
    with store.file.reading() as connection:
        return [str(name) for (name,) in connection.execute(query)]


def summaries(store: SpecStore) -> list[Summary]:
    """Return the counts of each fingerprint. `bytes` counts rows, without SQLite's own structures."""
    found: dict[str, Summary] = {}
    with store.file.reading() as connection:
        for table in store.tables():
            one = found.setdefault(table.owner.fingerprint, Summary(*table.key[:1], table.owner.name))
            boxes, every = table.boxes, covered(table.boxes.low, table.boxes.high)
            exact, none = (
                covered(boxes.low[boxes.kind == kind], boxes.high[boxes.kind == kind])
                for kind in (AnswerKind.EXACT, AnswerKind.NONE)
            )
            one.tables += 1
            one.rectangles += len(boxes)
            one.unverified += int(boxes.unverified.sum())
            one.exact, one.none, one.lower = one.exact + exact, one.none + none, one.lower + every - exact - none
        query = "SELECT fingerprint, target, count(*), sum(length(spec) + length(schedule)) FROM programs"
        for key, target, count, size in connection.execute(f"{query} WHERE fingerprint != '' GROUP BY 1").fetchall():
            one = found.setdefault(key, Summary(key, target))
            one.unproven, one.bytes = count, size
        query = "SELECT fingerprint, sum(length(labels) + length(steps) + length(boxes)) FROM tables GROUP BY 1"
        for key, size in connection.execute(query).fetchall():
            found[key].bytes += size
    return [found[key] for key in sorted(found)]


def damage(store: SpecStore, targets: Iterable[Target] = ()) -> Iterator[str]:
    """Yield descriptions of damage: to the file, to rows, and of programs that the steps of `targets` do not give."""
    by_fingerprint = {fingerprint(target): target for target in targets}
    try:
        with store.file.reading() as connection:
            for (line,) in connection.execute("PRAGMA integrity_check(20)").fetchall():
                if line != "ok":
                    yield line
            keys = connection.execute("SELECT fingerprint, labels FROM tables").fetchall()
            for key in keys:
                try:
                    if not [*read_tables(store.file, "fingerprint = ? AND labels = ?", *key)]:
                        yield f"a table is not found by its labels ({key[1]})"
                except Damaged as error:
                    yield error.message
            for row in read_programs(store.file, "TRUE"):
                try:
                    if not row.fingerprint:
                        parse_measured(store.file, row)
                    elif target := by_fingerprint.get(row.fingerprint):
                        rebuilt(store.file, target, row)
                except MorelloError as error:
                    yield error.message
    except Damaged as error:
        yield error.message


@attrs.frozen
class Difference:
    """A stored answer that differs from the one that search finds."""

    target: Target
    spec: Spec
    stored: SpecAnswer
    solved: SpecAnswer

    def __str__(self) -> str:
        where = f"{self.spec.logical} within {list(self.spec.limits)} on {self.target.stored_name}"
        return f"{where}: stored is {self.stored}, solved {self.solved}"


def solve(target: Target, specs: Sequence[Spec]) -> list[SpecAnswer]:
    """Return the answers of a search without a database."""
    nothing, answers = tuple(0 for _ in target.levels), list[SpecAnswer]()
    for impl in SearchSession(target).programs(specs):
        if isinstance(impl, Node):
            found = cost_and_peak(impl)
            answers.append(SpecAnswer(found.cost, AnswerKind.EXACT, tuple(found.peak), str(impl.expansion.step)))
        else:
            answers.append(SpecAnswer(0, AnswerKind.NONE, nothing, None))
    return answers


@attrs.frozen(eq=False)
class _Claim:
    """The answers of box `i` of a table to some Specs in it."""

    target: Target
    table: AnswerTable
    i: int
    specs: list[Spec]
    answers: list[SpecAnswer]

    @classmethod
    def of(cls, target: Target, table: AnswerTable, i: int, shapes: Ints, limits: Ints) -> _Claim:
        """Return what box `i` answers to N Specs with these shapes [N, rank] and coordinates of limits [levels]."""
        labels = read(table.labels, target.operations, target.dtypes)
        (numbers,) = to_limits(limits[None], table.owner.grids).tolist()
        specs = [Spec(attrs.evolve(labels, shape=tuple(shape)), tuple(numbers)) for shape in shapes.tolist()]
        return cls(target, table, i, specs, table.answers(table.boxes.take(np.full(len(shapes), i)), shapes))

    def differences(self, solved: Iterable[SpecAnswer]) -> list[Difference]:
        found = zip(self.specs, self.answers, solved, strict=False)
        return [Difference(self.target, spec, *both) for spec, *both in found if not _agree(*both)]


def _agree(stored: SpecAnswer, solved: SpecAnswer) -> bool:
    if stored.kind == AnswerKind.LOWER:
        return solved.kind == AnswerKind.NONE or stored.cost <= solved.cost
    return stored == solved


def _solvable(store: SpecStore, targets: Iterable[Target]) -> Iterator[tuple[Target, AnswerTable]]:
    by_fingerprint = {fingerprint(target): target for target in targets}
    for table in store.tables():
        if target := by_fingerprint.get(table.owner.fingerprint):
            yield target, table


def differences(
    store: SpecStore, targets: Iterable[Target], *, sample: int, seed: int, points: int, solve: Solver = solve
) -> tuple[int, list[Difference]]:
    """Solve Specs from `sample` random boxes again; return their number, and the differences.

    Only Specs of `targets` with at most `points` points in their iteration space are drawn.
    """
    draws = random.Random(seed)
    boxes = [
        (target, table, i)
        for target, table in _solvable(store, targets)
        for i in np.flatnonzero(volumes(to_sizes(table.boxes.low[:, : table.rank])) <= points).tolist()
    ]
    claims: dict[Target, list[_Claim]] = defaultdict(list)
    for target, table, i in draws.sample(boxes, min(sample, len(boxes))):
        low, high = table.boxes.low[i], table.boxes.high[i]
        point = np.array([draws.randint(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)])
        shape = to_sizes(point[None, : table.rank])
        # Where a random shape is too large, the smallest one of the box is not.
        shape = shape if volumes(shape)[0] <= points else to_sizes(low[None, : table.rank])
        claims[target].append(_Claim.of(target, table, i, shape, point[table.rank :]))
    wrong: list[Difference] = []
    for target, own in claims.items():
        solved = iter(solve(target, [spec for claim in own for spec in claim.specs]))
        wrong += [one for claim in own for one in claim.differences([next(solved) for _ in claim.specs])]
    return sum(map(len, claims.values())), wrong


@attrs.define
class Recomputation:
    """Counts of unverified rectangles that were proven and that are left, and the wrong ones, which were removed."""

    proven: int = 0
    wrong: list[Difference] = attrs.field(factory=list[Difference])
    left: int = 0


def recompute(
    store: SpecStore, targets: Iterable[Target], *, limit: int | None, points: int, solve: Solver = solve
) -> Recomputation:
    """Solve the Specs of unverified rectangles, at most `limit`; keep those that are right, and remove the others.

    Rectangles of other targets, or with Specs of more than `points` points, stay unverified.
    """
    outcome = Recomputation(left=sum(int(table.boxes.unverified.sum()) for table in store.tables()))
    claims: dict[Target, list[_Claim]] = defaultdict(list)
    for target, table in _solvable(store, targets):
        small = volumes(to_sizes(table.boxes.high[:, : table.rank])) <= points
        for i in np.flatnonzero(small & table.boxes.unverified).tolist():
            claims[target].append(_Claim.of(target, table, i, _shapes(table, i), table.boxes.high[i, table.rank :]))
    every = [claim for own in claims.values() for claim in own][:limit]
    for start in range(0, len(every), _BATCH):
        batch = every[start : start + _BATCH]
        solved: dict[Target, Iterator[SpecAnswer]] = {
            target: iter(solve(target, [spec for one in batch if one.target is target for spec in one.specs]))
            for target in dict.fromkeys(one.target for one in batch)
        }
        right: list[_Claim] = []
        for claim in batch:
            found = claim.differences([next(solved[claim.target]) for _ in claim.specs])
            outcome.wrong += found[:1]
            right += [] if found else [claim]
        _replace(store, batch, right)
        outcome.proven += len(right)
        outcome.left -= len(batch)
    return outcome


def _shapes(table: AnswerTable, i: int) -> Ints:
    """Return all shapes [N, rank] in a box. The largest limits are enough: an answer holds for smaller ones, too."""
    low, high = (side[i, : table.rank].tolist() for side in (table.boxes.low, table.boxes.high))
    ranges = (range(start, end + 1) for start, end in zip(low, high, strict=True))
    return to_sizes(np.array([*product(*ranges)], dtype=np.int64))


def _replace(store: SpecStore, claims: Iterable[_Claim], right: Iterable[_Claim]) -> None:
    """Take the boxes of claims out of their tables, and store the right ones as verified."""
    gone: dict[tuple[str, str], list[Boxes]] = defaultdict(list)
    for claim in claims:
        gone[claim.table.key].append(claim.table.boxes.take(np.array([claim.i])))
    with store.file.writing():
        for key, boxes in gone.items():
            rows = {one.matrix().tobytes() for one in boxes}
            for table in [*read_tables(store.file, "fingerprint = ? AND labels = ?", *key)]:
                kept = [table.boxes.take(np.array([i])).matrix().tobytes() not in rows for i in range(len(table.boxes))]
                write_tables(store.file, [attrs.evolve(table, boxes=table.boxes.take(np.array(kept, dtype=np.bool_)))])
        proven: list[AnswerTable] = []
        for claim in right:
            boxes, true = claim.table.boxes.take(np.array([claim.i])), np.array([True])
            proven.append(attrs.evolve(claim.table, boxes=attrs.evolve(boxes, unverified=~true, fresh=true)))
        store.add_tables(proven, searched=True)
    store.clear_cache()


def prune(store: SpecStore, targets: Iterable[Target], *, lower: bool) -> tuple[int, int]:
    """Delete the answers of all fingerprints but those of `targets`, and with `lower` all bounds and unproven programs.

    Return the numbers of fingerprints and of rectangles that were deleted. Unused space is returned.
    """
    wanted = {fingerprint(target) for target in targets}
    before = {one.fingerprint: one.rectangles for one in summaries(store.whole())}
    gone = [key for key in before if key not in wanted]
    store.drop(gone, lower=lower)
    after = sum(one.rectangles for one in summaries(store.whole()))
    return len(gone), sum(before.values()) - after
