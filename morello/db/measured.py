"""Programs that were measured to be the fastest of a Spec: one for each kind of machine, compiler and thread count.

They are kept apart from answers: being fast on a machine proves nothing under the model, nor for other machines.
What was timed is C, so one is only used as long as its schedule still gives the same C, whatever Morello's sources are.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from morello.db.file import File
from morello.db.labels import write
from morello.ir.spec import Spec

_COLUMNS = "machine, schedule, key, record, crc"
#: Of a record: seconds per call, or what the target's metric says, how sure that is, the same of where tuning started.
_NUMBERS = ("value", "spread", "start", "gain")


@attrs.frozen(kw_only=True)
class Machine:
    """The kind of machine that a program was measured on: its CPU, the compiler, and the number of threads."""

    cpu: str
    compiler: str
    threads: int

    def __str__(self) -> str:
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        return f"{self.cpu}, {self.compiler}{threads}"


@attrs.frozen(kw_only=True)
class Measured:
    """The fastest program of a Spec that was measured: its schedule, a hash of its C, and its value.

    `value` and `start` are seconds per call of it and of the program that tuning began with, unless there is a
    `metric`; `gain` is how many times as fast it was when both were timed in turns, and `spread` the relative half of
    the interval that this is in. `way` are the items of the menu that led to it, with what each gained.
    """

    machine: Machine
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
        """Return what it is, in words."""
        better = f"as good by {self.metric}" if self.metric else "as fast"
        return f"measured on {self.machine}: {self.gain:.3g} times {better} as where tuning began, ± {self.spread:.1%}"


def every(file: File, target: str, spec: Spec) -> list[Measured]:
    """Return the programs of a Spec measured on any machine. Raises Damaged."""
    key = key_of(spec)
    with file.reading():
        query = f"SELECT {_COLUMNS} FROM measured WHERE target = ? AND spec = ?"
        return [_read(file, target, key, row) for row in [*file.rows(query, target, key)]]


def keep(file: File, target: str, spec: Spec, best: Measured) -> None:
    """Store a program in place of the one that was measured on such a machine before."""
    machine = json.dumps(attrs.asdict(best.machine), sort_keys=True)
    fields = {name: getattr(best, name) for name in (*_NUMBERS, "samples", "metric", "way")}
    values = machine, best.schedule, best.key, json.dumps(fields, sort_keys=True)
    row = target, key_of(spec), *values
    with file.writing() as connection:
        connection.execute("INSERT OR REPLACE INTO measured VALUES (?, ?, ?, ?, ?, ?, ?)", (*row, _crc(row)))


def forget(file: File, target: str, spec: Spec, machine: Machine) -> None:
    """Drop the program of a Spec that was measured on such a machine."""
    values = target, key_of(spec), json.dumps(attrs.asdict(machine), sort_keys=True)
    with file.writing() as connection:
        connection.execute("DELETE FROM measured WHERE target = ? AND spec = ? AND machine = ?", values)


def drop(file: File, target: str | None = None) -> int:
    """Drop all measured programs, or those of a target; return how many there were."""
    where, values = ("", ()) if target is None else (" WHERE target = ?", (target,))
    with file.writing() as connection:
        ((count,),) = [*file.rows(f"SELECT count(*) FROM measured{where}", *values)]
        connection.execute(f"DELETE FROM measured{where}", values)
    return count


def counts(file: File) -> dict[str, int]:
    """Return how many there are, by target."""
    with file.reading():
        return dict(file.rows("SELECT target, count(*) FROM measured GROUP BY target"))


def specs(file: File, target: str) -> Iterator[tuple[str, Measured]]:
    """Yield all measured programs of a target with the keys of their Specs. Raises Damaged."""
    with file.reading():
        rows = [*file.rows(f"SELECT spec, {_COLUMNS} FROM measured WHERE target = ?", target)]
    for key, *row in rows:
        yield key, _read(file, target, key, row)


def faults(file: File) -> Iterator[str]:
    """Yield in words what is wrong with what is stored."""
    for target in counts(file):
        with file.reading():
            rows = [*file.rows(f"SELECT spec, {_COLUMNS} FROM measured WHERE target = ?", target)]
        for key, *row in rows:
            if _parsed(target, key, row) is None:
                yield _damage(key)


def key_of(spec: Spec) -> str:
    """Return a Spec as text: sizes, limits, and all else."""
    numbers = [[int(size) for size in spec.shape], [int(limit) for limit in spec.limits]]
    return f"{json.dumps(numbers)} {write(spec.logical)}"


def _read(file: File, target: str, key: str, row: Sequence[Any]) -> Measured:
    found = _parsed(target, key, row)
    if found is None:
        raise file.damaged(_damage(key))
    return found


def _damage(key: str) -> str:
    return f"a measured program has changed ({str(key)[:200]})"


def _crc(row: Sequence[Any]) -> int:
    return zlib.crc32("\n".join(map(str, row)).encode("utf-8", "surrogatepass"))


def _parsed(target: str, key: str, row: Sequence[Any]) -> Measured | None:
    """Return what a row says, None if that is not what was written."""
    *texts, crc = row
    if not all(isinstance(one, str) for one in texts) or crc != _crc((target, key, *texts)):
        return None
    machine, schedule, digest, record = texts
    try:
        kind, fields = json.loads(machine), json.loads(record)
        way = tuple((str(item), float(gain)) for item, gain in fields.pop("way"))
        made = Measured(machine=Machine(**kind), schedule=schedule, key=digest, way=way, **fields)
    except (TypeError, ValueError, KeyError, AttributeError):
        return None
    numbers: Mapping[str, float] = {name: getattr(made, name) for name in _NUMBERS}
    return made if all(isinstance(one, int | float) and math.isfinite(one) for one in numbers.values()) else None
