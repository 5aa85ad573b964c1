"""Incumbent programs so far that are not proven to be the cheapest: one a Spec, as the text of a whole schedule.

They are kept apart from answers, as no answer may rest on them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import attrs

from morello.db import records
from morello.db.block import LARGEST_COST
from morello.db.file import Damaged, File
from morello.db.fingerprint import fingerprint
from morello.db.labels import read, write
from morello.db.records import Print
from morello.errors import MorelloError
from morello.frontend.parser import parse_schedule
from morello.ir.impl import Impl, Leaf, cost_and_peak, leaves
from morello.ir.limits import fits
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Position, apply, schedule_of, schedule_text
from morello.search.incumbents import Incumbent

_COLUMNS = "spec, cost, low, effort, schedule, crc"


def find(file: File, target: Target, spec: Spec) -> Incumbent | None:
    """Return the best program so far of a Spec, None if none is stored. Raises Damaged for what is no program of it."""
    with file.reading():
        whose = next((one for one in records.read_prints(file) if one.hash == fingerprint(target)), None)
        if whose is None:
            return None
        query = f"SELECT {_COLUMNS} FROM unproven WHERE fingerprint = ? AND spec = ?"
        row = next(iter([*file.rows(query, whose.id, _key(spec))]), None)
    return None if row is None else _rebuilt(file, whose, target, spec, row)


def keep(file: File, target: Target, best: Incumbent) -> None:
    """Store a program in place of the one that is stored, unless that is better. Bounds and effort only rise."""
    whose, spec = records.print_of(target), best.impl.spec
    with file.writing() as connection:
        before = find(file, target, spec)
        if before is not None:
            impl = before.impl if before.cost <= best.cost else best.impl
            best = Incumbent(
                impl, min(before.cost, best.cost), max(before.low, best.low), max(before.expansions, best.expansions)
            )
        known = {one.hash: one for one in records.read_prints(file)}
        whose = known.get(whose.hash) or records.write_print(file, whose)
        values = _key(spec), best.cost, best.low, best.expansions, schedule_text(schedule_of(best.impl))
        row = whose.id, *values, _crc(whose, values)
        connection.execute("INSERT OR REPLACE INTO unproven VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def drop(file: File, target: Target, spec: Spec) -> None:
    """Drop the program of a Spec that is solved, if there is one."""
    rest = "FROM unproven WHERE spec = ? AND fingerprint IN (SELECT id FROM fingerprints WHERE hash = ?)"
    values = _key(spec), fingerprint(target)
    with file.reading():
        ((count,),) = file.rows(f"SELECT count(*) {rest}", *values)
    if count:
        with file.writing() as connection:
            connection.execute(f"DELETE {rest}", values)


def counts(file: File) -> dict[int, int]:
    """Return how many there are, by fingerprint."""
    with file.reading():
        return dict(file.rows("SELECT fingerprint, count(*) FROM unproven GROUP BY fingerprint"))


def faults(file: File, targets: Iterable[Target]) -> Iterator[str]:
    """Yield in words what is wrong with those of some targets, whose programs are built again."""
    by_hash = {fingerprint(target): target for target in targets}
    for whose in records.read_prints(file):
        for row in [*file.rows(f"SELECT {_COLUMNS} FROM unproven WHERE fingerprint = ?", whose.id)]:
            try:
                _expect_row(file, whose, row)
                if target := by_hash.get(whose.hash):
                    _rebuilt(file, whose, target, _spec(row[0], target), row)
            except (Damaged, MorelloError) as error:
                yield error.message


def _key(spec: Spec) -> str:
    numbers = [[int(size) for size in spec.shape], [int(limit) for limit in spec.limits]]
    return f"{json.dumps(numbers)} {write(spec.logical)}"


def _spec(key: str, target: Target) -> Spec:
    """Return the Spec that a key stands for. Raises MorelloError."""
    try:
        (shape, limits), end = json.JSONDecoder().raw_decode(key)
        logical = attrs.evolve(read(key[end + 1 :], target.operations), shape=tuple(map(int, shape)))
        return Spec(logical, target.limits([*map(int, limits)]))
    except (TypeError, ValueError) as error:
        raise MorelloError(f"{key[:200]!r} stands for no Spec", "delete the file") from error


def _crc(whose: Print, values: Sequence[Any]) -> int:
    return zlib.crc32("\n".join(map(str, (whose.hash, *values))).encode("utf-8", "surrogatepass"))


def _expect_row(file: File, whose: Print, row: Sequence[Any]) -> None:
    """Raise Damaged unless a row is what was written."""
    *values, crc = row
    spec, cost, low, effort, schedule = values
    right = isinstance(spec, str) and isinstance(schedule, str) and all(type(one) is int for one in (cost, low, effort))
    if not right or not 1 <= low <= cost <= LARGEST_COST or effort < 0 or crc != _crc(whose, values):
        raise file.damaged(f"an unproven program has changed ({str(spec)[:200]})")


def _rebuilt(file: File, whose: Print, target: Target, spec: Spec, row: Sequence[Any]) -> Incumbent:
    """Return the program of a row, taken step by step. Raises Damaged where it is none, or of other cost."""
    _expect_row(file, whose, row)
    _, cost, low, effort, schedule, _ = row

    def nothing(left: Spec) -> Impl:
        raise MorelloError(f"nothing implements its {left.op}", "delete the file")

    try:
        impl = apply(Position(Leaf(spec)), parse_schedule(schedule, target), target, nothing).impl
    except (MorelloError, RecursionError, ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as error:
        raise file.damaged(f"an unproven program of {spec.op} cannot be built: {error}") from error
    if next(leaves(impl), None) is not None:
        raise file.damaged(f"an unproven program of {spec.op} is not finished")
    found = cost_and_peak(impl)
    if found.cost != cost or not fits(found.peak, spec.limits):
        raise file.damaged(f"an unproven program of {spec.op} costs {found.cost}, not {cost}, or does not fit")
    return Incumbent(impl, cost, low, effort)
