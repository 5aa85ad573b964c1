"""Microkernels: for every tuple of operand states that a kernel takes, its cost on all shapes at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from morello.errors import Inapplicable
from morello.ir.impl import Expansion
from morello.ir.numbers import CellIndices, partition, take
from morello.ir.spec import LogicalSpec
from morello.kernels.microkernel import Microkernel, Multiple
from morello.kernels.target import Target
from morello.rewrites.base import Rewrite, rewrites_of
from morello.rewrites.select import Select
from morello.search.arrays import Bools, Floats, Ints
from morello.search.memory import check
from morello.search.tables.operand_states import States
from morello.search.tables.priorities import Priority
from morello.search.tables.shapes import Key, Space, Spaces
from morello.search.tables.step_tables import StepTables, overridden

#: A state of an operand, and which cells it describes.
_Choice = tuple[int, Bools]


@attrs.frozen
class KernelTable:
    """One kernel on operands in these states: `cost`, [shapes], infinite where it does not apply; `needs` in bytes."""

    states: tuple[int, ...]
    step: Select
    priority: int
    cost: Floats
    needs: tuple[int, ...]


class KernelTables(StepTables):
    """Every way to implement Specs by one kernel, by space."""

    def __init__(self, spaces: Spaces, target: Target):
        super().__init__(spaces, target)
        self.by_key: dict[Key, list[KernelTable]] = {}

    @staticmethod
    def handles(rewrite: type[Rewrite]) -> bool:
        # Search asks for `cases`, of every kernel; the rest it takes to be as it is in Select.
        return issubclass(rewrite, Select) and overridden(rewrite, Select) <= {"cases"}

    def step(self, logical: LogicalSpec, priority: Priority) -> Rewrite:
        return self._step(priority.rewrite, self.target.kernels[priority.step])

    def finish(self, states: States) -> None:
        self.by_key = {key: [*self._tabulate(space, states)] for key, space in self.spaces.by_key.items()}

    def _step(self, place: int, kernel: Microkernel) -> Select:
        rewrite = rewrites_of(self.target)[place]
        assert issubclass(rewrite, Select)
        return rewrite(kernel.name)

    def _tabulate(self, space: Space, states: States) -> Iterator[KernelTable]:
        for place, _ in self.rewrites(self.target):
            for index, kernel in enumerate(self.target.kernels):
                if kernel.implements(space.key.op) and len(kernel.operands) == len(space.operands):
                    step, priority = self._step(place, kernel), Priority(place, index).pack()
                    yield from self._tables(step, kernel, space, states, priority)

    def _tables(
        self, step: Select, kernel: Microkernel, space: Space, states: States, priority: int
    ) -> Iterator[KernelTable]:
        cells = np.flatnonzero(_fitting_shapes(kernel, space))
        if not len(cells):
            return
        for numbers, described in _state_tuples(kernel, space, states, cells):
            check()
            inside = cells[described]
            batch = space.batch([states.states[number][1] for number in numbers], inside)
            with contextlib.suppress(Inapplicable):
                for case in step.cases(batch, self.target):
                    fitting = inside if case.cells is None else inside[case.cells]
                    for needs, part in _by_needs(case.expansion, len(fitting)):
                        cost = np.full(space.count, np.inf)
                        cost[fitting if part is None else fitting[part]] = take(case.expansion.cost, part)
                        yield KernelTable(numbers, step, priority, cost, needs)


def _by_needs(expansion: Expansion, count: int) -> Iterator[tuple[tuple[int, ...], CellIndices]]:
    """Yield the bytes per level that calls need, and the cells of a batch of `count` that need them."""
    if all(isinstance(need, int) for need in expansion.needs):
        yield tuple(map(int, expansion.needs)), None
        return
    needs = np.stack([np.broadcast_to(np.asarray(need, dtype=np.int64), (count,)) for need in expansion.needs])
    for distinct, cells in partition(tuple(needs)):
        yield tuple(distinct), cells


def _fitting_shapes(kernel: Microkernel, space: Space) -> Bools:
    """Return which shapes the kernel's size rules allow, [shapes]."""
    allowed = np.ones(space.count, dtype=np.bool_)
    if kernel.shape is not None and len(kernel.shape) != len(space.sizes):
        return ~allowed
    for size, rule in zip(space.sizes, kernel.shape or (), strict=False):
        if rule is not None:
            allowed &= size % rule.of == 0 if isinstance(rule, Multiple) else size == rule
    return allowed


def _state_tuples(
    kernel: Microkernel, space: Space, states: States, cells: Ints
) -> Iterator[tuple[tuple[int, ...], Bools]]:
    """Yield tuples of states that the operands' patterns accept and that go together, and which cells they describe."""
    choices: list[list[_Choice]] = []
    for index, (pattern, operand) in enumerate(zip(kernel.operands, space.operands, strict=True)):
        tensors = space.tensors[index][cells]
        accepted = [
            number
            for number, (rank, state) in enumerate(states.states)
            if rank == len(operand.dims) and pattern.accepts(state, rank)
        ]
        described = [states.cost[number, tensors] < np.inf for number in accepted]
        choices.append([one for one in zip(accepted, described, strict=True) if one[1].any()])
    yield from _agreeing((), np.ones(len(cells), dtype=np.bool_), choices, kernel, states)


def _agreeing(
    chosen: tuple[int, ...], described: Bools, choices: Sequence[Sequence[_Choice]], kernel: Microkernel, states: States
) -> Iterator[tuple[tuple[int, ...], Bools]]:
    """Yield one of each of the choices after those `chosen`, such that all go together and describe some cell."""
    if len(chosen) == len(choices):
        yield chosen, described
        return
    known = [states.states[number][1] for number in chosen]
    for number, cells in choices[len(chosen)]:
        both = described & cells
        if kernel.agreed([*known, states.states[number][1]]) and both.any():
            yield from _agreeing((*chosen, number), both, choices, kernel, states)
