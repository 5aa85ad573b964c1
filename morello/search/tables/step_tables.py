"""The tables of one kind of step: what every kind has to say before any cost is known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.tables.operand_states import MakesStates
from morello.search.tables.priorities import Priority
from morello.search.tables.shapes import DTypes, Reached, Space, Spaces


class StepTables(MakesStates, ABC):
    """All that steps of one kind make of the shapes of some spaces, and of the states of operands."""

    def __init__(self, spaces: Spaces, target: Target):
        self.spaces = spaces
        self.target = target

    @staticmethod
    @abstractmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        """Return whether steps of a rewrite are of this kind."""

    @classmethod
    def rewrites(cls, target: Target) -> list[tuple[int, type[Rewrite]]]:
        """Return the target's rewrites of this kind, each with its place among all."""
        return [(place, rewrite) for place, rewrite in enumerate(rewrites_of(target)) if cls.handles(rewrite)]

    @classmethod
    def reach(cls, space: Space, dtypes: Sequence[DTypes], target: Target) -> Iterator[Reached]:
        """Yield the shapes and data types that one step leads to from all shapes of a space.

        `dtypes` are the data types that operands of the space can have.
        """
        yield from ()

    @abstractmethod
    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        """Return the step of this priority on a Spec."""


def overridden(rewrite: type[Rewrite], base: type[Rewrite]) -> set[str]:
    """Return the methods of `base` that a subclass, or one between, defines anew."""
    own = rewrite.__mro__[: rewrite.__mro__.index(base)]
    names = {name for cls in own for name in vars(cls) if not name.startswith("__")}
    return {name for name in names if callable(getattr(base, name, None))}
