"""All tables of one search, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from morello.ir.spec import LogicalSpec
from morello.ir.tensor import OperandState
from morello.kernels.target import Target
from morello.search.tables.operand_states import States
from morello.search.tables.shapes import Spaces
from morello.search.tables.step_tables import StepTables

T = TypeVar("T", bound=StepTables)


class SearchTables:
    """Shapes, operand states, and the tables of each kind of step, for all Specs that can be met below some goals."""

    def __init__(self, goals: Sequence[LogicalSpec], target: Target, kinds: Sequence[type[StepTables]]):
        self.target = target
        self.spaces = Spaces(goals, target, kinds)
        self.steps = [kind(self.spaces, target) for kind in kinds]
        goal_states = [*dict.fromkeys(state for goal in goals for state in ranked_states(goal))]
        self.states = States(self.spaces, goal_states, self.steps, target)

    def of(self, kind: type[T]) -> T:
        """Return the tables of one kind of step."""
        return next(tables for tables in self.steps if isinstance(tables, kind))


def ranked_states(logical: LogicalSpec) -> list[tuple[int, OperandState]]:
    """Return the operands' states, each with the operand's rank."""
    operands = logical.op.operands(len(logical.shape))
    return [(len(operand.dims), state) for operand, state in zip(operands, logical.states, strict=True)]
