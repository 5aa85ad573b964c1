"""Mappers: named objects that propose schedules for a Spec, which search completes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.schedule import Schedule


@attrs.frozen
class Mapper:
    """Proposes schedules: `propose(spec, target, seed)` gives any number of them, the likeliest first.

    They are statements of rewrites as a Spec file has them, so that a proposal may be slow, but never wrong. What does
    not apply is passed over, and search completes what is left open. The same seed gives the same proposals.
    """

    name: str
    propose: Callable[[Spec, Target, int], Iterable[Schedule]]
    description: str = ""
