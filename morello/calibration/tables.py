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
from morello.plugins.rules import rows_rule

#: The mean relative difference between two measurements of a table that hold still, and how often it is measured.
_STILL, _MOST = 0.03, 4


@attrs.frozen
class MeasuredTable:
    """The rows of a table as measured, and those that the target had.

    `error` is the mean relative difference between the last two measurements; None where there was only one.
    """

    measurement: Measurement
    rows: Rows
    old: Rows
    error: float | None

    @property
    def name(self) -> str:
        return self.measurement.table

    def against(self, rows: Rows) -> list[float]:
        """Return how many times as much as `rows` it says, the smallest first."""
        return ratios(self.measurement.totals(rows), self.measurement.totals(self.rows))


def measure_table(meter: UnitMeter, measurement: Measurement, declared: Tables) -> MeasuredTable:
    """Measure a table until two measurements agree, or time is up; of these two it has the means.

    Raises PluginError for rows that are not for what the target's are for.
    """
    measured = [_measured(meter, measurement, declared)]
    error = None
    while len(measured) < (2 if meter.quick else _MOST) and time.monotonic() < meter.timer.deadline:
        measured.append(_measured(meter, measurement, declared))
        error = difference(measurement.totals(measured[-2]), measurement.totals(measured[-1]))
        if error <= _STILL:
            break
    mean = np.rint(np.mean([np.array(rows) for rows in measured[-2:]], axis=0)).astype(int)
    rows = tuple(tuple(row) for row in mean.tolist())
    return MeasuredTable(measurement, rows, declared[measurement.table], error)


def difference(totals: Sequence[float], others: Sequence[float]) -> float:
    """Return by how much rows differ on average, in proportion to what they are on average."""
    one, other = np.array(totals), np.array(others)
    return float(np.abs(one - other).mean() / max((np.abs(one) + np.abs(other)).mean() / 2, 1e-9))


def _measured(meter: UnitMeter, measurement: Measurement, declared: Tables) -> Rows:
    rows = measurement.measure(meter)
    rule = rows_rule(rows)
    if rule is None and [row[: measurement.keys] for row in rows] != [
        row[: measurement.keys] for row in declared[measurement.table]
    ]:
        rule = f"rows for what the target's are for: the first {measurement.keys} columns are the same"
    if rule:
        raise PluginError(
            f"the measurement of table {measurement.table} must give {rule}", "mend or uninstall its plugin"
        )
    return rows


def ratios(totals: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return how many times as large `others` are, where both are positive, the smallest first."""
    return sorted(other / one for one, other in zip(totals, others, strict=True) if one > 0 and other > 0)
