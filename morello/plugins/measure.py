"""The parts of `morello calibrate` that only a target knows: what a unit of cost is, and how tables are measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

import attrs

#: Rows of a table of a target.
Rows: TypeAlias = tuple[tuple[int, ...], ...]


@attrs.frozen(kw_only=True)
class Peak:
    """C that does nothing but multiply and add, as much at a time as a core can: no product is faster.

    `source` defines `static void morello_peak(void *memory)`, which is built with `flags`; a call does `flops`
    operations; a multiply-add counts as two.
    """

    source: str
    flops: int
    flags: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class Clock:
    """C that takes a known number of units of a target's costs on every machine.

    `source` defines `static void morello_clock(void *memory)`; a call takes `units`, such as a chain of instructions
    whose latency is known. `peak` gives the peak of this machine for operands of these types, by name, if there is one.
    """

    source: str
    units: int
    peak: Callable[[tuple[str, ...]], Peak | None] = lambda types: None


class Meter(Protocol):
    """Times C on this machine: what `morello calibrate` hands to measurements.

    `quick` asks for less time and tolerates more noise.
    """

    quick: bool

    def build(self, source: str, flags: Sequence[str] = ()) -> Path:
        """Return the path of a shared object built from C. Raises ToolchainError."""
        ...

    def units(self, source: str, names: Sequence[str]) -> list[float]:
        """Return the least that a call of each function in `source` takes, in units of the target's costs.

        Functions are `static void NAME(void *memory)`; `memory` is of as many bytes as the largest level needs.
        """
        ...


@attrs.frozen(kw_only=True)
class Measurement:
    """The way to measure a table: `measure` returns as many rows as the target has, with the same first `keys` columns.

    These say what a row is for; all other columns are costs. `total` is what a call takes by a row, or what else rows
    are compared by: by default the sum of the costs.
    """

    table: str
    keys: int
    measure: Callable[[Meter], Rows]
    total: Callable[[tuple[int, ...]], float] | None = None

    def totals(self, rows: Rows) -> list[float]:
        """Return what rows are compared by."""
        return [float(sum(row[self.keys :]) if self.total is None else self.total(row)) for row in rows]
