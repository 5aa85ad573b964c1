"""The budget of a search. Imports nothing slow, as its users may not search at all."""

from __future__ import annotations

import time

import attrs

from morello.search.found import Found
from morello.search.memory import resident_lately


@attrs.frozen
class SearchBudget:
    """The limits at which a search ends and returns its best program, proven optimal or not.

    A search ends after `seconds`, after expanding `expansions` Specs, with a program whose cost is at most `gap` above
    the proven lower bound (0.05: 5 %), or when the process takes more than `memory` bytes. By default it ends with the
    proof.
    """

    seconds: float | None = None
    gap: float = 0.0
    expansions: int | None = None
    memory: int | None = None

    @property
    def full(self) -> bool:
        """Return whether the process takes more memory than granted."""
        return self.memory is not None and resident_lately() > self.memory

    def has_made(self, found: Found) -> bool:
        """Return whether an earlier search already used this budget for a program. Its time is not recorded.

        An optimal cost without a reconstructed program does not count.
        """
        tried = self.expansions is not None and found.expansions >= self.expansions
        return found.low < found.cost and (tried or found.cost <= (1 + self.gap) * found.low)

    @property
    def proves(self) -> bool:
        """Return whether the search ends with the proof only."""
        return self.seconds is None and not self.gap and self.expansions is None

    def less(self, expansions: int) -> SearchBudget:
        """Return the budget left after some expansions."""
        left = None if self.expansions is None else max(0, self.expansions - expansions)
        return attrs.evolve(self, expansions=left)

    def deadline(self) -> float:
        """Return the end of a search that begins now, in seconds of `time.monotonic`."""
        return float("inf") if self.seconds is None else time.monotonic() + self.seconds
