"""The interface between search and what stores its answers."""

from __future__ import annotations

from typing import Protocol

from morello.ir.impl import Impl
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.search.incumbents import Incumbent
from morello.search.solve.engine import Engine
from morello.search.solve.solver import Answers, Solver


class SolutionCache(Answers, Protocol):
    """Stores what engines solve, and returns it to later searches."""

    def attach(self, target: Target) -> bool:
        """Return whether any answer for a target is stored. Called before an engine is made."""
        ...

    def save(self, engine: Engine, solver: Solver, *, final: bool) -> None:
        """Store solved cells. Called every few turns, and with `final` when search ends or is interrupted."""
        ...

    def save_bounds(self, engine: Engine, solver: Solver) -> bool:
        """Store the proven lower bounds of the goals; return whether that was due. Called every few milliseconds."""
        ...

    def program(self, spec: Spec) -> Impl | None:
        """Return the stored optimal program of a Spec, or None."""
        ...

    def incumbent(self, spec: Spec) -> Incumbent | None:
        """Return the best stored program of a Spec whose optimality is unproven, or None."""
        ...

    def store_incumbent(self, found: Incumbent) -> None:
        """Store a program whose optimality is unproven."""
        ...

    def drop_incumbent(self, spec: Spec) -> None:
        """Drop the unproven program of a Spec, which is solved now."""
        ...
