"""Progress of a running search, as passed to callbacks."""

from __future__ import annotations

from enum import Enum

import attrs


class Phase(Enum):
    """A part of a search: what it does first may be done anew, with finer bounds, where search itself takes long."""

    TABLES = "making tables for"
    BOUNDS = "making bounds for"
    LAYOUTS = "making finer bounds for"
    SEARCH = "searching"


@attrs.frozen
class Progress:
    """Specs solved so far, and seconds since search began.

    Search on blocks also tells of the tables that it has met and of those in which every Spec met is solved, and
    between which costs the goal's must be: `high` is None until a program is known.
    """

    solved: int
    seconds: float
    tables: int = 0
    tables_done: int = 0
    low: int = 0
    high: int | None = None
    phase: Phase = Phase.SEARCH
