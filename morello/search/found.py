"""Programs that were found by a search which may end before the proof."""

from __future__ import annotations

import attrs

from morello.ir.impl import Impl


@attrs.frozen
class Found:
    """The best program that a search has found, and what is proven that every program costs at least.

    `expansions` counts the Specs that the search could expand for it; 0 where something else ended the search.
    """

    impl: Impl
    cost: int
    low: int
    expansions: int = 0

    @property
    def gap(self) -> float:
        """Return how much dearer than the cheapest program it may be at most: 0.05 is 5 %."""
        return self.cost / self.low - 1 if self.cost > self.low else 0.0
