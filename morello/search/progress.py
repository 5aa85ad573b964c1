"""Progress of a running search, as passed to callbacks."""

from __future__ import annotations

from enum import Enum

import attrs


class Phase(Enum):
    """A part of a search. The first three may occur again, with tighter bounds, if the search takes long."""

    TABLES = "making tables for"
    BOUNDS = "making bounds for"
    LAYOUTS = "making finer bounds for"
    SEARCH = "searching"


@attrs.frozen
class Progress:
    """Specs solved so far, and seconds since the search began.

    `tables` are subproblem tables met, `tables_done` those whose Specs met are all solved. `low` is the proven lower
    bound on the goal's cost, and `high` the cost of its incumbent, None without one.
    """

    solved: int
    seconds: float
    tables: int = 0
    tables_done: int = 0
    low: int = 0
    high: int | None = None
    phase: Phase = Phase.SEARCH
