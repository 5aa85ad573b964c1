"""Tables of steps: the interface of each kind, the priorities of steps, and all tables of one search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self, TypeVar

import attrs

from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.search.tables.operand_states import MakesStates, States
from morello.search.tables.shapes import DTypes, Reached, Space, Spaces

T = TypeVar("T", bound="StepTables")
_STEP_BITS = 24
_OPERAND_BITS = 8


@attrs.frozen
class Priority:
    """The place of a step in the target's order. The lowest priority wins among programs of equal cost.

    `rewrite` numbers the target's rewrites, `step` the steps of one rewrite: those of moves per `operand`.
    """

    rewrite: int
    step: int
    operand: int = 0

    def pack(self) -> int:
        """Return the priority as one int of the same order, so that arrays of priorities can be compared."""
        return (((self.rewrite << _OPERAND_BITS) + self.operand) << _STEP_BITS) + self.step

    @classmethod
    def unpack(cls, packed: int) -> Self:
        """Return the priority for an int made by `pack`."""
        upper, step = divmod(packed, 1 << _STEP_BITS)
        rewrite, operand = divmod(upper, 1 << _OPERAND_BITS)
        return cls(rewrite, step, operand)


class StepTables(MakesStates, ABC):
    """All expansions by steps of one kind, over the shapes of some spaces and the states of operands."""

    #: The tables of more tile sizes and layouts, if they are known.
    whole: SearchTables | None = None

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
        """Yield the shapes reachable by one step from all shapes of a space with any of these data types."""
        yield from ()

    @abstractmethod
    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        """Return the step with a priority on a Spec."""


class SearchTables:
    """Shapes, operand states and the tables of each kind of step, for all Specs reachable from some goals.

    `whole` are the tables of a target that differs in having more tile sizes and layouts: kernels are looked up there.
    """

    def __init__(
        self,
        goals: Sequence[LogicalSpec],
        target: Target,
        kinds: Sequence[type[StepTables]],
        whole: SearchTables | None = None,
    ):
        self.target = target
        self.spaces = Spaces(goals, target, kinds)
        self.steps = [kind(self.spaces, target) for kind in kinds]
        for tables in self.steps:
            tables.whole = whole
        goal_states = [*dict.fromkeys(state for goal in goals for state in ranked_states(goal))]
        self.states = States(self.spaces, goal_states, self.steps, target)

    def of(self, kind: type[T]) -> T:
        """Return the tables of one kind of step."""
        return next(tables for tables in self.steps if isinstance(tables, kind))


def ranked_states(logical: LogicalSpec) -> list[tuple[int, OperandState]]:
    """Return the operands' states, each with the operand's rank."""
    operands = logical.op.operands(len(logical.shape))
    return [(len(operand.dims), state) for operand, state in zip(operands, logical.states, strict=True)]


def overridden(rewrite: type[Rewrite], base: type[Rewrite]) -> set[str]:
    """Return the methods of `base` that a subclass, or a class between the two, overrides."""
    own = rewrite.__mro__[: rewrite.__mro__.index(base)]
    names = {name for cls in own for name in vars(cls) if not name.startswith("__")}
    return {name for name in names if callable(getattr(base, name, None))}
