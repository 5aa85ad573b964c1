"""The best programs of Specs whose optimality is unproven, one for each Spec and fingerprint."""

from __future__ import annotations

import json

from morello.db.answers import LARGEST_COST
from morello.db.file import DatabaseFile
from morello.db.fingerprint import fingerprint
from morello.db.program_texts import (
    ProgramText,
    drop_programs,
    parse_spec_text,
    read_programs,
    spec_text,
    write_program,
)
from morello.db.programs import replayed
from morello.errors import MorelloError
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import schedule_of, schedule_text
from morello.search.incumbents import Incumbent

_CONDITION = "fingerprint = ? AND spec = ? AND machine = ''"


def find_incumbent(file: DatabaseFile, target: Target, spec: Spec) -> Incumbent | None:
    """Return the stored program of a Spec, or None. Raises Damaged if its schedule does not give it."""
    row = next(read_programs(file, _CONDITION, fingerprint(target), spec_text(spec)), None)
    return None if row is None else rebuilt(file, target, row)


def store_incumbent(file: DatabaseFile, target: Target, best: Incumbent) -> None:
    """Store a program, unless a cheaper one is stored. The larger bound and effort are kept."""
    with file.writing():
        before = find_incumbent(file, target, best.impl.spec)
        if before is not None:
            impl = before.impl if before.cost <= best.cost else best.impl
            expansions = max(before.expansions, best.expansions)
            best = Incumbent(impl, min(before.cost, best.cost), max(before.low, best.low), expansions)
        record = {"cost": best.cost, "low": best.low, "expansions": best.expansions}
        row = ProgramText(
            fingerprint=fingerprint(target),
            target=target.name,
            spec=spec_text(best.impl.spec),
            schedule=schedule_text(schedule_of(best.impl)),
            record=json.dumps(record),
        )
        write_program(file, row)


def drop_incumbent(file: DatabaseFile, target: Target, spec: Spec) -> None:
    """Drop the stored program of a Spec."""
    drop_programs(file, _CONDITION, fingerprint(target), spec_text(spec))


def rebuilt(file: DatabaseFile, target: Target, row: ProgramText) -> Incumbent:
    """Return the program of a row. Raises Damaged if its schedule does not give it."""
    try:
        cost, low, expansions = (int(json.loads(row.record)[name]) for name in ("cost", "low", "expansions"))
        if not 1 <= low <= cost <= LARGEST_COST or expansions < 0:
            raise MorelloError("its cost and bound contradict each other", "delete the file")
        impl, found = replayed(parse_spec_text(row.spec, target), row.schedule, target)
        if found.cost != cost:
            raise MorelloError(f"it costs {found.cost}, stored is {cost}", "delete the file")
    except (MorelloError, ValueError, TypeError, KeyError) as error:
        raise file.damaged(f"the unproven program of {row.spec[:200]}: {error}") from error
    return Incumbent(impl, cost, low, expansions)
