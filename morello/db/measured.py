"""Programs that were measured to be the fastest of a Spec, one for each kind of machine, compiler and thread count.

A time proves nothing under the model, nor for other machines, so they answer no Spec. They are used as long as their
schedule gives the same C, and therefore belong to no fingerprint.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import attrs

from morello.db.file import DatabaseFile
from morello.db.program_texts import ProgramText, drop_programs, read_programs, spec_text, write_program
from morello.ir.spec import Spec

_NUMBERS = ("value", "spread", "start", "gain")
_CONDITION = "fingerprint = '' AND target = ?"


@attrs.frozen(kw_only=True)
class MachineKind:
    """The kind of machine that a program was measured on: its CPU, the compiler, and the number of threads."""

    cpu: str
    compiler: str
    threads: int

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
    schedule: str
    key: str
    value: float
    spread: float
    start: float
    gain: float
    samples: int
    metric: str = ""
    way: tuple[tuple[str, float], ...] = ()

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
        fields = json.loads(row.record)
        way = tuple((str(edit), float(gain)) for edit, gain in fields.pop("way"))
        found = Measured(machine=MachineKind(**json.loads(row.machine)), schedule=row.schedule, way=way, **fields)
        if not all(math.isfinite(getattr(found, name)) for name in _NUMBERS):
            raise ValueError("its numbers are not finite")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise file.damaged(f"the measured program of {row.spec[:200]}: {error}") from error
    return found


def write_measured(file: DatabaseFile, target: str, spec: Spec, best: Measured) -> None:
    """Store a program in place of the one that was measured on such a machine before."""
    record = {name: getattr(best, name) for name in (*_NUMBERS, "key", "samples", "metric", "way")}
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
