"""Mappers: named objects that propose schedules for a Spec, which search completes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

import attrs

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule


@attrs.frozen
class Mapper:
    """Proposes schedules: `propose(spec, target, seed)` gives any number of them, the likeliest first.

    They are statements of rewrites as a Spec file has them, so that a proposal may be slow, but never wrong. What does
    not apply is passed over, and search completes what is left open. The same seed gives the same proposals.

    A generator is told what comes of each: its `yield` gives back the value of the proposal's program by the objective
    that is asked for, of which less is better, or None where it comes to no program. Such a mapper is `adaptive` if it
    makes little sense without.
    """

    name: str
    propose: Callable[[Spec, Target, int], Iterable[Schedule]]
    description: str = ""
    adaptive: bool = False


def told(proposals: Iterable[Schedule]) -> Generator[Schedule, float | None, None]:
    """Yield proposals; what is sent back goes on to those who listen."""
    if isinstance(proposals, Generator):
        yield from proposals
    else:
        # Not `yield from`: an iterator has nothing that hears what is sent.
        for one in proposals:  # noqa: UP028
            yield one
