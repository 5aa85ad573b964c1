"""hybrid: what all others propose that learn nothing; the best is taken of any mapper's proposals."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule
from morello_bounds.hooks import Mapper, with_feedback

HYBRID = "hybrid"


def hybrid(others: Sequence[Mapper]) -> Mapper:
    """Return the mapper that proposes what others do, but those that are slow as they wait for what comes of it."""
    others = [one for one in others if not one.adaptive]

    def propose(spec: Spec, target: Target, seed: int) -> Generator[Schedule, float | None, None]:
        for mapper in others:
            yield from with_feedback(mapper.propose(spec, target, seed))

    return Mapper(HYBRID, propose, f"the best of {', '.join(one.name for one in others)}")
