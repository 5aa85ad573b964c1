"""Programs that were measured to be the fastest of a Spec, one for each kind of machine, compiler and thread count.

A time proves nothing under the model, nor for other machines, so they answer no Spec. They are used as long as their
schedule gives the same C, and therefore belong to no fingerprint.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Iterator
from typing import Any

import attrs

from morello.db.file import DatabaseFile
from morello.db.program_texts import (
    ProgramText,
    drop_programs,
    parse_spec_numbers,
    read_programs,
    spec_text,
    write_program,
)
from morello.db.programs import LONGEST_SCHEDULE
from morello.ir.spec import Spec
from morello.untrusted import parse_json

_CONDITION = "fingerprint = '' AND target = ?"


def _line(_: object, field: attrs.Attribute[Any], text: Any) -> None:
    if not isinstance(text, str) or not text.isprintable():
        raise ValueError(f"{field.name} is a line of text, not {reprlib.repr(text)}")


def _schedule(_: object, field: attrs.Attribute[Any], text: Any) -> None:
    if len(text) > LONGEST_SCHEDULE:
        raise ValueError(f"{field.name} has more than {LONGEST_SCHEDULE >> 10} KiB")


def _number(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"{field.name} is a finite number that is not negative, not {reprlib.repr(value)}")


def _count(_: object, field: attrs.Attribute[Any], value: Any) -> None:
    if type(value) is not int or not 0 <= value < 1 << 31:
        raise ValueError(f"{field.name} is an integer from 0 to 2^31, not {reprlib.repr(value)}")


def _gains(_: object, field: attrs.Attribute[Any], way: Any) -> None:
    for edit, gain in way:
        _line(None, field, edit)
        _number(None, field, gain)


@attrs.frozen(kw_only=True)
class MachineKind:
    """The kind of machine that a program was measured on: its CPU, the compiler, and the number of threads."""

    cpu: str = attrs.field(validator=_line)
    compiler: str = attrs.field(validator=_line)
    threads: int = attrs.field(validator=_count)

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.cpu}, {self.compiler}{threads}"

    @property
    def text(self) -> str:
        return json.dumps(attrs.asdict(self), sort_keys=True)


@attrs.frozen(kw_only=True)
class Measured:
    """The fastest measured program of a Spec: its schedule, a hash of its C, and its value.

    `value` and `start` are seconds per call of the program and of the one that tuning began with, or values of
    `metric` if that is set. `gain` is the ratio of their times, measured in turns, and `spread` the relative half
    width of its confidence interval. `way` lists the edits that led to the program, with the gain of each.
    """

    machine: MachineKind
    schedule: str = attrs.field(validator=_schedule)
    key: str = attrs.field(validator=_line)
    value: float = attrs.field(validator=_number)
    spread: float = attrs.field(validator=_number)
    start: float = attrs.field(validator=_number)
    gain: float = attrs.field(validator=_number)
    samples: int = attrs.field(validator=_count)
    metric: str = attrs.field(default="", validator=_line)
    way: tuple[tuple[str, float], ...] = attrs.field(default=(), validator=_gains)

    @property
    def words(self) -> str:
        """Return a description in one line."""
        better = f"as good by {self.metric}" if self.metric else "as fast"
        return f"measured on {self.machine}: {self.gain:.3g} times {better} as where tuning began, ± {self.spread:.1%}"


def specs(file: DatabaseFile, target: str, spec: Spec | None = None) -> Iterator[tuple[str, Measured]]:
    """Yield the measured programs of a target, or of one of its Specs, with the text of their Spec. Raises Damaged."""
    condition, values = (
        (_CONDITION, [target]) if spec is None else (f"{_CONDITION} AND spec = ?", [target, spec_text(spec)])
    )
    for row in read_programs(file, condition, *values):
        yield row.spec, parse_measured(file, row)


def parse_measured(file: DatabaseFile, row: ProgramText) -> Measured:
    """Return the measured program of a row. Raises Damaged."""
    try:
        parse_spec_numbers(row.spec)
        fields = parse_json(row.record)
        way = tuple((edit, gain) for edit, gain in fields.pop("way"))
        return Measured(machine=MachineKind(**parse_json(row.machine)), schedule=row.schedule, way=way, **fields)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise file.damaged(f"the measured program of {row.spec[:200]!r}: {error}") from error


def write_measured(file: DatabaseFile, target: str, spec: Spec, best: Measured) -> None:
    """Store a program in place of the one that was measured on such a machine before."""
    record = attrs.asdict(best, filter=lambda field, _: field.name not in ("machine", "schedule"))
    row = ProgramText(
        target=target,
        spec=spec_text(spec),
        machine=best.machine.text,
        schedule=best.schedule,
        record=json.dumps(record, sort_keys=True),
    )
    with file.writing():
        write_program(file, row)


def drop(
    file: DatabaseFile, target: str | None = None, spec: Spec | None = None, machine: MachineKind | None = None
) -> int:
    """Drop all measured programs, or those of a target, Spec and machine; return their number."""
    given = {"target": target, "spec": spec and spec_text(spec), "machine": machine and machine.text}
    wanted = {name: value for name, value in given.items() if value is not None}
    return drop_programs(
        file, " AND ".join(["fingerprint = ''", *(f"{name} = ?" for name in wanted)]), *wanted.values()
    )


def counts(file: DatabaseFile) -> dict[str, int]:
    """Return the number of measured programs of each target."""
    with file.reading() as connection:
        query = "SELECT target, count(*) FROM programs WHERE fingerprint = '' GROUP BY target ORDER BY target"
        return dict(connection.execute(query).fetchall())
