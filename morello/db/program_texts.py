"""Whole programs of Specs, stored as the text of their schedules: apart from answers, since no answer rests on them.

A program belongs to a fingerprint, if its cost counts, or to a machine, if its measured time does.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from morello.db.file import DatabaseFile
from morello.db.labels import read, write
from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target

_COLUMNS = "fingerprint, target, spec, machine, schedule, record, crc"


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


def parse_spec_text(text: str, target: Target) -> Spec:
    """Return the Spec that `spec_text` returned the text of. Raises MorelloError."""
    try:
        (shape, limits), end = json.JSONDecoder().raw_decode(text)
        logical = attrs.evolve(read(text[end + 1 :], target.operations), shape=tuple(map(int, shape)))
        return Spec(logical, target.limits([*map(int, limits)]))
    except (TypeError, ValueError) as error:
        raise MorelloError(f"{text[:200]!r} is not a Spec", "delete the file") from error


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
