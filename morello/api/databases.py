"""Databases of solved Specs: their contents as data, and what `morello db` does with them for all installed targets."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from morello.db import maintenance, measured
from morello.db.answers import AnswerKind, Ints
from morello.db.boxes import to_limits, to_sizes
from morello.db.default import default_place, is_address, open_store
from morello.db.export_import import import_lines
from morello.db.fingerprint import fingerprint
from morello.db.labels import read
from morello.db.maintenance import Summary
from morello.db.measured import Measured
from morello.db.store import SpecStore
from morello.db.tables import AnswerTable
from morello.errors import MorelloError, PluginDisabled, PluginError, UnknownName
from morello.ir.impl import AllowedSteps
from morello.kernels.target import Target
from morello.paths import make_private
from morello.plugins.registry import installed
from morello.rewrites.allowed import confined
from morello.untrusted import read_lines


def open_database(file: str, *, new: bool = False) -> SpecStore:
    """Return the database in a file or at an address, or the `default` one.

    Raises MorelloError if the file does not exist, unless it may be `new`, and if the default one is switched off.
    """
    place = default_place() if file == "default" else file
    if place is None:
        raise MorelloError("the default database is switched off", "unset MORELLO_DB, or give a path")
    if is_address(place):
        return open_store(place)
    path = Path(place)
    if file == "default" and new:
        make_private(path.parent)
    if not new and not path.exists():
        raise MorelloError(f"database {path} does not exist", "give the path of an existing database")
    return SpecStore(path)


def all_targets(*, strict: bool = False) -> list[Target]:
    """Return all installed targets with all profiles. Faulty ones are skipped with a warning, or raise PluginError."""
    registry, found = installed(), list[Target]()
    for name in registry.names:
        try:
            found += registry.variants(name)
        except PluginError as error:
            if strict:
                raise
            warnings.warn(f"going on without target {name}: {error}", PluginDisabled, stacklevel=2)
    return found


def targets_of(store: SpecStore, *, strict: bool = False) -> list[Target]:
    """Return all installed targets, and those with other steps for which a database has answers.

    Faulty ones are skipped with a warning, or raise PluginError.
    """
    found = all_targets(strict=strict)
    for name in maintenance.target_names(store.whole()):
        narrow = name.removesuffix(f" {AllowedSteps(all_layouts=True)}")
        target, _, steps = narrow.partition(" without ")
        without = tuple(steps.strip("[]").split(", ")) if steps else ()
        allowed = AllowedSteps(without=without, all_layouts=narrow != name)
        found += [confined(one, allowed) for one in found if allowed and one.stored_name == target]
    return found


@attrs.frozen
class DatabaseStats:
    """The contents of a database: counts by fingerprint, and measured programs by target.

    `current` are the fingerprints of installed targets as they are now.
    """

    name: str
    bytes: int
    summaries: list[Summary]
    current: frozenset[str]
    measured: dict[str, int]

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as plain data, as `morello db stats --json` prints them."""
        rows = [
            {**attrs.asdict(one), "current": one.fingerprint in self.current, "specs": one.specs}
            for one in self.summaries
        ]
        return {"file": self.name, "bytes": self.bytes, "fingerprints": rows, "measured": self.measured}


def database_stats(store: SpecStore) -> DatabaseStats:
    """Return the counts of a database's contents."""
    whole = store.whole()
    found = maintenance.summaries(whole)
    current = frozenset(map(fingerprint, targets_of(whole))) if found else frozenset[str]()
    return DatabaseStats(store.name, store.size(), found, current, measured.counts(whole.file))


def largest_tables(store: SpecStore) -> list[AnswerTable]:
    """Return all tables, those with the most rectangles first."""
    return sorted(store.whole().tables(), key=lambda one: -len(one.boxes))


def measured_programs(store: SpecStore) -> list[tuple[str, str, Measured]]:
    """Return the measured programs with the name of their target and the text of their Spec."""
    file = store.whole().file
    return [(name, *one) for name in measured.counts(file) for one in measured.specs(file, name)]


def drop_measured(store: SpecStore) -> int:
    """Drop all measured programs; return their number."""
    return store.drop_measured()


def read_source(source: str) -> Iterable[AnswerTable]:
    """Return the tables of a database, by path or address, or of exported text; `-` is standard input.

    Raises MorelloError.
    """
    if source == "default" or is_address(source) or _is_sqlite(Path(source)):
        store = open_database(source).whole()
        store.file.check()
        return store.tables()
    lines = read_lines(source, "give a file that `morello db export` wrote, or the database itself")
    return import_lines(lines, "standard input" if source == "-" else source)


def _is_sqlite(path: Path) -> bool:
    with suppress(OSError):
        # A pipe can be read only once.
        if path.is_file():
            with path.open("rb") as file:
                return file.read(15) == b"SQLite format 3"
    return False


def outdated(store: SpecStore) -> tuple[list[Summary], list[Summary]]:
    """Return the counts of answers that belong to no installed target as it is now, and those of the others.

    Raises MorelloError if plugins are disabled, since the answers of their targets cannot be identified.
    """
    targets = targets_of(store, strict=True)
    if disabled := dict.fromkeys(one.plugin.name for one in installed().disabled):
        raise MorelloError(
            f"plugins are disabled, so the answers of their targets cannot be identified: {', '.join(disabled)}",
            "`morello targets` lists the reasons: repair or uninstall them",
        )
    current, found = {*map(fingerprint, targets)}, maintenance.summaries(store.whole())
    return (
        [one for one in found if one.fingerprint not in current],
        [one for one in found if one.fingerprint in current],
    )


@attrs.frozen
class Axis:
    """An axis of a plane: its name, and the value at each position, in order."""

    name: str
    values: tuple[int, ...]


@attrs.frozen
class TablePlane:
    """The rectangles of a table over two axes: first and last positions on `x` and `y`, and the kind of the answer."""

    labels: str
    rectangles: int
    x: Axis
    y: Axis
    shapes: list[tuple[tuple[int, int], tuple[int, int], str]]


def table_plane(store: SpecStore, number: int | None = None, axes: str | None = None) -> TablePlane:
    """Return the rectangles of one of the `largest_tables`, by default the first, over two axes such as `m,n`.

    Axes have only the values that occur; by default they are the last two sizes. Raises MorelloError for an unknown
    table or axis.
    """
    tables, number = largest_tables(store), number or 1
    if not 1 <= number <= len(tables):
        raise MorelloError(f"the database has no table {number}", "`morello db stats --tables 20` lists its tables")
    table = tables[number - 1]
    logical = read(table.labels, installed().operations, installed().dtypes)
    names = [*logical.dims, *table.owner.level_names]
    chosen, boxes = _axes(axes, names, table.rank), table.boxes
    sides = [np.stack([boxes.low[:, axis], boxes.high[:, axis]], axis=1) for axis in chosen]
    ticks = [
        np.unique(np.concatenate([np.arange(low, high + 1) for low, high in np.unique(side, axis=0)])) for side in sides
    ]
    flat = np.unique(np.concatenate([*map(np.searchsorted, ticks, sides), boxes.kind[:, None]], axis=1), axis=0)
    shapes = [((x0, x1), (y0, y1), AnswerKind(kind).name.lower()) for x0, x1, y0, y1, kind in flat.tolist()]
    x, y = (
        Axis(names[axis] if axis < table.rank else f"{names[axis]} limit, bytes", _values(table, axis, own))
        for axis, own in zip(chosen, ticks, strict=True)
    )
    return TablePlane(table.labels, len(boxes), x, y, shapes)


def _axes(asked: str | None, names: Sequence[str], rank: int) -> tuple[int, int]:
    chosen = asked.split(",") if asked is not None else [*names[max(0, rank - 2) : rank], *names[rank:]][:2]
    if len(chosen) != 2 or not set(chosen) <= set(names) or chosen[0] == chosen[1]:
        raise UnknownName(
            f"{asked!r} are no two axes of the table", f"give two of {', '.join(names)}, separated by a comma"
        )
    return names.index(chosen[0]), names.index(chosen[1])


def _values(table: AnswerTable, axis: int, coordinates: Ints) -> tuple[int, ...]:
    """Return the sizes, or bytes, that coordinates [N] along an axis stand for."""
    if axis < table.rank:
        return tuple(to_sizes(coordinates).tolist())
    level = axis - table.rank
    return tuple(to_limits(coordinates[:, None], table.owner.grids[level : level + 1])[:, 0].tolist())
