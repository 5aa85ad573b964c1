"""Keepers: places that keep answers, as search asks them."""

from __future__ import annotations

from typing import Protocol

from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.found import Found
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Answers, Solver


class Keeper(Answers, Protocol):
    """Keeps what engines have solved, and tells what was solved before."""

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        """Called now and then, and with `final` when search ends, be it by an interrupt."""
        ...

    def note(self, engine: Engine, solver: Solver) -> bool:
        """Called often; what takes search off its way has to wait. Return whether something was stored."""
        ...

    def keep(self, found: Found) -> None:
        """Store a program that is not proven to be the one that is chosen."""
        ...

    def drop(self, spec: Spec) -> None:
        """Drop what `keep` stored of a Spec that is solved."""
        ...

    def found(self, spec: Spec) -> Found | None:
        """Return the best program so far that was kept."""
        ...

    def attach(self, target: Target) -> bool:
        """Called before a new engine is made; return whether anything is known of its target."""
        ...

    def program(self, spec: Spec) -> Impl | None:
        """Return a program that was kept, None if there is none."""
        ...
