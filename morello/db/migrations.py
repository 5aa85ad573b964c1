"""Databases of earlier formats, made into what they are now: in place, one function for each step.

Answers belong to the sources that found them, so those of another version of Morello are seldom used again by this one.
They are kept all the same where they mean what they meant: another version may use the file, or what is exported of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs

from morello.db.guard import TABLES, Guarded, schema_fault

#: The tables that formats 2 to 6 had. Their columns were others before 6.
_BEFORE_UNPROVEN = ("fingerprints", "tables", "steps", "rectangles")


@attrs.frozen
class Migration:
    """A step to a later format.

    `fault` tells from the schema, of a file of so many bytes, why it is not of the earlier one. `convert` does the step
    in a transaction, on a connection that may do anything. `kept` says in words what becomes of the answers.
    """

    to: int
    fault: Callable[[Guarded, int], str | None]
    convert: Callable[[Guarded], None]
    kept: str


def _fault_of_6(connection: Guarded, size: int) -> str | None:
    # As they still are; a step that changes them has to spell out here what they were.
    return schema_fault(connection, size, {name: TABLES[name] for name in _BEFORE_UNPROVEN})


def _fault_of_7(connection: Guarded, size: int) -> str | None:
    return schema_fault(connection, size, {name: TABLES[name] for name in (*_BEFORE_UNPROVEN, "unproven")})


def _add_unproven(connection: Guarded) -> None:
    connection.execute(TABLES["unproven"])


def _add_measured(connection: Guarded) -> None:
    connection.execute(TABLES["measured"])


def _fault_before_6(connection: Guarded, size: int) -> str | None:
    """Look only at what objects there are, as all of them go: nothing but tables, and the indices of these."""
    query = "SELECT name, type, sql FROM sqlite_master LIMIT 20"
    for name, kind, sql in [*connection.rows(query, (), size)]:
        table = kind == "table" and name in _BEFORE_UNPROVEN and str(sql).startswith("CREATE TABLE ")
        if not table and not (kind == "index" and sql is None):
            return f"its {str(kind)[:40]} {str(name)[:40]!r} is none of a Morello database"
    return None


def _start_anew(connection: Guarded) -> None:
    for name in reversed(_BEFORE_UNPROVEN):
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for statement in TABLES.values():
        connection.execute(statement)


#: By the format that they start from. Before 6, limits were counted in ways that the file does not tell.
MIGRATIONS: Mapping[int, Migration] = MappingProxyType(
    {
        **dict.fromkeys(
            (2, 3, 4, 5), Migration(8, _fault_before_6, _start_anew, "its answers do not fit and are dropped")
        ),
        6: Migration(7, _fault_of_6, _add_unproven, "all of its answers are kept"),
        7: Migration(8, _fault_of_7, _add_measured, "all of its answers are kept"),
    }
)
