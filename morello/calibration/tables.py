"""Measure the tables of a target until results are stable."""

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

#: Measurements are stable below this mean relative difference; the most measurements of a table.
_STABLE, _MOST = 0.03, 4


@attrs.frozen
class MeasuredTable:
    """The measured rows of a table, and the declared ones.

    `error` is the mean relative difference between the last two measurements; None if there was only one.
    """

    measurement: Measurement
    rows: Rows
    old: Rows
    error: float | None

    @property
    def name(self) -> str:
        return self.measurement.table

    def against(self, rows: Rows) -> list[float]:
        """Return the ratios of its costs to those of `rows`, in ascending order."""
        return ratios(self.measurement.totals(rows), self.measurement.totals(self.rows))


def measure_table(meter: UnitMeter, measurement: Measurement, declared: Tables) -> MeasuredTable:
    """Measure a table until two measurements agree or time is up. Return the means of the last two.

    Raises PluginError for rows whose keys differ from the declared ones.
    """
    measured = [_measured(meter, measurement, declared)]
    error = None
    while len(measured) < (2 if meter.quick else _MOST) and time.monotonic() < meter.timer.deadline:
        measured.append(_measured(meter, measurement, declared))
        error = difference(measurement.totals(measured[-2]), measurement.totals(measured[-1]))
        if error <= _STABLE:
            break
    mean = np.rint(np.mean([np.array(rows) for rows in measured[-2:]], axis=0)).astype(int)
    rows = tuple(tuple(row) for row in mean.tolist())
    return MeasuredTable(measurement, rows, declared[measurement.table], error)


def difference(totals: Sequence[float], others: Sequence[float]) -> float:
    """Return the mean absolute difference, relative to the mean magnitude."""
    one, other = np.array(totals), np.array(others)
    return float(np.abs(one - other).mean() / max((np.abs(one) + np.abs(other)).mean() / 2, 1e-9))


def _measured(meter: UnitMeter, measurement: Measurement, declared: Tables) -> Rows:
    rows = measurement.measure(meter)
    rule = rows_rule(rows)
    if rule is None and [row[: measurement.keys] for row in rows] != [
        row[: measurement.keys] for row in declared[measurement.table]
    ]:
        rule = f"rows with the declared keys in the first {measurement.keys} columns"
    if rule:
        raise PluginError(
            f"the measurement of table {measurement.table} must give {rule}", "fix or uninstall its plugin"
        )
    return rows


def ratios(totals: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return the ratios of `others` to `totals` where both are positive, in ascending order."""
    return sorted(other / one for one, other in zip(totals, others, strict=True) if one > 0 and other > 0)
