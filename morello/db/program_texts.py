"""Whole programs of Specs, stored as the text of their schedules, separately from answers: no answer rests on them.

An unproven program belongs to a fingerprint, one for each Spec; a measured one belongs to a machine.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from morello.db.answers import LARGEST_COST
from morello.db.file import DatabaseFile
from morello.db.fingerprint import fingerprint
from morello.db.labels import read, write
from morello.db.programs import replayed
from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import schedule_of, schedule_text
from morello.untrusted import parse_json

if TYPE_CHECKING:
    from morello.search.incumbents import Incumbent

_COLUMNS = "fingerprint, target, spec, machine, schedule, record, crc"
#: The unproven program of a Spec.
_INCUMBENT = "fingerprint = ? AND spec = ? AND machine = ''"


@attrs.frozen(kw_only=True)
class ProgramText:
    """A row of the table `programs`. `spec` is the text of a Spec, `record` a JSON object."""

    fingerprint: str = ""
    target: str
    spec: str
    machine: str = ""
    schedule: str = ""
    record: str = "{}"


def spec_text(spec: Spec) -> str:
    """Return a Spec as text: sizes and limits, then the labels of its table."""
    numbers = [[int(size) for size in spec.shape], [int(limit) for limit in spec.limits]]
    return f"{json.dumps(numbers)} {write(spec.logical)}"


def parse_spec_numbers(text: str) -> tuple[list[int], list[int], str]:
    """Return sizes, limits and labels of the text of a Spec. Raises ValueError."""
    numbers, end, labels = text.partition("]] ")
    try:
        shape, limits = parse_json(numbers + end)
    except TypeError as error:
        raise ValueError("a Spec has sizes and limits") from error
    for least, values in ((1, shape), (0, limits)):
        if not isinstance(values, list) or not all(type(one) is int and least <= one < 1 << 63 for one in values):
            raise ValueError("sizes are integers of at least 1, and limits of at least 0")
    if not labels.isprintable():
        raise ValueError("the labels of a Spec are a line of text")
    return shape, limits, labels


def parse_spec_text(text: str, target: Target) -> Spec:
    """Return the Spec that `spec_text` returned the text of. Raises MorelloError."""
    try:
        shape, limits, labels = parse_spec_numbers(text)
        logical = attrs.evolve(read(labels, target.operations, target.dtypes), shape=tuple(shape))
        return Spec(logical, target.limits(limits))
    except (TypeError, ValueError) as error:
        raise MorelloError(f"{text[:200]!r} is not a Spec: {error}", "delete the file") from error


def read_programs(file: DatabaseFile, condition: str, *values: str) -> Iterator[ProgramText]:
    """Yield the stored programs that meet a condition of SQL. Raises Damaged."""
    with file.reading() as connection:
        rows = connection.execute(f"SELECT {_COLUMNS} FROM programs WHERE {condition}", values).fetchall()
    for *texts, crc in rows:
        if not all(isinstance(one, str) for one in texts) or crc != _crc(texts):
            raise file.damaged(f"a stored program has changed ({str(texts[2])[:200]})")
        fingerprint, target, spec, machine, schedule, record = texts
        yield ProgramText(
            fingerprint=fingerprint, target=target, spec=spec, machine=machine, schedule=schedule, record=record
        )


def write_program(file: DatabaseFile, program: ProgramText) -> None:
    """Store a program in place of the one with its fingerprint, target, Spec and machine. Called in a transaction."""
    texts = attrs.astuple(program)
    file.connection.execute("INSERT OR REPLACE INTO programs VALUES (?, ?, ?, ?, ?, ?, ?)", (*texts, _crc(texts)))


def drop_programs(file: DatabaseFile, condition: str, *values: str) -> int:
    """Delete the stored programs that meet a condition of SQL; return their number."""
    with file.reading() as connection:
        (count,) = connection.execute(f"SELECT count(*) FROM programs WHERE {condition}", values).fetchone()
    if count:
        with file.writing() as connection:
            connection.execute(f"DELETE FROM programs WHERE {condition}", values)
    return count


def _crc(texts: Sequence[Any]) -> int:
    return zlib.crc32("\n".join(texts).encode("utf-8", "surrogatepass"))


def find_incumbent(file: DatabaseFile, target: Target, spec: Spec) -> Incumbent | None:
    """Return the stored program of a Spec, or None. Raises Damaged if its schedule does not give it."""
    row = next(read_programs(file, _INCUMBENT, fingerprint(target), spec_text(spec)), None)
    return None if row is None else rebuilt(file, target, row)


def store_incumbent(file: DatabaseFile, target: Target, best: Incumbent) -> None:
    """Store a program, unless a cheaper one is stored. The larger bound and effort are kept."""
    with file.writing():
        before = find_incumbent(file, target, best.impl.spec)
        if before is not None:
            low, expansions = max(before.low, best.low), max(before.expansions, best.expansions)
            best = attrs.evolve(before if before.cost <= best.cost else best, low=low, expansions=expansions)
        record = {"cost": best.cost, "low": best.low, "expansions": best.expansions}
        row = ProgramText(
            fingerprint=fingerprint(target),
            target=target.stored_name,
            spec=spec_text(best.impl.spec),
            schedule=schedule_text(schedule_of(best.impl)),
            record=json.dumps(record),
        )
        write_program(file, row)


def drop_incumbent(file: DatabaseFile, target: Target, spec: Spec) -> None:
    """Drop the stored program of a Spec."""
    drop_programs(file, _INCUMBENT, fingerprint(target), spec_text(spec))


def rebuilt(file: DatabaseFile, target: Target, row: ProgramText) -> Incumbent:
    """Return the program of a row. Raises Damaged if its schedule does not give it."""
    # Imported late, since that takes long, and only searches need unproven programs.
    from morello.search.incumbents import Incumbent

    try:
        record = parse_json(row.record)
        cost, low, expansions = numbers = [record[name] for name in ("cost", "low", "expansions")]
        if {*map(type, numbers)} != {int} or not 1 <= low <= cost <= LARGEST_COST or not 0 <= expansions < 1 << 63:
            raise MorelloError("its cost and bound contradict each other", "delete the file")
        impl, found = replayed(parse_spec_text(row.spec, target), row.schedule, target)
        if found.cost != cost:
            raise MorelloError(f"it costs {found.cost}, stored is {cost}", "delete the file")
    except (MorelloError, ValueError, TypeError, KeyError) as error:
        raise file.damaged(f"the unproven program of {row.spec[:200]}: {error}") from error
    return Incumbent(impl, cost, low, expansions)
