"""Proves what is another's word: marked answers are searched for anew; then the mark goes off, or the answer goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import product

import attrs
import numpy as np

from morello.db.block import Entry, Ints
from morello.db.coordinates import to_limits, to_sizes, volumes
from morello.db.exchange import Sheet, batches, sheet_of, stored_tables
from morello.db.fingerprint import fingerprint
from morello.db.labels import read
from morello.db.records import Header, Stored
from morello.db.store import SpecStore, entries_of
from morello.db.upkeep import Difference, Solver, agree
from morello.ir.spec import Spec
from morello.kernels.target import Target

#: Rectangles that are proven together, before that is stored.
_TOGETHER = 256


@attrs.define
class Outcome:
    """Counts of marked rectangles that were proven and that are left, and what was wrong and was removed."""

    proven: int = 0
    wrong: list[Difference] = attrs.field(factory=list)
    left: int = 0


@attrs.frozen(eq=False, slots=False)
class _Claim:
    """A marked rectangle: box `i` of a table."""

    target: Target
    stored: Stored
    steps: dict[int, str]
    i: int

    @property
    def rank(self) -> int:
        return self.stored.boxes.axes - len(self.stored.header.print.grids)

    @cached_property
    def shapes(self) -> Ints:
        """Return all shapes [N, rank] in it. What holds within its largest limits holds within smaller ones, too."""
        low, high = (side[self.i, : self.rank].tolist() for side in (self.stored.boxes.low, self.stored.boxes.high))
        corners = [*product(*(range(start, end + 1) for start, end in zip(low, high, strict=True)))]
        return to_sizes(np.array(corners, dtype=np.int64))

    @property
    def specs(self) -> list[Spec]:
        header = self.stored.header
        high = self.stored.boxes.high[[self.i], self.rank :]
        limits = tuple(to_limits(high, header.print.grids)[0].tolist())
        labels = read(header.labels, self.target.operations)
        return [Spec(attrs.evolve(labels, shape=tuple(shape)), limits) for shape in self.shapes.tolist()]

    @property
    def said(self) -> list[Entry]:
        boxes = self.stored.boxes.take(np.full(len(self.shapes), self.i))
        return entries_of(boxes, self.shapes, self.stored.header.print.grids, self.steps)


def recompute(store: SpecStore, targets: Iterable[Target], solve: Solver, *, limit: int | None, points: int) -> Outcome:
    """Search anew for the Specs of marked rectangles, at most `limit` of them, and store what comes of it.

    Rectangles of other targets, and with Specs of more than `points` points in their iteration space, keep the mark.
    """
    claims, marked = _claims(store, {fingerprint(target): target for target in targets}, points)
    claims = claims[:limit]
    outcome = Outcome(left=marked - len(claims))
    by_target: dict[Target, list[_Claim]] = defaultdict(list)
    for claim in claims:
        by_target[claim.target].append(claim)
    for own in by_target.values():
        for at in range(0, len(own), _TOGETHER):
            _prove(store, own[at : at + _TOGETHER], solve, outcome)
    return outcome


def _claims(store: SpecStore, targets: dict[str, Target], points: int) -> tuple[list[_Claim], int]:
    """Return the marked rectangles that can be proven, and how many marked ones there are."""
    claims: list[_Claim] = []
    count = 0
    for whose, stored, steps in stored_tables(store):
        marked = np.flatnonzero(stored.boxes.foreign)
        count += len(marked)
        if len(marked) and whose.hash in targets:
            rank = stored.boxes.axes - len(whose.grids)
            small = volumes(to_sizes(stored.boxes.high[marked, :rank])) <= points
            claims += [_Claim(targets[whose.hash], stored, steps, i) for i in marked[small].tolist()]
    return claims, count


def _prove(store: SpecStore, claims: Sequence[_Claim], solve: Solver, outcome: Outcome) -> None:
    """Search for the Specs of claims on one target, and store at once what was found out."""
    target = claims[0].target
    specs = [claim.specs for claim in claims]
    solved = iter(solve(target, [spec for some in specs for spec in some]))
    gone: dict[Header, set[tuple[int, int]]] = defaultdict(set)
    right: dict[Header, list[_Claim]] = defaultdict(list)
    for claim, some in zip(claims, specs, strict=True):
        header = claim.stored.header
        gone[header].add((int(claim.stored.ids[claim.i]), int(claim.stored.crcs[claim.i])))
        found = [Difference(target, spec, said, next(solved)) for spec, said in zip(some, claim.said, strict=True)]
        wrong = next((one for one in found if not agree(one.stored, one.solved)), None)
        if wrong:
            outcome.wrong.append(wrong)
        else:
            right[header].append(claim)
    outcome.proven += sum(map(len, right.values()))
    store.replace(gone, batches(map(_unmarked, right.values())))


def _unmarked(claims: list[_Claim]) -> Sheet:
    """Return the rectangles of claims of one table, without the mark."""
    sheet = sheet_of(claims[0].stored.header.print, claims[0].stored, claims[0].steps)
    boxes = sheet.boxes.take(np.array([claim.i for claim in claims]))
    return attrs.evolve(sheet, boxes=attrs.evolve(boxes, foreign=np.zeros(len(boxes), dtype=np.bool_)))
