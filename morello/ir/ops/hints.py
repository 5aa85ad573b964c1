"""Hints to search: steps that it may leave untried for an operation."""

from __future__ import annotations

import attrs


@attrs.frozen
class SearchHints:
    """Steps that search does not take for an operation, though schedules may.

    They say nothing of meaning. An operation states them itself (`Operation.search_hints`), so that a new one is one
    file, and search needs no list of operations.
    """

    #: Operands that search moves to registers here, and not only where this has become other operations; None: all.
    in_registers: tuple[int, ...] | None = None
    #: Iteration dimensions of which search takes one value at a time, or all.
    unit_tiles_only: tuple[int, ...] = ()

    def to_registers(self, operand: int) -> bool:
        """Return whether search moves an operand to registers here."""
        return self.in_registers is None or operand in self.in_registers

    @property
    def all_to_registers(self) -> bool:
        """Return True if search moves every operand to registers here."""
        return self.in_registers is None
