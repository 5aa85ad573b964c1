"""The effort that a search may take: nothing that takes long to import, as those who ask for it may not search."""

from __future__ import annotations

import time

import attrs

from morello.search.found import Found
from morello.search.memory import resident_lately


@attrs.frozen
class Effort:
    """The effort that a search may take until it hands out the best program it has, proven cheapest or not.

    It ends after so many `seconds`, when so many Specs were taken apart (`expansions`), or when it has a program that
    costs at most `gap` more than what is proven that it must (0.05: 5 %). By default it ends with the proof. It also
    ends when the process takes more than so many bytes of `memory`.
    """

    seconds: float | None = None
    gap: float = 0.0
    expansions: int | None = None
    memory: int | None = None

    @property
    def full(self) -> bool:
        """Return whether the process takes as much memory as it may."""
        return self.memory is not None and resident_lately() > self.memory

    def has_made(self, found: Found) -> bool:
        """Return whether so much effort was made for a program already; of time nobody knows.

        One that is proven cheapest, but not chosen among several, will not do.
        """
        tried = self.expansions is not None and found.effort >= self.expansions
        return found.low < found.cost and (tried or found.cost <= (1 + self.gap) * found.low)

    @property
    def proves(self) -> bool:
        """Return whether only the proof is good enough."""
        return self.seconds is None and not self.gap and self.expansions is None

    def less(self, expansions: int) -> Effort:
        """Return the effort that is left after some Specs were taken apart."""
        left = None if self.expansions is None else max(0, self.expansions - expansions)
        return attrs.evolve(self, expansions=left)

    def deadline(self) -> float:
        """Return the time at which it ends, by `time.monotonic`, if it begins now."""
        return float("inf") if self.seconds is None else time.monotonic() + self.seconds
