"""Measures the tables of a target until they hold still."""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
import numpy as np

from morello.calibration.meter import UnitMeter
from morello.errors import PluginError
from morello.kernels.machine import Tables
from morello.plugins.measure import Measurement, Rows
from morello.plugins.validation import rows_rule

#: The mean relative difference between two measurements of a table that hold still, and how often it is measured.
_STILL, _MOST = 0.03, 4


@attrs.frozen
class MeasuredTable:
    """The rows of a table as measured, and those that the target had.

    `error` is the mean relative difference between the last two measurements; None where there was only one.
    """

    name: str
    keys: int
    rows: Rows
    old: Rows
    error: float | None


def measure_table(meter: UnitMeter, one: Measurement, declared: Tables) -> MeasuredTable:
    """Measure a table until two measurements agree, or time is up; of these two it has the means.

    Raises PluginError for rows that are not for what the target's are for.
    """
    found = [_measured(meter, one, declared)]
    error = None
    while len(found) < (2 if meter.quick else _MOST) and time.monotonic() < meter.timer.deadline:
        found.append(_measured(meter, one, declared))
        error = difference(found[-2], found[-1], one.keys)
        if error <= _STILL:
            break
    mean = np.rint(np.mean([np.array(rows) for rows in found[-2:]], axis=0)).astype(int)
    rows = tuple(tuple(row) for row in mean.tolist())
    return MeasuredTable(one.table, one.keys, rows, declared[one.table], error)


def difference(rows: Rows, others: Rows, keys: int) -> float:
    """Return by how much costs differ on average: by column, in proportion to what is in it on average."""
    one, other = (np.array(each, dtype=float)[:, keys:] for each in (rows, others))
    scale = np.maximum(np.abs(one + other).mean(axis=0) / 2, 1e-9)
    return float((np.abs(one - other).mean(axis=0) / scale).mean())


def _measured(meter: UnitMeter, one: Measurement, declared: Tables) -> Rows:
    rows = one.measure(meter)
    rule = rows_rule(rows)
    if rule is None and [row[: one.keys] for row in rows] != [row[: one.keys] for row in declared[one.table]]:
        rule = f"rows for what the target's are for: the first {one.keys} columns are the same"
    if rule:
        raise PluginError(f"the measurement of table {one.table} must give {rule}", "mend or uninstall its plugin")
    return rows


def ratios(rows: Rows, others: Rows, keys: int) -> Sequence[float]:
    """Return how many times as large as `rows` the costs of `others` are, where these are not 0, the smallest first."""
    one, other = (np.array(each, dtype=float)[:, keys:].ravel() for each in (rows, others))
    return np.sort(other[one > 0] / one[one > 0]).tolist()
